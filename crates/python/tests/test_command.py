"""What needs the command: targets on the network, measurements; and the stubs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run

import meantime
from meantime import ext4

HERE = Path(__file__).parent


@pytest.fixture
def target(command: str, image: Path):
    """An NVMe/TCP target that serves the image."""
    line = [command, "ssd", "--tcp", "127.0.0.1:0", f"file:{image}"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as ssd:
        try:
            assert ssd.stdout is not None
            said = ssd.stdout.readline()
            found = re.search(r"served at (\S+) as (\S+)", said)
            assert found, said
            yield f"nvme+tcp://{found[1]}/{found[2]}"
        finally:
            ssd.terminate()


def test_over_tcp(target: str, tree: Path, image: Path):
    with meantime.open(f"{target}?overwrite=1") as device:
        at = device.size - (1 << 20)
        data = os.urandom(700_000 // 512 * 512)
        device.write(data, at)
        device.flush()
        assert device.read(at, len(data)) == data

        async def main():
            async with device.async_channel() as channel:
                reads = [channel.read(at + n * 512, 512) for n in range(1000)]
                assert b"".join(await asyncio.gather(*reads)) == data[: 1000 * 512]

        asyncio.run(main())
    with ext4.mount(target) as fs:
        assert fs.open("/big").read() == (tree / "big").read_bytes()


def test_bench(command: str, tmp_path: Path):
    frame = meantime.bench(
        command=command,
        device="mem:16M",
        completion="poll,interrupt",
        rw="randrw",
        number_ios=2000,
    )
    assert list(zip(frame["completion"], frame["operation"])) == [
        ("poll", "read"), ("poll", "write"), ("interrupt", "read"), ("interrupt", "write"),
    ]
    assert (frame["ios"] > 0).all()
    assert frame.groupby("completion")["ios"].sum().tolist() == [2000, 2000]
    assert (frame["p50_us"] <= frame["p99_us"]).all() and (frame["errors"] == 0).all()

    path = tmp_path / "run.json"
    job = ["--device", "mem:16M", "--rw", "randread", "--number-ios", "500"]
    run(command, "bench", *job, "--completion", "poll", "--json", path)
    again = meantime.results(path)
    assert again["ios"].tolist() == [500] and again.columns.tolist() == frame.columns.tolist()

    with pytest.raises(meantime.Error, match="nonsense"):
        meantime.bench(command=command, device="nonsense:1", rw="read")
    with pytest.raises(FileNotFoundError, match="no such command"):
        meantime.bench(command="/not/there", rw="read")


def test_types_of_the_example():
    run(sys.executable, "-m", "mypy", "--config-file", HERE.parent / "pyproject.toml", "--strict",
        HERE.parent / "examples" / "parquet.py", HERE / "typed.py")
    package = Path(meantime.__file__).parent
    assert (package / "py.typed").exists()


def test_the_stubs_say_what_is_there():
    run(sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", HERE.parent / "pyproject.toml",
        "meantime._meantime")
