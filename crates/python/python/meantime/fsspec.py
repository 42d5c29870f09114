"""Files in ext4 for fsspec, and so for pandas, pyarrow, DuckDB, dask, zarr.

A URL is ``meantime://`` and a place as the command writes it, DEVICE:/PATH; or a path alone, with
the device in `storage_options`::

    pandas.read_parquet("meantime://file:disk.img:/dir/x.parquet")
    pandas.read_parquet("meantime:///dir/x.parquet", storage_options={"uri": "file:disk.img"})

It only reads. Instances are shared by their arguments, as fsspec does it; a process that was
forked mounts again.
"""

from __future__ import annotations

import os
import re
import stat as _mode
from typing import Any, ClassVar

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import ext4

__all__ = ["MeantimeFileSystem", "split_location"]

_SCHEME = re.compile(r"(?:mem|file|vfio|vfio-user|kernel):|nvme\+tcp://")
_PROTOCOL = "meantime://"


def split_location(place: str) -> tuple[str | None, str]:
    """The device and the path of DEVICE:/PATH. None if it is a path alone.

    The path begins with the first ``:/`` after the scheme, or, if the device is a file whose name
    has a ``:/``, with the one that follows the name of an existing file.
    """
    scheme = _SCHEME.match(place)
    if scheme is None:
        return None, place
    ends = [at.start() for at in re.finditer(":/", place) if at.start() >= scheme.end()]
    if not ends:
        return place, "/"
    end = ends[0]
    if len(ends) > 1 and not scheme[0].startswith("nvme"):
        names = ((at, place[scheme.end() : at].partition("?")[0]) for at in ends)
        end = next((at for at, name in names if os.path.exists(name)), end)
    return place[:end], place[end + 1 :]


def _place(url: str) -> tuple[str | None, str]:
    """The same for a URL; the path is absolute and has no slash at its end."""
    device, path = split_location(url.removeprefix(_PROTOCOL))
    return device, "/" + path.strip("/")


class MeantimeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """An ext4 file system on a device of Meantime, read only."""

    protocol: ClassVar[str] = "meantime"
    root_marker: ClassVar[str] = "/"

    def __init__(
        self,
        uri: str | None = None,
        policy: str | None = None,
        cache_bytes: int | None = None,
        **options: Any,
    ) -> None:
        if self._cached:
            return
        super().__init__(uri=uri, policy=policy, cache_bytes=cache_bytes, **options)
        if uri is None:
            raise ValueError(
                "no device: write meantime://DEVICE:/PATH, e.g. meantime://file:disk.img:/a, or "
                "give storage_options={'uri': 'file:disk.img'}"
            )
        self.uri = uri
        # The class knows no device: an instance refuses the URLs of others.
        self._strip_protocol = self._strip_own  # type: ignore[method-assign]
        self.mount = ext4.mount(uri, policy=policy, cache_bytes=cache_bytes)

    @classmethod
    def _get_kwargs_from_urls(cls, url: str) -> dict[str, str]:
        device, _ = _place(url)
        return {} if device is None else {"uri": device}

    @classmethod
    def _strip_protocol(cls, path: str | list[str]) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return _place(os.fspath(path))[1]

    def _strip_own(self, path: str | list[str]) -> Any:
        if isinstance(path, list):
            return [self._strip_own(one) for one in path]
        return self._path(os.fspath(path))

    def unstrip_protocol(self, name: str) -> str:
        return f"{_PROTOCOL}{self.uri}:{self._path(name)}"

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        path = self._path(path)
        info = self.info(path)
        if info["type"] != "directory":
            infos = [info]
        else:
            with self.mount.scandir(path) as entries:
                infos = [self.info(entry.path) for entry in entries]
        return infos if detail else [info["name"] for info in infos]

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        path = self._path(path)
        found = self.mount.lstat(path)
        info: dict[str, Any] = {"islink": _mode.S_ISLNK(found.st_mode)}
        if info["islink"]:
            info["destination"] = self.mount.readlink(path)
            try:
                found = self.mount.stat(path)
            except OSError:
                # It leads nowhere.
                pass
        kinds = {_mode.S_IFDIR: "directory", _mode.S_IFREG: "file"}
        return info | {
            "name": path,
            "size": found.st_size,
            "type": kinds.get(_mode.S_IFMT(found.st_mode), "other"),
            "mode": found.st_mode,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mtime": found.st_mtime,
            "created": found.st_ctime,
        }

    def exists(self, path: str, **_options: Any) -> bool:
        return self.mount.exists(self._path(path))

    def isdir(self, path: str) -> bool:
        return self.mount.isdir(self._path(path))

    def isfile(self, path: str) -> bool:
        return self.mount.isfile(self._path(path))

    def modified(self, path: str) -> Any:
        import datetime

        time = self.mount.stat(self._path(path)).st_mtime
        return datetime.datetime.fromtimestamp(time, tz=datetime.timezone.utc)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: Any
    ) -> bytes:
        with self.mount.open(self._path(path)) as file:
            first, last, _ = slice(start, end).indices(file.size)
            return file.pread(max(last - first, 0), first)

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int],
        ends: int | list[int],
        max_gap: int | None = None,
        on_error: str = "return",
        **_options: Any,
    ) -> list[Any]:
        """All ranges: reads of all of them are started before the first is waited for."""
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends are of different lengths")
        files: dict[str, ext4.File | OSError] = {}
        results: list[Any] = []
        try:
            for path, start, end in zip(paths, starts, ends):
                if path not in files:
                    try:
                        files[path] = self.mount.open(self._path(path))
                    except OSError as error:
                        if on_error == "raise":
                            raise
                        files[path] = error
                file = files[path]
                if isinstance(file, ext4.File):
                    first, last, _ = slice(start, end).indices(file.size)
                    if first < last:
                        file.will_need(first, last - first)
            for path, start, end in zip(paths, starts, ends):
                file = files[path]
                if isinstance(file, OSError):
                    results.append(file)
                    continue
                first, last, _ = slice(start, end).indices(file.size)
                try:
                    results.append(file.pread(max(last - first, 0), first))
                except OSError as error:
                    if on_error == "raise":
                        raise
                    results.append(error)
        finally:
            for file in files.values():
                if isinstance(file, ext4.File):
                    file.close()
        return results

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> MeantimeFile:
        if mode != "rb":
            raise ValueError(
                f"mode {mode!r}: this only reads; write with meantime.ext4.mount(uri, "
                "read_only=False)"
            )
        return MeantimeFile(
            self,
            self._path(path),
            mode,
            # The mount has a page cache, and reads ahead. This one is for small reads.
            block_size=block_size or 128 << 10,
            cache_options=cache_options,
            **options,
        )

    def close(self) -> None:
        """Unmount, for all that have this instance; the next one mounts again."""
        self._cache.pop(self._fs_token, None)
        self.mount.close()

    def _path(self, path: str) -> str:
        """The path in this file system; refuses the URL of another device."""
        device, inside = _place(path)
        if device is not None and device != self.uri:
            raise ValueError(f"{path} is on another device than {self.uri}")
        return inside


class MeantimeFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file with fsspec's read cache."""

    def __init__(self, fs: MeantimeFileSystem, path: str, *arguments: Any, **options: Any) -> None:
        self._file = fs.mount.open(path)
        super().__init__(fs, path, *arguments, size=self._file.size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._file.pread(end - start, start)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()
