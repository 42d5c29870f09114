"""Devices and channels."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import meantime

MIB = 1 << 20


@pytest.fixture(params=["mem:16M", "file"])
def device(request: pytest.FixtureRequest, tmp_path: Path):
    uri = request.param
    if uri == "file":
        uri = f"file:{tmp_path}/disk.img?create=16M"
    with meantime.open(uri) as device:
        yield device


def test_round_trip_of_all_kinds(device):
    data = os.urandom(3 * MIB + 512)
    assert device.size == 16 * MIB and device.block_size == 512
    assert device.write(data, 4096) == len(data)
    device.flush()
    assert device.read(4096, len(data)) == data
    assert device.read(0, 4096) == bytes(4096)
    into = bytearray(len(data))
    assert device.read_into(into, 4096) == len(data)
    assert into == data
    array = numpy.zeros((16, 1024), dtype=numpy.float64)
    assert device.read_into(array, 4096) == array.nbytes
    assert array.tobytes() == data[: array.nbytes]
    device.write(numpy.arange(512, dtype=numpy.uint16), 0)
    assert device.read(0, 512)[:4] == b"\0\0\1\0"
    assert device.read(4096, 0) == b""


def test_discard(device):
    device.write(b"x" * 8192, 0)
    device.discard(0, 4096)
    assert device.read(0, 8192) == bytes(4096) + b"x" * 4096


def test_a_file_keeps_what_was_written(tmp_path):
    with meantime.open(f"file:{tmp_path}/disk.img?create=1M") as device:
        device.write(b"abcd" * 128, 512)
        device.flush()
    assert (tmp_path / "disk.img").read_bytes()[512:1024] == b"abcd" * 128


def test_misalignment_is_named(device):
    for call in [
        lambda: device.read(100, 512),
        lambda: device.read(0, 100),
        lambda: device.write(b"abc", 0),
        lambda: device.read_into(bytearray(511), 0),
        lambda: device.discard(1, 512),
        lambda: device.channel().submit_read(7, 512),
    ]:
        with pytest.raises(meantime.AlignmentError, match="no multiple of 512") as raised:
            call()
        assert raised.value.errno == errno.EINVAL
        assert isinstance(raised.value, (meantime.Error, OSError, ValueError))


def test_beyond_the_end(device):
    for call in [
        lambda: device.read(16 * MIB, 512),
        lambda: device.read(0, 1 << 50),
        lambda: device.write(bytes(1024), 16 * MIB - 512),
    ]:
        with pytest.raises(meantime.Error, match="reach beyond the 16777216 bytes"):
            call()
    with pytest.raises(OverflowError):
        device.read(-512, 512)


def test_wrong_buffers(device):
    with pytest.raises(TypeError, match="bytes-like"):
        device.write("text", 0)
    with pytest.raises(TypeError, match="read only"):
        device.read_into(bytes(512), 0)
    with pytest.raises(BufferError, match="not contiguous"):
        device.read_into(memoryview(bytearray(1024))[::2], 0)


def test_messages_of_the_library_are_whole():
    with pytest.raises(meantime.Error, match="unknown|scheme|no device|e.g."):
        meantime.open("nonsense:1")
    with pytest.raises(meantime.Error) as raised:
        meantime.open("file:/not/there.img")
    assert raised.value.errno == errno.ENOENT
    assert isinstance(raised.value, FileNotFoundError)
    assert "/not/there.img" in str(raised.value)
    with pytest.raises(ValueError, match="adaptive"):
        meantime.open("mem:1M", policy="best")


def test_read_only(tmp_path):
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(MIB))
    with meantime.open(f"file:{path}", read_only=True) as first:
        # Readers share a file.
        with meantime.open(f"file:{path}", read_only=True) as second:
            assert second.read(0, 512) == first.read(0, 512) == bytes(512)
        for call in [
            lambda: first.write(bytes(512), 0),
            lambda: first.discard(0, 512),
            lambda: first.channel().submit_write(bytes(512), 0),
        ]:
            with pytest.raises(meantime.Error, match="read_only=True") as raised:
                call()
            assert raised.value.errno == errno.EROFS


def test_closing_ends_channels(device):
    channel = device.channel()
    ticket = channel.submit_read(0, 512)
    device.close()
    device.close()
    assert device.closed and channel.closed
    for call in [
        lambda: device.read(0, 512),
        lambda: device.__enter__(),
        lambda: channel.wait(ticket),
        lambda: channel.submit_read(0, 512),
    ]:
        with pytest.raises(ValueError, match="closed"):
            call()


@pytest.mark.parametrize("policy", ["poll", "interrupt", "adaptive", "hybrid=2us"])
def test_policies(policy):
    with meantime.open("mem:1M?model=optane", policy=policy) as device:
        assert device.policy == policy
        device.write(b"y" * 4096, 0)
        channel = device.channel()
        assert channel.policy == policy
        assert channel.wait(channel.submit_read(0, 4096)) == b"y" * 4096


def test_adaptive_where_nothing_is_said():
    with meantime.open("mem:1M") as device:
        assert device.policy == "adaptive"
        assert device.channel().policy == "adaptive"


def test_tickets(device):
    with device.channel(depth=8) as channel:
        writes = [channel.submit_write(bytes([n]) * 4096, n * 4096) for n in range(8)]
        assert len(set(writes)) == 8
        with pytest.raises(BlockingIOError, match="all 8 requests"):
            channel.submit_flush()
        # In any order, each once.
        for ticket in reversed(writes):
            assert channel.wait(ticket) == 4096
        with pytest.raises(ValueError, match="not good"):
            channel.wait(writes[0])
        assert channel.wait(channel.submit_flush()) is None

        into = bytearray(4096)
        reads = {channel.submit_read(n * 4096, 4096): n for n in range(7)}
        reads[channel.submit_read(7 * 4096, into)] = 7
        with pytest.raises(BufferError):
            into.extend(b"resized while in flight")
        seen = []
        while (ticket := channel.wait_any()) is not None:
            number = reads[ticket]
            result = channel.wait(ticket)
            assert result == (4096 if number == 7 else bytes([number]) * 4096)
            seen.append(number)
        assert sorted(seen) == list(range(8)) and into == b"\7" * 4096
        into.extend(b"free again")

        ticket = channel.submit_discard(0, 4096)
        deadline = time.monotonic() + 10
        while not (ended := channel.poll()):
            assert time.monotonic() < deadline
        assert ended == [ticket] and channel.wait(ticket) is None
        assert channel.poll() == [] and channel.wait_any(0.01) is None
    with pytest.raises(ValueError, match="closed"):
        channel.submit_flush()


def slow_device():
    """Each read takes 300 ms."""
    return meantime.open("mem:1M?faults=" + str(Path(__file__).parent / "slow.toml"))


def test_the_interpreter_goes_on_during_a_wait():
    with slow_device() as device:
        count, stop = 0, threading.Event()

        def work():
            nonlocal count
            while not stop.is_set():
                count += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for wait in (
                lambda: device.read(0, 512),
                lambda: (channel := device.channel()).wait(channel.submit_read(0, 512)),
                lambda: (channel := device.channel()).submit_read(0, 512) and channel.wait_any(),
            ):
                before, began = count, time.monotonic()
                wait()
                assert time.monotonic() - began > 0.2
                # Were the interpreter held, there would be none.
                assert count - before > 10_000
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("policy", ["poll", "interrupt", "adaptive"])
def test_any_request_within_a_time(policy):
    with slow_device() as device, device.channel(policy=policy) as channel:
        read, began = channel.submit_read(0, 512), time.monotonic()
        assert channel.wait_any(0) is None and channel.wait_any(0.05) is None
        assert time.monotonic() - began < 0.25
        # A look alone finds it, too.
        while (ended := channel.wait_any(0)) is None:
            assert time.monotonic() - began < 10
        assert ended == read and channel.wait(read) == bytes(512)


def test_what_ended_beside_another_is_not_forgotten(device):
    with device.channel() as channel:
        reads = [channel.submit_read(n * 512, 512) for n in range(8)]
        channel.wait(reads[-1])
        ended = set()
        while (ticket := channel.wait_any()) is not None:
            channel.wait(ticket)
            ended.add(ticket)
        assert ended == set(reads[:-1])


def test_a_channel_is_for_one_thread_at_a_time():
    with slow_device() as device, device.channel() as channel:
        ticket = channel.submit_read(0, 512)
        began = threading.Event()
        results = []

        def first():
            began.set()
            results.append(channel.wait(ticket))

        thread = threading.Thread(target=first)
        thread.start()
        began.wait()
        time.sleep(0.1)
        for call in (channel.submit_flush, channel.poll, lambda: channel.wait(ticket)):
            with pytest.raises(RuntimeError, match="another thread uses this channel"):
                call()
        thread.join()
        assert results == [bytes(512)]
        # One after another is right.
        assert channel.wait(channel.submit_flush()) is None


def test_a_device_is_for_all_threads(device):
    def work(number):
        for turn in range(20):
            at = (number * 20 + turn) * 4096
            data = bytes([number * 20 + turn & 255]) * 4096
            device.write(data, at)
            if device.read(at, 4096) != data:
                wrong.append(at)

    wrong: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_while_a_thread_waits():
    device = slow_device()
    channel = device.channel()
    results = []
    ticket = channel.submit_read(0, 512)
    threads = [
        threading.Thread(target=lambda: results.append(channel.wait(ticket))),
        threading.Thread(target=lambda: results.append(device.read(0, 512))),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    device.close()
    for thread in threads:
        thread.join()
    assert results == [bytes(512)] * 2
    with pytest.raises(ValueError, match="closed"):
        channel.submit_flush()


def script(text: str, *, returncode: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == returncode, done.stderr
    return done.stdout + done.stderr


def test_ctrl_c_ends_a_wait():
    path = Path(__file__).parent / "stuck.toml"
    printed = script(f"""
