"""Meantime: user-space I/O for NVMe SSDs.

`open` gives a block device, `Device.channel` several requests in flight, `Device.async_channel`
the same for asyncio, and `meantime.ext4.mount` the files of an ext4 file system. `meantime.fsspec`
lets pandas, pyarrow and DuckDB read such files. `bench` and `results` give measurements as a
DataFrame.
"""

from __future__ import annotations

import atexit as _atexit
import weakref as _weakref
from typing import Protocol as _Protocol

from . import _meantime
from ._async import AsyncChannel
from ._bench import bench, results
from ._errors import AlignmentError, Error
from ._meantime import Channel, Device, Ticket

__all__ = [
    "AlignmentError",
    "AsyncChannel",
    "Channel",
    "Device",
    "Error",
    "Ticket",
    "bench",
    "open",
    "results",
]
__version__: str = _meantime.VERSION


class _Closable(_Protocol):
    def close(self) -> None: ...


_devices: _weakref.WeakSet[_Closable] = _weakref.WeakSet()


def open(uri: str, *, policy: str | None = None, read_only: bool = False) -> Device:
    """Open the block device `uri`, e.g. ``mem:64M``, ``file:disk.img``, ``vfio:0000:01:00.0``.

    `policy` is how to wait for completions: ``interrupt``, ``poll``, ``adaptive`` (the
    default) and others. With `read_only` nothing is opened for writing, and
    other readers share a file. Close the device at the end, or use it in a ``with`` statement.
    """
    device = Device(uri, policy=policy, read_only=read_only)
    _devices.add(device)
    return device


def _close_all() -> None:
    """At the interpreter's end: what is in flight ends first, and a PCIe SSD is given back."""
    for device in list(_devices):
        device.close()


_atexit.register(_close_all)
