"""pandas, pyarrow and DuckDB on Parquet in an image, by fsspec."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import duckdb
import fsspec
import numpy
import pandas
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import run

from meantime import ext4
from meantime.fsspec import MeantimeFileSystem, split_location

ROWS = 200_000


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    numbers = numpy.random.default_rng(3)
    return pandas.DataFrame(
        {
            "id": numpy.arange(ROWS),
            "value": numbers.normal(size=ROWS),
            "kind": numbers.choice(["red", "green", "blue"], ROWS),
        }
    )


@pytest.fixture(scope="module")
def disk(frame: pandas.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with a Parquet file, the same in parts, and a CSV."""
    root = tmp_path_factory.mktemp("tables")
    frame.to_parquet(root / "x.parquet", row_group_size=20_000)
    (root / "parts").mkdir()
    for number in range(4):
        part = frame.iloc[number * ROWS // 4 : (number + 1) * ROWS // 4]
        part.to_parquet(root / "parts" / f"{number}.parquet")
    frame.head(1000).to_csv(root / "x.csv", index=False)
    path = tmp_path_factory.mktemp("disks") / "disk.img"
    run("mkfs.ext4", "-q", "-d", root, path, "64M")
    return path


def test_pandas(disk: Path, frame: pandas.DataFrame):
    read = pandas.read_parquet(f"meantime://file:{disk}:/x.parquet")
    pandas.testing.assert_frame_equal(read, frame)
    options = {"uri": f"file:{disk}"}
    read = pandas.read_parquet("meantime:///x.parquet", columns=["value"], storage_options=options)
    pandas.testing.assert_frame_equal(read, frame[["value"]])
    read = pandas.read_csv(f"meantime://file:{disk}:/x.csv")
    pandas.testing.assert_frame_equal(read, frame.head(1000))
    with ext4.mount(f"file:{disk}") as fs, fs.open("/x.parquet") as file:
        pandas.testing.assert_frame_equal(pandas.read_parquet(file), frame)


def test_pyarrow(disk: Path, frame: pandas.DataFrame):
    fs = fsspec.filesystem("meantime", uri=f"file:{disk}")
    assert isinstance(fs, MeantimeFileSystem)
    table = pyarrow.parquet.read_table("/x.parquet", filesystem=fs, columns=["id"])
    assert table["id"].to_pylist() == list(range(ROWS))
    dataset = pyarrow.dataset.dataset("/parts", filesystem=fs)
    assert len(dataset.files) == 4 and dataset.count_rows() == ROWS
    some = dataset.to_table(filter=pyarrow.dataset.field("id") > ROWS - 10)
    assert some.num_rows == 9
    # Without Python's layers but the file.
    with ext4.mount(f"file:{disk}") as mount:
        file = pyarrow.parquet.ParquetFile(mount.open("/x.parquet"))
        assert file.num_row_groups == 10
        assert file.read_row_group(3, ["id"])["id"][0].as_py() == 60_000


def test_duckdb(disk: Path, frame: pandas.DataFrame):
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem("meantime", uri=f"file:{disk}"))
    kinds = connection.sql(
        "select kind, count(*), sum(id) from 'meantime:///x.parquet' group by kind order by kind"
    ).fetchall()
    expected = frame.groupby("kind")["id"].agg(["count", "sum"])
    assert kinds == [(kind, row["count"], row["sum"]) for kind, row in expected.iterrows()]
    for place in (f"meantime://file:{disk}:/parts/*.parquet", "meantime:///parts/*.parquet"):
        assert connection.sql(f"select count(*) from '{place}'").fetchall() == [(ROWS,)]
    with pytest.raises(Exception, match="another device"):
        connection.sql("select * from 'meantime://file:other.img:/x.parquet'").fetchall()


