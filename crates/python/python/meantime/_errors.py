"""Exceptions. Each is an OSError, with an errno and the library's whole message."""

from __future__ import annotations

import errno as _errno


class Error(OSError):
    """An error of a device, a file system, or the way to it."""


class AlignmentError(Error, ValueError):
    """An offset or a length is no multiple of the device's block size."""


class NotFound(Error, FileNotFoundError):
    """There is no such file (ENOENT)."""


class Exists(Error, FileExistsError):
    """It exists already (EEXIST)."""


class NotADirectory(Error, NotADirectoryError):
    """A part of the path is no directory (ENOTDIR)."""


class IsADirectory(Error, IsADirectoryError):
    """A directory where a file is needed (EISDIR)."""


class NotPermitted(Error, PermissionError):
    """It is not permitted (EPERM, EACCES)."""


class TimedOut(Error, TimeoutError):
    """The device did not answer in time (ETIMEDOUT)."""


class Full(Error, BlockingIOError):
    """There is no room for another request: wait for one (EAGAIN)."""


class Refused(Error, ConnectionRefusedError):
    """Nobody listens at the target's address (ECONNREFUSED)."""


_KINDS: dict[int, type[Error]] = {
    _errno.ENOENT: NotFound,
    _errno.EEXIST: Exists,
    _errno.ENOTDIR: NotADirectory,
    _errno.EISDIR: IsADirectory,
    _errno.EPERM: NotPermitted,
    _errno.EACCES: NotPermitted,
    _errno.ETIMEDOUT: TimedOut,
    _errno.EAGAIN: Full,
    _errno.ECONNREFUSED: Refused,
}


def error(errno: int, text: str, path: str | None = None) -> Error:
    """The exception for `errno`; the extension module calls it."""
    kind = _KINDS.get(errno, Error)
    return kind(errno, text) if path is None else kind(errno, text, path)
