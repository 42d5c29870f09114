"""Checked by mypy --strict, and not run: what the stubs say of each class."""

import asyncio
import io

import meantime
from meantime import ext4


def devices() -> int:
    with meantime.open("mem:1M", policy="poll", read_only=False) as device:
        data: bytes = device.read(0, 512)
        read: int = device.read_into(bytearray(512), 0) + device.write(memoryview(data), 0)
        channel: meantime.Channel = device.channel(policy="adaptive", depth=8)
        tickets = [channel.submit_read(0, 512), channel.submit_read(0, bytearray(512))]
        tickets += channel.poll()
        ticket: meantime.Ticket | None = channel.wait_any(timeout=1.0)
        return read + len(tickets) + (0 if ticket is None else len(channel.wait(ticket)))


async def asynchronous(device: meantime.Device) -> bytes:
    async with device.async_channel(depth=16) as channel:
        await channel.flush()
        return b"".join(await asyncio.gather(*(channel.read(n * 512, 512) for n in range(9))))


def files() -> str:
    try:
        with ext4.mount("file:disk.img") as fs, fs.open("/a") as file:
            names: list[str] = [entry.name for entry in fs.scandir("/") if entry.is_file()]
            text: str = io.TextIOWrapper(io.BufferedReader(file)).read()
            return text + names[0] + str(fs.stat("/a").st_size)
    except meantime.Error as error:
        number: int | None = error.errno
        return str(number)
