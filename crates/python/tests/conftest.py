"""What the tests share: images made by e2fsprogs, and the command."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

os.environ["PATH"] += ":/usr/sbin:/sbin"


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def command() -> str:
    """The command `meantime`."""
    found = shutil.which(os.environ.get("MEANTIME_COMMAND", "meantime"))
    assert found, "name the command in MEANTIME_COMMAND, or put it in PATH"
    return found


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of many kinds: empty, unaligned, large, with a hole, deep, with odd names, links."""
    root = tmp_path_factory.mktemp("tree")
    numbers = random.Random(1)
    sizes = {"empty": 0, "one": 1, "odd": 12_345, "page": 4096, "big": 9_000_001}
    for name, size in sizes.items():
        (root / name).write_bytes(numbers.randbytes(size))
    with (root / "hole").open("wb") as file:
        file.write(b"begin")
        file.seek(3_000_000)
        file.write(b"end")
    deep = root / "a" / "b" / "ć d"
    deep.mkdir(parents=True)
    (deep / "datei ü").write_bytes(b"deep")
    for number in range(300):
        (root / "a" / f"{number:03}").write_bytes(str(number).encode())
    (root / "link").symlink_to("a/b")
    (root / "nowhere").symlink_to("/not/there")
    return root


@pytest.fixture(scope="session")
def original(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "disk.img"
    run("mkfs.ext4", "-q", "-d", tree, path, "64M")
    return path


@pytest.fixture
def image(original: Path, tmp_path: Path) -> Path:
    """An image of one test's own."""
    return Path(shutil.copy(original, tmp_path / "disk.img"))