def test_the_file_system(disk: Path):
    fs, path = fsspec.core.url_to_fs(f"meantime://file:{disk}?model=null:/parts/")
    assert path == "/parts" and fs.uri == f"file:{disk}?model=null"
    assert sorted(fs.ls("/", detail=False)) == ["/lost+found", "/parts", "/x.csv", "/x.parquet"]
    assert fs.ls("/x.csv")[0]["type"] == "file" and fs.isdir("/parts") and not fs.exists("/no")
    assert fs.glob("/parts/[12]*") == ["/parts/1.parquet", "/parts/2.parquet"]
    assert [len(files) for _, _, files in fs.walk("/parts")] == [4]
    assert fs.du("/parts") == sum(fs.size(name) for name in fs.find("/parts"))
    whole = fs.cat_file("/x.parquet")
    assert fs.cat_file("/x.parquet", 5, 10) == whole[5:10]
    assert fs.cat_file("/x.parquet", -8) == whole[-8:]
    assert fs.tail("/x.parquet", 4) == b"PAR1"
    ranges = [("/x.parquet", 0, 4), ("/x.parquet", 70_000, 900_000)]
    ranges += [("/x.csv", -3, None), ("/no", 0, 1)]
    got = fs.cat_ranges(*(list(column) for column in zip(*ranges)))
    assert got[:2] == [b"PAR1", whole[70_000:900_000]] and len(got[2]) == 3
    assert isinstance(got[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["/no"], 0, 1, on_error="raise")
    with pytest.raises(FileNotFoundError):
        fs.open("/no")
    with fs.open("/x.parquet") as file:
        file.seek(1_000_000)
        assert file.read(300_000) == whole[1_000_000:1_300_000]
        assert file.seek(0, os.SEEK_END) == len(whole) == file.size
    with pytest.raises(ValueError, match="only reads"):
        fs.open("/new", "wb")
    with pytest.raises(ValueError, match="another device"):
        fs.open("meantime://mem:1M:/x")
    with pytest.raises(ValueError, match="no device"):
        fsspec.filesystem("meantime")
    assert fs.unstrip_protocol("/x.csv") == f"meantime://file:{disk}?model=null:/x.csv"
    with fsspec.open(fs.unstrip_protocol("/x.csv"), "rt") as file:
        assert file.readline() == "id,value,kind\n"
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs
    fs.get("/x.csv", str(disk.parent / "x.csv"))
    assert (disk.parent / "x.csv").read_bytes() == fs.cat_file("/x.csv")
    fs.close()
    again = fsspec.filesystem("meantime", uri=fs.uri)
    assert again is not fs and again.exists("/x.csv")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As the command takes them apart (crates/cli/src/location.rs)."""
    for place, device, path in [
        ("file:disk.img:/etc/passwd", "file:disk.img", "/etc/passwd"),
        ("file:disk.img?model=zssd:/a", "file:disk.img?model=zssd", "/a"),
        ("file:/a/b.img:/", "file:/a/b.img", "/"),
        ("file:/a/b.img", "file:/a/b.img", "/"),
        ("file:a:b.img:/c:d", "file:a:b.img", "/c:d"),
        ("vfio:0000:01:00.0:/x", "vfio:0000:01:00.0", "/x"),
        ("kernel:/dev/nvme0n1?direct=0:/a b", "kernel:/dev/nvme0n1?direct=0", "/a b"),
        ("nvme+tcp://[::1]:4421/nqn.x:y?nsid=2:/z", "nvme+tcp://[::1]:4421/nqn.x:y?nsid=2", "/z"),
        ("file:disk.img:/a:/b", "file:disk.img", "/a:/b"),
        ("/dir/x.parquet", None, "/dir/x.parquet"),
        ("dir/x.parquet", None, "dir/x.parquet"),
    ]:
        assert split_location(place) == (device, path), place
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:").mkdir()
    (tmp_path / "a:" / "b.img").touch()
    assert split_location("file:a:/b.img:/c") == ("file:a:/b.img", "/c")


def test_another_process_mounts_again(disk: Path):
    import multiprocessing

    fs = fsspec.filesystem("meantime", uri=f"file:{disk}")
    for way in ("spawn", "fork"):
        context = multiprocessing.get_context(way)
        with context.Pool(2) as pool:
            sizes = pool.map(size_of, [f"meantime://file:{disk}:/x.csv"] * 4)
        assert sizes == [fs.size("/x.csv")] * 4


def size_of(url: str) -> int:
    fs, path = fsspec.core.url_to_fs(url)
    return fs.size(path)


def test_the_example(tmp_path: Path):
    import subprocess
    import sys

    example = Path(__file__).parent.parent / "examples" / "parquet.py"
    shutil.copy(example, tmp_path)
    done = subprocess.run(
        [sys.executable, "parquet.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "DuckDB" in done.stdout
