#!/usr/bin/env bash
# FUSE: what the kernel asks of a file system for a write with O_DSYNC.
#
# open(2) says of O_DSYNC that each write is complete as if fdatasync(2) followed it, and
# pwritev2(2) the same of RWF_DSYNC for one write. A FUSE file system syncs when it gets the request
# FSYNC. One would expect one after each such write. The more so where the file system has set
# FOPEN_DIRECT_IO in its answer to OPEN, whose writes do not wait in the page cache. Seen, with
# Linux 6.18, for a write of 4096 bytes, by a file system that speaks the protocol itself:
#
#   in the plain mode                       WRITE, FSYNC (of data only)
#   in the plain mode, with O_DIRECT        WRITE, FSYNC
#   with the write-back cache               WRITE, FSYNC
#   with it, with O_DIRECT                  WRITE, FSYNC
#   with FOPEN_DIRECT_IO                    WRITE, and nothing else
#   with FOPEN_DIRECT_IO, with O_DIRECT     WRITE, and nothing else
#
# RWF_DSYNC without O_DSYNC gives the same table; so do O_SYNC and RWF_SYNC, with FSYNCs of all. In
# the mode without FSYNC, fdatasync(2) does send it. Without the write-back cache, the flag is among
# the flags of each WRITE: a server which answers FSYNC by syncing, and has set FOPEN_DIRECT_IO,
# must look there, too, or what was written with O_DSYNC is not on the medium when write(2) returns.
#
# Needs Linux 6.18, /dev/fuse, open to the user, and python3; without root, a user namespace.
set -euo pipefail

case $(uname -r) in
    6.18.*) uname -sr ;;
    *) echo "not run: this is Linux $(uname -r), the description is of 6.18"; exit 0 ;;
esac
[[ -r /dev/fuse && -w /dev/fuse ]] || { echo "not run: /dev/fuse cannot be opened"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
options=(--mount --pid --fork --kill-child)
((EUID == 0)) || options+=(--map-root-user)
cat >"$dir/dsync.py" <<'PYTHON'
import ctypes, errno, mmap, os, struct, sys, threading, time

LOOKUP, GETATTR, SETATTR, OPEN, WRITE, RELEASE, FSYNC, FLUSH, INIT = 1, 3, 4, 14, 16, 18, 20, 25, 26
FORGET, BATCH_FORGET = 2, 42
DIRECT_IO, WRITEBACK_CACHE = 1 << 0, 1 << 16
RWF_DSYNC, RWF_SYNC = 2, 4
libc = ctypes.CDLL(None, use_errno=True)
folder = sys.argv[1]
requests = []


class FileSystem(threading.Thread):
    """A folder with one file of 1 MiB, of which it keeps no data."""

    def __init__(self, open_flags, init_flags):
        super().__init__(daemon=True)
        self.open_flags, self.init_flags = open_flags, init_flags
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"findings", folder.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        self.start()

    @staticmethod
    def attributes(node):
        size, mode = (1 << 20, 0o100666) if node == 2 else (0, 0o40777)
        return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0,
                           4096, 0)

    def answer(self, operation, node, body):
        if operation == INIT:
            minor = min(struct.unpack_from("<I", body, 4)[0], 41)
            return 0, struct.pack("<4I2H2I2HI7I", 7, minor, 1 << 17, self.init_flags, 12, 9,
                                  1 << 20, 1, 256, 0, *[0] * 8)
        if operation == LOOKUP and body == b"file\0":
            return 0, struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + self.attributes(2)
        if operation in (GETATTR, SETATTR):
            return 0, struct.pack("<Q2I", 0, 0, 0) + self.attributes(node)
        if operation == OPEN:
            return 0, struct.pack("<Q2I", 1, self.open_flags, 0)
        if operation == WRITE:
            size, flags = struct.unpack_from("<16xI12xI", body)
            requests.append("WRITE" + " with O_DSYNC" * bool(flags & os.O_DSYNC))
            return 0, struct.pack("<2I", size, 0)
        if operation == FSYNC:
            data_only = struct.unpack_from("<8xI", body)[0] & 1
            requests.append("FSYNC of data" if data_only else "FSYNC of all")
            return 0, b""
        if operation in (FLUSH, RELEASE):
            return 0, b""
        return -errno.ENOSYS, b""

    def run(self):
        while True:
            try:
                message = os.read(self.device, 1 << 21)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            length, operation, unique, node = struct.unpack_from("<2I2Q", message)
            if operation in (FORGET, BATCH_FORGET):
                continue
            error, body = self.answer(operation, node, message[40:length])
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def seen(open_flags, write_flags=0, then=None):
    file = os.open(folder + "/file", os.O_RDWR | open_flags)
    requests.clear()
    os.pwritev(file, [memoryview(buffer)[:4096]], 0, write_flags)
    if then:
        then(file)
    result = ", ".join(name.replace(" with O_DSYNC", "") for name in requests)
    if not then and not flag_is_shown():
        result += " (without the flag)"
    os.close(file)
    return result


def flag_is_shown():
    # The write-back cache writes pages out without the flags of a file.
    return write_back or "WRITE with O_DSYNC" in requests


failed = 0
buffer = mmap.mmap(-1, 4096)  # which is aligned, for O_DIRECT
for mode, open_flags, init_flags in [("plain", 0, 0), ("write-back cache", 0, WRITEBACK_CACHE),
                                     ("FOPEN_DIRECT_IO", DIRECT_IO, 0)]:
    write_back = bool(init_flags)
    FileSystem(open_flags, init_flags)
    for direct, direct_flag in ("", 0), (", O_DIRECT", os.O_DIRECT):
        for name, file_flag, write_flag, expected in [
            ("O_DSYNC", os.O_DSYNC, 0, "WRITE, FSYNC of data"),
            ("RWF_DSYNC", 0, RWF_DSYNC, "WRITE, FSYNC of data"),
            ("O_SYNC", os.O_SYNC, 0, "WRITE, FSYNC of all"),
            ("RWF_SYNC", 0, RWF_SYNC, "WRITE, FSYNC of all"),
        ]:
            described = "WRITE" if open_flags else expected
            came = seen(direct_flag | file_flag, write_flag)
            print(f"{mode}{direct}, {name}: expected {expected}, seen {came}")
            if came != described:
                print(f"    the description says: {described}")
                failed = 1
    came = seen(0, 0, os.fdatasync)
    print(f"{mode}, fdatasync: expected WRITE, FSYNC of data, seen {came}")
    failed |= came != "WRITE, FSYNC of data"
    libc.umount2(folder.encode(), 2)
    time.sleep(0.1)
sys.exit(failed)
PYTHON
mkdir "$dir/mounted"
timeout 60 unshare "${options[@]}" python3 "$dir/dsync.py" "$dir/mounted"
