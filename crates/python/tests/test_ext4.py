"""Files in images that mkfs.ext4 and e2fsck made and judge."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import run

import meantime
from meantime import ext4


def test_everything_is_read_as_it_is(tree: Path, original: Path):
    seen = 0
    with ext4.mount(f"file:{original}") as fs:
        for directory, directories, files in os.walk(tree):
            inside = "/" + os.path.relpath(directory, tree).removeprefix(".")
            names = set(directories) | set(files)
            names |= {"lost+found"} if inside == "/" else set()
            assert set(fs.listdir(inside)) == names
            for name in files:
                path = os.path.join(directory, name)
                seen += 1
                ours = os.path.join(inside, name)
                if os.path.islink(path):
                    assert fs.readlink(ours) == os.readlink(path)
                    continue
                with open(path, "rb") as file:
                    assert fs.open(ours).read() == file.read(), path
                theirs = os.stat(path)
                mine = fs.stat(ours)
                for field in ("st_mode", "st_size", "st_nlink", "st_uid", "st_gid"):
                    assert getattr(mine, field) == getattr(theirs, field), (path, field)
                assert int(mine.st_mtime) == int(theirs.st_mtime)
                assert mine.st_mtime_ns // 10**9 == int(mine.st_mtime)
        walked = sum(len(files) for _, _, files in fs.walk("/"))
    # What walk counts as a directory: the link to one.
    assert seen > 300 and walked == seen


def test_what_leads_nowhere_is_not_there(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "loop").symlink_to("loop")
    image = tmp_path / "i.img"
    subprocess.run(["mkfs.ext4", "-q", "-d", tmp_path / "d", image, "16M"], check=True)
    with ext4.mount(f"file:{image}") as fs:
        for path in ("/loop", "/" + "n" * 300, "/not", "/loop/x"):
            assert not (fs.exists(path) or fs.isdir(path) or fs.isfile(path)), path
        walked = {top: files for top, _, files in fs.walk("/")}
        assert walked["/"] == ["loop"]


def test_walks(original: Path):
    with ext4.mount(f"file:{original}") as fs:
        tops = [top for top, _, _ in fs.walk("/a")]
        assert tops == ["/a", "/a/b", "/a/b/ć d"]
        assert [top for top, _, _ in fs.walk("/a", topdown=False)] == tops[::-1]
        assert "/link/ć d" in [top for top, _, _ in fs.walk("/", followlinks=True)]
        errors: list[OSError] = []
        assert list(fs.walk("/not", onerror=errors.append)) == []
        assert isinstance(errors[0], FileNotFoundError)
        with fs.scandir("/") as entries:
            kinds = {e.name: (e.is_dir(), e.is_file(), e.is_symlink()) for e in entries}
        assert kinds["a"] == (True, False, False)
        assert kinds["odd"] == (False, True, False)
        assert kinds["link"] == (True, False, True)
        assert kinds["nowhere"] == (False, False, True)
        entry = next(e for e in fs.scandir("/") if e.name == "odd")
        assert entry.stat().st_size == 12_345 and entry.inode() == entry.stat().st_ino
        assert os.fspath(entry) == "/odd"


def test_positions_and_wrappers(tree: Path, original: Path):
    odd = (tree / "odd").read_bytes()
    with ext4.mount(f"file:{original}") as fs:
        file = fs.open("odd")
        assert isinstance(file, io.RawIOBase) and file.readable() and not file.writable()
        assert file.read(10) == odd[:10] and file.tell() == 10
        into = bytearray(100)
        assert file.readinto(into) == 100 and into == odd[10:110]
        assert file.seek(-45, io.SEEK_END) == 12_300
        assert file.readinto(into) == 45 and into[:45] == odd[-45:]
        assert file.read(1) == b"" and file.readinto(into) == 0
        assert file.seek(-345, io.SEEK_CUR) == 12_000
        assert file.pread(5, 3) == odd[3:8] and file.tell() == 12_000
        with pytest.raises(ValueError, match="before the beginning"):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        buffered = io.BufferedReader(file, 1000)
        buffered.seek(7)
        assert buffered.read(3000) == odd[7:3007] and buffered.peek(1)[:1] == odd[3007:3008]
        text = io.TextIOWrapper(io.BufferedReader(fs.open("/a/b/ć d/datei ü")))
        assert text.read() == "deep"
        hole = fs.open("/hole")
        assert hole.read(5) == b"begin"
        hole.seek(1_000_000)
        assert hole.read(10_000) == bytes(10_000)
        assert hole.stat().st_blocks * 512 < 100_000 < hole.size
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.read()


def test_errors_have_their_classes(original: Path):
    with ext4.mount(f"file:{original}") as fs:
        for call, kind, number in [
            (lambda: fs.open("/not"), FileNotFoundError, errno.ENOENT),
            (lambda: fs.stat("/nowhere"), FileNotFoundError, errno.ENOENT),
            (lambda: fs.listdir("/odd"), NotADirectoryError, errno.ENOTDIR),
            (lambda: fs.open("/odd/x"), NotADirectoryError, errno.ENOTDIR),
            (lambda: fs.open("/a").read(), IsADirectoryError, errno.EISDIR),
            (lambda: fs.mkdir("/new"), OSError, errno.EROFS),
            (lambda: fs.open("/odd", "wb"), OSError, errno.EROFS),
            (lambda: fs.stat("/" + "x" * 300), OSError, errno.ENAMETOOLONG),
            (lambda: fs.readlink("/odd"), OSError, errno.EINVAL),
        ]:
            with pytest.raises(kind) as raised:
                call()
            assert raised.value.errno == number
            assert isinstance(raised.value, meantime.Error)
        with pytest.raises(FileNotFoundError) as raised:
            fs.open("/not")
        assert raised.value.filename == "/not" and "no such file" in str(raised.value)
        for mode in ("r", "rt", "rwb", "b", "r++b"):
            with pytest.raises(ValueError, match="binary"):
                fs.open("/odd", mode)
        assert fs.exists("/odd") and not fs.exists("/nowhere") and not fs.exists("/odd/x")
        assert fs.read_only and fs.exists(b"/odd") and fs.exists(Path("/odd"))
    with pytest.raises(ValueError, match="closed"):
        fs.listdir("/")
    with pytest.raises(meantime.Error, match="holds no ext4 file system"):
        ext4.mount("mem:16M")


def test_what_is_written_is_sound(image: Path, tmp_path: Path):
    big = os.urandom(5_000_001)
    with ext4.mount(f"file:{image}", read_only=False) as fs:
        assert not fs.read_only
        fs.makedirs("/new/deep")
        fs.makedirs("/new/deep", exist_ok=True)
        with pytest.raises(FileExistsError):
            fs.mkdir("/new")
        with fs.open("/new/big", "wb") as file, io.BufferedWriter(file) as writer:
            for at in range(0, len(big), 70_001):
                writer.write(big[at : at + 70_001])
            writer.flush()
            file.fsync()
        with fs.open("/new/big", "r+b") as file:
            file.seek(100)
            file.write(b"middle")
            file.pwrite(b"other", 4_000_000)
            assert file.tell() == 106
        with fs.open("/new/log", "ab") as file:
            file.write(b"first\n")
        with fs.open("/new/log", "a+b") as file:
            file.write(b"second\n")
            assert file.tell() == 13
            file.seek(0)
            assert file.read() == b"first\nsecond\n"
        with fs.open("/new/sparse", "xb") as file:
            file.seek(2_000_000)
            file.write(b"end")
            assert file.truncate(3_000_000) == 3_000_000
            file.fsync(data_only=True)
        with pytest.raises(FileExistsError):
            fs.open("/new/sparse", "xb")
        fs.open("/odd", "wb").close()
        fs.rename("/one", "/new/deep/moved")
        fs.symlink("/new/big", "/to big")
        fs.unlink("/page")
        fs.mkdir("/short", 0o700)
        fs.rmdir("/short")
        with pytest.raises(OSError) as raised:
            fs.rmdir("/new")
        assert raised.value.errno == errno.ENOTEMPTY
        assert fs.stat("/to big").st_size == len(big)
        found = fs.stat("/new/log")
        assert stat.S_IMODE(found.st_mode) == 0o644 and found.st_uid == os.geteuid()
        free = fs.usage().free_blocks
        fs.sync()
        assert 0 < free == fs.usage().free_blocks
        left_open = fs.open("/new/log")
    assert left_open.closed
    run("e2fsck", "-fn", image)
    expected = bytearray(big)
    expected[100:106] = b"middle"
    expected[4_000_000:4_000_005] = b"other"
    for name, content in [
        ("/new/big", bytes(expected)),
        ("/new/log", b"first\nsecond\n"),
        ("/new/sparse", bytes(2_000_000) + b"end" + bytes(999_997)),
        ("/odd", b""),
    ]:
        run("debugfs", "-R", f"dump {name} {tmp_path}/out", image)
        assert (tmp_path / "out").read_bytes() == content, name
    with ext4.mount(f"file:{image}") as fs:
        assert not fs.exists("/page") and not fs.exists("/one")
        assert fs.isfile("/new/deep/moved") and not fs.exists("/short")


def test_many_threads(tree: Path, original: Path):
    big = (tree / "big").read_bytes()
    wrong: list[int] = []
    with ext4.mount(f"file:{original}", cache_bytes=2 << 20) as fs:
        file = fs.open("/big")

        def work(number: int) -> None:
            for turn in range(40):
                at = (number * 1_234_567 + turn * 98_765) % len(big)
                if file.pread(50_000, at) != big[at : at + 50_000]:
                    wrong.append(at)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_mount_that_was_not_closed_is_closed_at_the_end(image: Path):
    import subprocess
    import sys

    text = f"""
from meantime import ext4
fs = ext4.mount("file:{image}", read_only=False)
file = fs.open("/late", "wb")
file.write(b"written")
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
    run("e2fsck", "-fn", image)
    with ext4.mount(f"file:{image}") as fs:
        assert fs.open("/late").read() == b"written"
