"""Requests of a device in an asyncio event loop."""

from __future__ import annotations

import asyncio
import errno
import os
from types import TracebackType
from typing import Any

from . import _meantime
from ._errors import Error


class AsyncChannel:
    """A channel whose requests are awaited; `Device.async_channel` makes one.

    A thread of its own has the queue and waits by the channel's policy. Any number of requests may
    be under way: those beyond the depth wait in order. The channel belongs to the event loop in
    which it is first used.
    """

    def __init__(self, device: _meantime.Device, policy: str | None, depth: int) -> None:
        self._reactor = device._reactor(policy, depth)
        self._fd = self._reactor.fileno()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._closed = False
        self._pid = os.getpid()

    @property
    def policy(self) -> str:
        """How the thread waits."""
        return self._reactor.policy

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._futures)

    @property
    def closed(self) -> bool:
        return self._closed

    async def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes from byte `offset` on; both are multiples of the block size."""
        loop = self._bind()
        data: bytes = await self._future(loop, self._reactor.read(offset, length))
        return data

    async def read_into(self, buffer: Any, offset: int) -> int:
        """Fill `buffer` from byte `offset` on. It must not be resized meanwhile."""
        loop = self._bind()
        read: int = await self._future(loop, self._reactor.read(offset, buffer))
        return read

    async def write(self, data: Any, offset: int) -> int:
        """Write `data` from byte `offset` on. They are copied before this waits."""
        loop = self._bind()
        written: int = await self._future(loop, self._reactor.write(data, offset))
        return written

    async def flush(self) -> None:
        """Make all writes durable that have ended."""
        loop = self._bind()
        await self._future(loop, self._reactor.flush())

    async def discard(self, offset: int, length: int) -> None:
        """Tell the device that these bytes are no longer needed."""
        loop = self._bind()
        await self._future(loop, self._reactor.discard(offset, length))

    async def aclose(self) -> None:
        """Wait for what is in flight, and close."""
        try:
            if self._futures:
                await asyncio.wait(list(self._futures.values()))
        finally:
            self.close()

    def close(self) -> None:
        """Close. What is in flight ends in the device; who waits for it gets an `Error`."""
        # A forked child shares the event loop's epoll instance with its parent.
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._reactor.close()
        self._fail("the channel was closed")

    async def __aenter__(self) -> AsyncChannel:
        self._bind()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.in_flight} in flight"
        return f"<meantime.AsyncChannel, {state}>"

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return loop
        if self._loop is not None:
            raise RuntimeError("this channel belongs to another event loop: make one for each")
        if self._closed:
            raise ValueError("I/O operation on a closed channel")
        loop.add_reader(self._fd, self._drain)
        self._loop = loop
        return loop

    def _future(self, loop: asyncio.AbstractEventLoop, number: int) -> asyncio.Future[Any]:
        future = self._futures[number] = loop.create_future()

        def ended(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                self._reactor.forget(number)

        # Called before who has cancelled it goes on.
        future.add_done_callback(ended)
        return future

    def _drain(self) -> None:
        # Asked before the results are taken: none comes after it.
        is_over = self._reactor.is_over
        for number, value, error in self._reactor.drain():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if is_over:
            # Its device was closed.
            self.close()

    def _fail(self, text: str) -> None:
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done() and not future.get_loop().is_closed():
                future.set_exception(Error(errno.ECANCELED, text))
