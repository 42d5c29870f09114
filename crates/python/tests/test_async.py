"""Requests in an asyncio event loop."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

import meantime

BLOCK = 4096
BLOCKS = 1000


@pytest.fixture(scope="module")
def data() -> bytes:
    return os.urandom(BLOCK * BLOCKS)


@pytest.fixture(params=["mem:8M", "mem:8M?model=optane", "file"])
def device(request: pytest.FixtureRequest, data: bytes, tmp_path: Path):
    uri = request.param
    if uri == "file":
        uri = f"file:{tmp_path}/disk.img?create=8M"
    with meantime.open(uri) as device:
        device.write(data, 0)
        yield device


@pytest.mark.parametrize("policy", [None, "poll", "interrupt"])
def test_a_thousand_reads_in_flight(device, data, policy):
    async def main():
        async with device.async_channel(policy=policy) as channel:
            order = random.Random(2).sample(range(BLOCKS), BLOCKS)
            tasks = [asyncio.ensure_future(channel.read(at * BLOCK, BLOCK)) for at in order]
            await asyncio.sleep(0)
            assert channel.in_flight == BLOCKS
            for at, read in zip(order, await asyncio.gather(*tasks)):
                assert read == data[at * BLOCK : (at + 1) * BLOCK]
            assert channel.in_flight == 0

    asyncio.run(main())


def test_all_operations(device):
    async def main():
        async with device.async_channel(depth=4) as channel:
            assert await channel.write(b"w" * 8192, 0) == 8192
            await channel.flush()
            into = bytearray(8192)
            assert await channel.read_into(into, 0) == 8192 and into == b"w" * 8192
            await channel.discard(0, 4096)
            assert await channel.read(0, 8192) == bytes(4096) + b"w" * 4096
            with pytest.raises(meantime.AlignmentError):
                await channel.read(1, 512)
            with pytest.raises(meantime.Error, match="beyond"):
                await channel.read(1 << 40, 512)
        assert channel.closed
        with pytest.raises(ValueError, match="closed"):
            await channel.flush()

    asyncio.run(main())


def slow_device() -> meantime.Device:
    return meantime.open("mem:1M?faults=" + str(Path(__file__).parent / "slow.toml"))


def test_the_loop_goes_on_and_reads_overlap():
    async def main():
        with slow_device() as device:
            async with device.async_channel() as channel:
                turns = 0

                async def turn():
                    nonlocal turns
                    while True:
                        await asyncio.sleep(0.01)
                        turns += 1

                turning = asyncio.ensure_future(turn())
                began = time.monotonic()
                await asyncio.gather(*(channel.read(n * 512, 512) for n in range(50)))
                took = time.monotonic() - began
                turning.cancel()
                assert 0.25 < took < 3 and turns > 10

    asyncio.run(main())


def test_cancelled_reads_do_no_harm():
    async def main():
        with slow_device() as device:
            async with device.async_channel() as channel:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(channel.read(0, 512), 0.05)
                await channel.write(b"n" * 512, 0)
                assert await channel.read(0, 512) == b"n" * 512
                buffer = bytearray(b"mine" * 128)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(channel.read_into(buffer, 0), 0.05)
                await channel.read(0, 512)
                assert buffer == b"mine" * 128

    asyncio.run(main())


def test_closing_with_reads_in_flight():
    async def main():
        device = slow_device()
        channel = device.async_channel()
        reads = [asyncio.ensure_future(channel.read(n * 512, 512)) for n in range(5)]
        await asyncio.sleep(0.05)
        device.close()
        # The device ends what it has.
        assert await asyncio.wait_for(asyncio.gather(*reads), 5) == [bytes(512)] * 5
        await asyncio.sleep(0.01)
        assert channel.closed

        with slow_device() as device:
            channel = device.async_channel()
            read = asyncio.ensure_future(channel.read(0, 512))
            await asyncio.sleep(0.05)
            channel.close()
            with pytest.raises(meantime.Error, match="closed"):
                await asyncio.wait_for(read, 5)

    asyncio.run(main())


def test_errors_of_the_device(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[[fault]]\nfault = "status"\nstatus = "unrecovered-read-error"\ndnr = true\n'
        'opcode = "read"\nlba = "8-8"\n'
    )

    async def main():
        with meantime.open(f"mem:1M?faults={plan}") as device:
            with pytest.raises(meantime.Error, match="read at LBA 8"):
                device.read(8 * 512, 512)
            assert device.read(7 * 512, 512) == bytes(512)
            channel = device.channel()
            with pytest.raises(meantime.Error, match="read at LBA 8"):
                channel.wait(channel.submit_read(8 * 512, 512))
            async with device.async_channel() as channel:
                good, bad = await asyncio.gather(
                    channel.read(0, 512), channel.read(8 * 512, 512), return_exceptions=True
                )
                assert good == bytes(512)
                assert isinstance(bad, meantime.Error) and "read at LBA 8" in str(bad)

    asyncio.run(main())


def test_one_loop(device):
    channel = device.async_channel()
    asyncio.run(channel.flush())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(channel.flush())
