#!/usr/bin/env bash
# DuckDB's I/O metrics of a transaction that goes to its write-ahead log.
#
# DuckDB 2.0's profiler reports for each query io.total_bytes_written, io.total_write_operations and
# io.total_write_time, beside those of reads. One would expect in them what the query wrote to the
# database's files. Seen, with the Python package duckdb 2.0.1, and compared with what the log and
# the database grow by and with the kernel's count (wchar of /proc/self/io):
#
#   CREATE TABLE AS of 3 million rows, which goes to the database file: at least 99% of what the
#   kernel counts.
#   INSERT of 100000 rows of hashes, one transaction, which goes to the log: the log has
#   grown by more than 1.5 MB and the kernel counts as much; the three metrics are 0.
#   20 single-row INSERTs, each with its own commit and fdatasync: all of the metrics are 0.
#
# So for the writes whose latency a commit waits for, the metrics say that there were none.
#
# Needs python3 and pip.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
    --target "$dir/python" duckdb==2.0.1
cd "$dir"
PYTHONPATH=$dir/python python3 - <<'PYTHON'
import json, os, sys
import duckdb

print("duckdb", duckdb.__version__)
database = duckdb.connect("data.db")
database.execute("SET enable_profiling = 'json'")
database.execute("SET profile_output = 'profile.json'")
database.execute("SET profiling_coverage = 'ALL'")
failed = 0


def kernel():
    with open("/proc/self/io") as counts:
        return int(next(line for line in counts if line.startswith("wchar")).split()[1])


def size(path):
    return os.stat(path).st_size if os.path.exists(path) else 0


def run(*queries):
    """Bytes by the kernel, growth of the log, and the metrics, summed up over the queries."""
    before, log = kernel(), size("data.db.wal")
    total = {}
    for query in queries:
        database.execute(query).fetchall()
        with open("profile.json") as file:
            profile = json.load(file)["io"]
        for name in ("total_bytes_written", "total_write_operations", "total_write_time"):
            total[name] = total.get(name, 0) + profile[name]
    return kernel() - before, size("data.db.wal") - log, total


def compare(what, expected, described, seen):
    global failed
    print(f"{what}: expected {expected}, seen {seen}")
    if seen != described:
        print(f"    the description says: {described}")
        failed = 1


database.execute("PRAGMA wal_autocheckpoint = '1GB'")
written, log, metrics = run("CREATE TABLE a AS SELECT range i, hash(range) h FROM range(3000000)")
print(f"CREATE TABLE AS: {written} bytes by the kernel; {metrics}")
compare("share of the kernel's bytes", "at least 99%", True,
        0.99 <= metrics["total_bytes_written"] / written <= 1)

nothing = {"total_bytes_written": 0, "total_write_operations": 0, "total_write_time": 0}
written, log, metrics = run("INSERT INTO a SELECT range, hash(range) FROM range(100000)")
print(f"INSERT of 100000 rows: {written} bytes by the kernel, log grown by {log}")
compare("log grown by more than 1.5 MB, and the kernel counts it", True, True,
        1500000 < log <= written)
compare("metrics", "about the same", nothing, metrics)

written, log, metrics = run(*(f"INSERT INTO a VALUES ({i}, {i})" for i in range(20)))
print(f"20 INSERTs of one row: log grown by {log}")
compare("log grown, and the kernel counts it", True, True, 0 < log <= written)
compare("metrics", "about the same", nothing, metrics)
sys.exit(failed)
PYTHON
