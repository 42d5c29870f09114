"""What Python programs do with files: fails if something has not the effect that it should."""

import fcntl
import mmap
import multiprocessing
import os
import shutil
import tempfile


def in_temporary_files():
    # Without a name (O_TMPFILE).
    with tempfile.TemporaryFile(dir=".") as file:
        assert os.listdir(".") == [], "it has a name"
        file.write(b"of no file")
    # Without one at first.
    fd, here = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600), os.open(".", os.O_RDONLY)
    os.write(fd, b"temporary")
    # (Python follows the link only where it is told the directory.)
    os.link("/proc/self/fd/%d" % fd, "named", src_dir_fd=here, follow_symlinks=True)
    assert open("named", "rb").read() == b"temporary"
    with tempfile.NamedTemporaryFile(dir=".") as file, tempfile.TemporaryDirectory(dir=".") as dir:
        shutil.copy2("named", dir)
        os.stat(file.name)
    assert os.listdir(".") == ["named"]


def add(count):
    """Adds to a number in a mapped file, under a lock of the file."""
    with open("counter", "r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
        for _ in range(count):
            fcntl.lockf(file, fcntl.LOCK_EX)
            shared[:8] = (int.from_bytes(shared[:8], "little") + 1).to_bytes(8, "little")
            fcntl.lockf(file, fcntl.LOCK_UN)


def in_mapped_files():
    open("counter", "wb").write(bytes(8))
    processes = [multiprocessing.Process(target=add, args=(300,)) for _ in range(3)]
    [process.start() for process in processes]
    [process.join() for process in processes]
    assert int.from_bytes(open("counter", "rb").read(), "little") == 900

    with open("mapped", "w+b") as file:
        file.truncate(3 * 4096 + 5)
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[4090:4100] = b"0123456789"
            mapped.flush()
            assert os.pread(file.fileno(), 10, 4090) == b"0123456789", "read has what was mapped"
            os.pwrite(file.fileno(), b"written", 12288 - 3)
            assert mapped[12285:12292] == b"written", "the mapping has what was written"
        with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as private:
            private[0:4] = b"mine"
    content = bytearray(3 * 4096 + 5)
    content[4090:4100], content[12285:12292] = b"0123456789", b"written"
    assert open("mapped", "rb").read() == content


def between_files():
    with open("mapped", "rb") as source, open("sent", "wb") as target:
        assert os.sendfile(target.fileno(), source.fileno(), 0, 1 << 20) == 3 * 4096 + 5
    with open("mapped", "rb") as source, open("copied", "wb") as target:
        assert os.copy_file_range(source.fileno(), target.fileno(), 1 << 20) == 3 * 4096 + 5
    content = open("mapped", "rb").read()
    assert open("sent", "rb").read() == content and open("copied", "rb").read() == content
    with open("appended", "ab", buffering=0) as file:
        file.write(b"one")
        file.truncate(1)
        file.write(b"two")
    assert open("appended", "rb").read() == b"otwo"


in_temporary_files()
in_mapped_files()
between_files()
print("done")
