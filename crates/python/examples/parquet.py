"""Parquet in an ext4 image, without a mount: written by pyarrow, read by pandas and DuckDB.

It needs the packages meantime, fsspec, pandas, pyarrow and duckdb, and mkfs.ext4 (e2fsprogs). It
makes disk.img in the directory where it runs.

    python3 parquet.py
"""

import os
import subprocess
from pathlib import Path

import duckdb
import fsspec
import pandas
import pyarrow
import pyarrow.parquet

import meantime
from meantime import ext4

ROWS = 1_000_000
image = Path("disk.img")
device = f"file:{image}"

# %% An ext4 file system in a file. Any image will do, and any SSD: the device is a URI.
image.write_bytes(b"")
os.truncate(image, 128 << 20)
subprocess.run(
    ["mkfs.ext4", "-q", image],
    check=True,
    env=os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
)
print(f"made {image}: an ext4 file system of {image.stat().st_size >> 20} MiB")

# %% pyarrow writes into a file of it.
table = pyarrow.table(
    {
        "id": pyarrow.array(range(ROWS)),
        "city": pyarrow.array(["Oslo", "Bern", "Riga", "Rome"] * (ROWS // 4)),
        "kelvin": pyarrow.array([250 + id % 60 / 2 for id in range(ROWS)]),
    }
)
with ext4.mount(device, read_only=False) as fs:
    fs.mkdir("/dir")
    with fs.open("/dir/x.parquet", "wb") as file:
        pyarrow.parquet.write_table(table, file)
        file.fsync()
        print(f"wrote /dir/x.parquet: {ROWS:,} rows, {file.size:,} bytes")

# %% pandas reads one column, by the URL: the device, and the path in it.
column = pandas.read_parquet(f"meantime://{device}:/dir/x.parquet", columns=["kelvin"])
print(f"pandas: the mean of {len(column):,} values is {column['kelvin'].mean():.3f} K")

# %% DuckDB asks the same file.
connection = duckdb.connect()
connection.register_filesystem(fsspec.filesystem("meantime", uri=device))
rows = connection.sql(
    "select city, count(*), max(kelvin) from 'meantime:///dir/x.parquet' group by all order by all"
)
for city, count, most in rows.fetchall():
    print(f"DuckDB: {city} has {count:,} rows, at most {most} K")

# %% Beneath it is a block device: here a software SSD. The ext4 superblock is 1 KiB from the start.
with meantime.open(device, read_only=True) as ssd:
    magic = ssd.read(1024, 512)[0x38:0x3A]
    print(f"{ssd.uri}: {ssd.medium}, blocks of {ssd.block_size} bytes, ext4 magic {magic.hex()}")