import meantime, os, signal, threading, time
with meantime.open("mem:1M?faults={path}") as device:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        device.read(0, 512)
    except KeyboardInterrupt:
        print("interrupted" if time.monotonic() - began < 3 else "late")
    # What is still in flight does no harm to the next.
    device.write(b"z" * 512, 512)
    print(device.read(512, 512) == b"z" * 512)
""")
    assert printed == "interrupted\nTrue\n"


def test_a_forked_child_is_refused():
    printed = script("""
import os, meantime
device = meantime.open("mem:1M")
channel = device.channel()
ticket = channel.submit_read(0, 512)
asynchronous = device.async_channel()
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        for call in (lambda: device.read(0, 512), lambda: channel.wait(ticket),
                     lambda: asynchronous._reactor.flush()):
            try:
                call()
                os._exit(1)
            except RuntimeError as error:
                assert "forked child" in str(error), error
        # Its own is its own.
        with meantime.open("mem:1M") as own:
            own.write(b"c" * 512, 0)
            assert own.read(0, 512) == b"c" * 512
        device.close()
        del device, channel, asynchronous
        raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert channel.wait(ticket) == bytes(512)
device.write(b"p" * 512, 0)
print(device.read(0, 512) == b"p" * 512)
""")
    assert printed == "True\n"


def test_the_interpreter_ends_with_io_in_flight():
    slow = Path(__file__).parent / "slow.toml"
    # Nothing is closed, and threads are in waits.
    assert script(f"""
import threading, time, asyncio, meantime
device = meantime.open("mem:1M?faults={slow}")
channel = device.channel()
for n in range(20):
    channel.submit_read(n * 512, bytearray(512))
threading.Thread(target=lambda: device.read(0, 512), daemon=True).start()
asynchronous = device.async_channel()
async def main():
    for n in range(20):
        asyncio.ensure_future(asynchronous.read(n * 512, 512))
    await asyncio.sleep(0.05)
asyncio.run(main())
print("end")
""") == "end\n"


def test_nothing_is_printed(capfd):
    with meantime.open("mem:1M") as device:
        device.read(0, 512)
        channel = device.channel()
        channel.submit_read(0, 512)
        del channel
    with pytest.raises(meantime.Error):
        meantime.open("file:/not/there")
    assert capfd.readouterr() == ("", "")


def test_representations_and_no_pickles(device):
    import pickle

    assert "16777216 bytes" in repr(device)
    assert "depth 32" in repr(device.channel())
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(device)
