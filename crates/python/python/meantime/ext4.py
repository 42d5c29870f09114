"""Files of an ext4 file system on any device, without a mount in the kernel.

::

    with meantime.ext4.mount("file:disk.img") as fs:
        for name in fs.listdir("/"):
            print(name)
        with fs.open("/etc/passwd") as file:
            text = io.TextIOWrapper(io.BufferedReader(file)).read()
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import posixpath
import stat as _mode
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from . import _meantime
from ._errors import Exists

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DirEntry", "File", "FileSystem", "Usage", "mount"]

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_mounts: weakref.WeakSet[FileSystem] = weakref.WeakSet()

# What `os.path` takes for a path to nothing.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def mount(
    uri: str,
    read_only: bool = True,
    *,
    policy: str | None = None,
    cache_bytes: int | None = None,
) -> FileSystem:
    """Mount the ext4 file system on the device `uri`.

    A mount for writing has to be closed (`FileSystem.close`, or a ``with`` statement); otherwise
    the next mount replays the journal, and what was not synced may be lost. `cache_bytes` is the
    memory of the page cache (256 MiB).
    """
    fs = FileSystem(_meantime.FileSystem(uri, read_only, policy, cache_bytes))
    _mounts.add(fs)
    return fs


@atexit.register
def _close_all() -> None:
    errors = []
    for fs in list(_mounts):
        try:
            fs.close()
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


class Usage(NamedTuple):
    """Room in a file system."""

    block_size: int
    blocks: int
    free_blocks: int
    available_blocks: int
    inodes: int
    free_inodes: int


def _stat(numbers: tuple[int, ...]) -> os.stat_result:
    mode, inode, links, uid, gid, size, blocks, block_size, *times = numbers
    names = ("st_atime", "st_mtime", "st_ctime")
    more: dict[str, float] = {"st_blocks": blocks, "st_blksize": block_size, "st_rdev": 0}
    for name, ns in zip(names, times):
        more |= {name: ns / 1e9, name + "_ns": ns}
    seconds = [ns // 1_000_000_000 for ns in times]
    return os.stat_result((mode, inode, 0, links, uid, gid, size, *seconds), more)


class DirEntry:
    """A name in a directory, as `os.DirEntry`."""

    __slots__ = ("_fs", "_inode", "_mode", "name", "path")

    def __init__(self, fs: FileSystem, directory: str, name: str, inode: int, mode: int) -> None:
        self._fs = fs
        self._inode = inode
        self._mode = mode
        self.name = name
        self.path = posixpath.join(directory, name)

    def inode(self) -> int:
        return self._inode

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._fs.stat(self.path, follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        return _mode.S_ISLNK(self._mode)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(_mode.S_ISDIR, self._fs.isdir, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(_mode.S_ISREG, self._fs.isfile, follow_symlinks)

    def _is(self, kind: Callable[[int], bool], ask: Callable[[str], bool], follow: bool) -> bool:
        if follow and self.is_symlink():
            return ask(self.path)
        return kind(self._mode)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Listing(Iterator[DirEntry]):
    """What `FileSystem.scandir` returns: an iterator, also for a ``with`` statement."""

    def __init__(self, entries: Iterator[DirEntry]) -> None:
        self._entries = entries

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class File(io.RawIOBase):
    """An open file. Wrap it: `io.BufferedReader(file)`, `io.TextIOWrapper` around that.

    Each call goes to the page cache of the mount; the position is the object's own, so one thread
    at a time uses it. `pread` and `pwrite` have none, and any thread may use them.
    """

    def __init__(self, fs: FileSystem, file: _meantime.File, name: str, mode: str) -> None:
        super().__init__()
        self._fs = fs  # Keeps the mount as long as the file.
        self._file = file
        self._position = 0
        self._append = "a" in mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.strip("b") != "r"
        self.name = name
        self.mode = mode

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def readinto(self, buffer: Buffer) -> int:
        self._check(reads=True)
        read = self._file.readinto(buffer, self._position)
        self._position += read
        return read

    def read(self, size: int | None = -1) -> bytes:
        self._check(reads=True)
        length = self._file.size if size is None or size < 0 else size
        data = self._file.read(self._position, length)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def write(self, data: Buffer) -> int:
        self._check(writes=True)
        written = self._file.write(data, self._position)
        self._position = self._file.size if self._append else self._position + written
        return written

    def pread(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes from byte `offset` on."""
        self._check(reads=True)
        return self._file.read(offset, size)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write `data` from byte `offset` on."""
        self._check(writes=True)
        return self._file.write(data, offset)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._file.size
        elif whence != io.SEEK_SET:
            raise ValueError(f"no such whence: {whence}")
        if offset < 0:
            raise ValueError(f"a position before the beginning: {offset}")
        self._position = offset
        return offset

    def tell(self) -> int:
        self._check()
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._check(writes=True)
        size = self._position if size is None else size
        self._file.truncate(size)
        return size

    def fsync(self, data_only: bool = False) -> None:
        """Make the file durable. (Flush a buffered writer around it first.)"""
        self._check()
        self._file.sync(data_only)

    def stat(self) -> os.stat_result:
        """As `os.fstat`."""
        self._check()
        return _stat(self._file.stat())

    def will_need(self, offset: int, length: int) -> None:
        """Begin to read this range into the page cache, without waiting."""
        self._check()
        self._file.will_need(offset, length)

    @property
    def size(self) -> int:
        """Size in bytes."""
        self._check()
        return self._file.size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()

    def __repr__(self) -> str:
        return f"<meantime.ext4.File {self.name!r}, mode {self.mode!r}>"

    def _check(self, reads: bool = False, writes: bool = False) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
        if reads and not self._reads:
            raise io.UnsupportedOperation("the file is not open for reading")
        if writes and not self._writes:
            raise io.UnsupportedOperation("the file is not open for writing")


class FileSystem:
    """A mounted file system. Any thread may use it. Relative paths begin at its root."""

    def __init__(self, fs: _meantime.FileSystem) -> None:
        self._fs = fs
        self._files: weakref.WeakSet[File] = weakref.WeakSet()

    @property
    def uri(self) -> str:
        """The device."""
        return self._fs.uri

    @property
    def read_only(self) -> bool:
        return not self._fs.writable

    @property
    def closed(self) -> bool:
        return self._fs.closed

    def open(self, path: Path, mode: str = "rb") -> File:
        """Open a file: ``rb``, ``r+b``, ``wb``, ``w+b``, ``ab``, ``a+b``, ``xb``, ``x+b``.

        The file is raw: each read is a call of the library. New files have mode 644.
        """
        kind = "".join(sorted(mode.replace("b", "")))
        if "b" not in mode or kind.strip("+") not in ("r", "w", "a", "x") or kind.count("+") > 1:
            raise ValueError(
                f"mode {mode!r}: files are binary (e.g. 'rb', 'wb', 'r+b'); for text, wrap one: "
                "io.TextIOWrapper(io.BufferedReader(file))"
            )
        name = os.fsdecode(path)
        file = File(self, self._fs.open(name, mode), name, mode)
        self._files.add(file)
        return file

    def listdir(self, path: Path = "/") -> list[str]:
        return [name for name, _, _ in self._fs.names(os.fsdecode(path))]

    def scandir(self, path: Path = "/") -> Listing:
        directory = os.fsdecode(path)
        names = self._fs.names(directory)
        return Listing(DirEntry(self, directory, *name) for name in names)

    def walk(
        self,
        top: Path = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As `os.walk`."""
        directory = os.fsdecode(top)
        try:
            entries = list(self.scandir(directory))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        inside = {entry.name: not entry.is_symlink() for entry in entries if entry.is_dir()}
        directories, files = list(inside), [e.name for e in entries if e.name not in inside]
        if topdown:
            yield directory, directories, files
        for name in directories:
            if followlinks or inside.get(name, True):
                yield from self.walk(
                    posixpath.join(directory, name), topdown, onerror, followlinks
                )
        if not topdown:
            yield directory, directories, files

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        return _stat(self._fs.stat(os.fsdecode(path), follow_symlinks))

    def lstat(self, path: Path) -> os.stat_result:
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        return self._mode_of(path) != 0

    def isdir(self, path: Path) -> bool:
        return _mode.S_ISDIR(self._mode_of(path))

    def isfile(self, path: Path) -> bool:
        return _mode.S_ISREG(self._mode_of(path))

    def readlink(self, path: Path) -> str:
        return self._fs.readlink(os.fsdecode(path))

    def mkdir(self, path: Path, mode: int = 0o755) -> None:
        self._fs.mkdir(os.fsdecode(path), mode)

    def makedirs(self, path: Path, mode: int = 0o755, exist_ok: bool = False) -> None:
        name = os.fsdecode(path)
        parent = posixpath.dirname(name.rstrip("/"))
        if parent.strip("/") and not self.exists(parent):
            self.makedirs(parent, mode, exist_ok=True)
        try:
            self.mkdir(name, mode)
        except Exists:
            if not exist_ok or not self.isdir(name):
                raise

    def unlink(self, path: Path) -> None:
        self._fs.unlink(os.fsdecode(path))

    def rmdir(self, path: Path) -> None:
        self._fs.rmdir(os.fsdecode(path))

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a target that is there is replaced, at once."""
        self._fs.rename(os.fsdecode(source), os.fsdecode(target))

    def symlink(self, target: Path, path: Path) -> None:
        self._fs.symlink(os.fsdecode(target), os.fsdecode(path))

    def usage(self) -> Usage:
        """Room in the file system."""
        return Usage(*self._fs.usage())

    def sync(self) -> None:
        """Make all changes durable."""
        self._fs.sync()

    def close(self) -> None:
        """Close the files and unmount: everything is written when it returns."""
        for file in list(self._files):
            file.close()
        self._fs.close()

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<meantime.ext4.FileSystem on {self.uri!r}{', closed' if self.closed else ''}>"

    def _mode_of(self, path: Path) -> int:
        """Type and permissions; 0 if there is no such file, as `os.path` has it."""
        try:
            return self.stat(path).st_mode
        except OSError as error:
            if error.errno in _NOT_THERE:
                return 0
            raise
