"""The examples of the documents run as they stand, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meantime import ext4

ROOT = Path(__file__).parents[3]


def blocks(page: str) -> list[str]:
    found: list[str] = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    return found


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_examples_run(page: str, command: str, tmp_path: Path):
    # What the pages have made before.
    example = ROOT / "crates/python/examples/parquet.py"
    subprocess.run([sys.executable, example], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    with ext4.mount(f"file:{tmp_path}/disk.img", read_only=False) as fs:
        fs.open("/my.db", "wb").write(b"SQLite format 3")
    path = f"{Path(command).parent}:{os.environ['PATH']}"
    seen = ""
    for block in blocks(page):
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        seen += done.stdout
    for said in {
        "docs/python.md": ["Every I/O opens a gap.", "adaptive", "Oslo"],
        "README.md": ["SQLite format 3"],
    }[page]:
        assert said in seen
