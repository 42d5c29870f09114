#!/usr/bin/env bash
# RWF_DONTCACHE on ext4: which writes leave the page cache.
#
# With RWF_DONTCACHE, a flag of pwritev2(2), a buffered write prunes from the page cache what it has
# brought there, once it is done. The manual page calls it a hint; a file system or device without
# support for it refuses it. One would expect that it works for all writes of a kind or for none,
# and not that it depends on what the file's blocks are. Seen, with Linux 6.18, for 1 MiB written to
# pages that are not cached, and 256 pages of 4096 bytes counted by cachestat(2) half a second after
# an fsync(2):
#
#                                                    ext4     XFS
#   a new file                                       0        0
#   a file with a hole of 1 MiB                      0        0
#   a file of 1 MiB from fallocate(2)                0        0
#   a file of 1 MiB that is on the medium            256      0
#   the same, with RWF_DSYNC for each write          256      0
#
# each with writes of 4096 bytes, of 64 KiB and of 1 MiB. So what is overwritten in place stays, as
# without the flag, until something else drops it (posix_fadvise(2) does). A benchmark that writes
# its file once, and then measures writes with this flag, finds its file in the cache.
#
# Needs Linux 6.18, python3 and a folder for temporary files (TMPDIR) on ext4; for XFS also root,
# and a loop device, and what trixie.sh needs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

case $(uname -r) in
    6.18.*) uname -sr ;;
    *) echo "not run: this is Linux $(uname -r), the description is of 6.18"; exit 0 ;;
esac
cat >"$dir/writes.py" <<'PYTHON'
import ctypes, os, sys, time

CACHESTAT, RWF_DSYNC, RWF_DONTCACHE, MIB = 451, 2, 0x80, 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1] + "/file"


def cached(file):
    span, counts = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, file, span, counts, 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return counts[0]


def pages(prepare, flags, size):
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    prepare(file)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached(file) == 0
    for at in range(0, MIB, size):
        assert os.pwritev(file, [b"x" * size], at, flags) == size
    os.fsync(file)
    time.sleep(0.5)
    left = cached(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached(file) == 0
    os.close(file)
    os.unlink(path)
    # What stays may be reclaimed, as what is cached otherwise, but not at once.
    return 256 if left > 200 else left


for prepare, flags in [
    (lambda file: None, RWF_DONTCACHE),
    (lambda file: os.ftruncate(file, MIB), RWF_DONTCACHE),
    (lambda file: os.posix_fallocate(file, 0, MIB), RWF_DONTCACHE),
    (lambda file: os.pwrite(file, bytes(MIB), 0), RWF_DONTCACHE),
    (lambda file: os.pwrite(file, bytes(MIB), 0), RWF_DONTCACHE | RWF_DSYNC),
]:
    print(*[pages(prepare, flags, size) for size in (4096, 65536, MIB)])
PYTHON

# $1: the file system, $2: what is described of overwrites; what came is in $dir/seen.
table() {
    local at what described=("0 0 0" "0 0 0" "0 0 0" "$2" "$2")
    mapfile -t seen <"$dir/seen"
    for at in {0..4}; do
        what=("a new file" "a hole" "from fallocate" "on the medium" "the same, with RWF_DSYNC")
        compare "$1, ${what[at]}: pages left by writes of 4 KiB, 64 KiB, 1 MiB" "0 0 0" \
            "${described[at]}" "${seen[at]:-nothing}"
    done
}

if [[ $(df --output=fstype "$dir" | tail -n 1) == ext4 ]]; then
    python3 "$dir/writes.py" "$dir" >"$dir/seen"
    table ext4 "256 256 256"
else
    echo "ext4: not run: $dir is not on ext4"
fi
if ((EUID == 0)) && [[ -e /dev/loop-control ]]; then
    trixie xfsprogs=6.13.0-2+deb13u1
    truncate -s 512M "$root/tmp/xfs"
    inside mkfs.xfs -q xfs
    mkdir "$dir/mounted"
    # shellcheck disable=SC2016 # The inner shell expands these.
    unshare --mount bash -c 'mount -o loop "$0/root/tmp/xfs" "$0/mounted" &&
        python3 "$0/writes.py" "$0/mounted"' "$dir" >"$dir/seen"
    table XFS "0 0 0"
else
    echo "XFS: not run: it needs root and a loop device"
fi
exit "$failed"
