#!/usr/bin/env bash
# What programs gain by the shared-memory path (docs/shared-memory-path.md) over the mount alone:
# fio, SQLite, RocksDB and small files under `meantime run`, with and without --no-shared-memory, in
# turns, on a software SSD with the optane model in memory. Nothing is pinned. Then one program on a
# CPU of its own, beside `meantime bench` on the same device and what 4 KiB between the two CPUs
# cost at least; and RocksDB with the file system's waits in their classic places. Needs root
# (mounts).
#
# --quick: few rounds. CELL…: only these rows. MEANTIME, CALL: paths of the command and of the bench
# `call`, if they are built already.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

rounds=7 cells=()
for argument; do
    case $argument in
    --quick) rounds=3 ;;
    -*) echo "usage: $0 [--quick] [CELL…]" >&2; exit 2 ;;
    *) cells+=("$argument") ;;
    esac
done
[ "$(id -u)" = 0 ] || { echo "bench-shared-memory-path: mounting needs root" >&2; exit 1; }
[ -c /dev/fuse ] || { echo "bench-shared-memory-path: no /dev/fuse here" >&2; exit 1; }
scripts/setup.sh fs
meantime=${MEANTIME:-} call=${CALL:-}
if [ -z "$meantime" ]; then
    cargo build --release --locked --quiet -p meantime-cli -p meantime-intercept
    meantime=target/release/meantime
fi
if [ -z "$call" ]; then
    call=$(cargo bench --locked --quiet -p meantime-shm-rpc --bench call --no-run --message-format json |
        python3 -c 'import json, sys
print([built["executable"] for built in map(json.loads, sys.stdin) if built.get("executable")][-1])')
fi

# In memory, so that the disk of this machine is no part of it.
work=$(mktemp -d "${TMPDIR:-/dev/shm}/meantime-short.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
truncate -s 1G "$work/disk.img"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/disk.img"

python3 - "$(realpath "$meantime")" "$(realpath "$call")" "$work" "$rounds" "${cells[@]}" <<'PYTHON'
import json, os, re, shutil, statistics, subprocess, sys

meantime, call, work, rounds, picked = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5:]
device = f"file:{work}/disk.img?model=optane"

FIO = """fio --name=x --thread=0 --group_reporting --output-format=json --ioengine=psync --size=128m
         --filename=/mnt/meantime/file --randrepeat=0 --fallocate=none""".split()
TIMED = "--time_based --runtime=2"
# Programs in Python, which print µs for one operation.
SMALL_FILES = """
import os, time
os.makedirs("small", exist_ok=True)
names = [f"small/{number}" for number in range(500)]
for name in names:
    if not os.path.exists(name):
        open(name, "wb").write(bytes(4096))
for again in range(4):
    began = time.monotonic()
    for name in names:
        file = os.open(name, os.O_RDONLY)
        while os.read(file, 65536): pass
        os.close(file)
print((time.monotonic() - began) / len(names) * 1e6)
"""
INSERTS = """
import os, sqlite3, time
if os.path.exists("db"): os.remove("db")
database = sqlite3.connect("db", isolation_level=None)
database.execute("create table t (id integer primary key, text blob)")
began = time.monotonic()
for row in range(500):
    database.execute("insert into t (text) values (?)", (bytes(3000),))
print((time.monotonic() - began) / 500 * 1e6)
"""
DB_BENCH = "db_bench --db=db --compression_type=none --value_size=400 --cache_size=1000000"
# What fills it, and what is measured, with how many operations.
ROCKSDB = {
    "fillsync": ("", "--benchmarks=fillsync --num=COUNT"),
    "readrandom": ("--benchmarks=fillseq --num=50000", "--use_existing_db=1 --benchmarks=readrandom --num=50000 --reads=COUNT"),
}
ROCKSDB_COUNT = {"fillsync": 5000, "readrandom": 50000}
CELLS = {
    "cold reads at random": f"--rw=randread --bs=4k --norandommap {TIMED}",
    "cold reads at random, 4 jobs": "--rw=randread --bs=4k --io_size=32m --numjobs=4",
    "cold reads in order": "--rw=read --bs=4k",
    "cold reads in order, 128 KiB": "--rw=read --bs=128k",
    "warm reads at random": f"--rw=randread --bs=4k --pre_read=1 {TIMED}",
    "warm reads at random, 2 jobs": f"--rw=randread --bs=4k --pre_read=1 --numjobs=2 {TIMED}",
    "warm reads at random, 4 jobs": f"--rw=randread --bs=4k --pre_read=1 --numjobs=4 {TIMED}",
    "warm reads in order": f"--rw=read --bs=4k --pre_read=1 {TIMED}",
    "direct reads": f"--rw=randread --bs=4k --direct=1 {TIMED}",
    "direct reads, 4 jobs": f"--rw=randread --bs=4k --direct=1 --numjobs=4 {TIMED}",
    "direct reads in order, 128 KiB": f"--rw=read --bs=128k --direct=1 {TIMED}",
    "writes at random": "--rw=randwrite --bs=4k --io_size=128m",
    "writes in order, 128 KiB": "--rw=write --bs=128k",
    "write and fdatasync": f"--rw=randwrite --bs=4k --fdatasync=1 {TIMED}",
    "write and fdatasync, 4 jobs": f"--rw=randwrite --bs=4k --fdatasync=1 --numjobs=4 {TIMED}",
    "70 % reads, 30 % writes": f"--rw=randrw --rwmixread=70 --bs=4k {TIMED}",
    "open, read 4 KiB, close": SMALL_FILES,
    "SQLite insert": INSERTS,
    "RocksDB fillsync": "fillsync",
    "RocksDB readrandom": "readrandom",
}


APART, ORDERS = "a CPU each", "RocksDB by threads"
ROWS = [*CELLS, APART, ORDERS]
unknown = [row for row in picked if row not in ROWS]
if unknown:
    sys.exit(f"bench-shared-memory-path: no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
picked = [row for row in picked or ROWS if shutil.which("db_bench") or not row.startswith("RocksDB")]


def ran(command, more=(), cpu=None):
    on = [] if cpu is None else ["taskset", "-c", str(cpu)]
    command = [*on, meantime, "run", *more, "--", "sh", "-c", 'cd /mnt/meantime; exec "$@"', "-", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench-shared-memory-path: {' '.join(command)}: {done.stderr}")
    return done.stdout


def fio(text):
    job = json.loads(text[text.index("{"):])["jobs"][0]
    ops = job["read"]["total_ios"] + job["write"]["total_ios"]
    return max(job["read"]["runtime"], job["write"]["runtime"]) * 1e3 / ops


def rocksdb(name, options, threads=1):
    fill, measured = ROCKSDB[name]
    of_each = measured.replace("COUNT", str(ROCKSDB_COUNT[name] // threads))
    lines = ["rm -rf db", f"{DB_BENCH} {fill}" if fill else ":", f"{DB_BENCH} {of_each} --threads={threads}", "rm -rf db"]
    text = ran(["sh", "-c", "exec 2>/dev/null; " + "; ".join(lines)], options)
    ops = re.search(rf"^{name} .* ([0-9]+) ops/sec", text, re.M)
    return 1e6 / float(ops[1]) if ops else sys.exit(f"bench-shared-memory-path: db_bench said {text!r}")


def micros(cell, options):
    what = CELLS[cell]
    if what in ROCKSDB:
        return rocksdb(what, options)
    if what.startswith("--"):
        return fio(ran(FIO + what.split(), options))
    return float(ran(["python3", "-c", what], options))


def spread(values, digits=2):
    values = sorted(values)
    return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f}–{values[-1]:.{digits}f})"


on_device = ["--device", device]
ran(FIO + ["--rw=write", "--bs=1m"], on_device)
cells = [cell for cell in CELLS if cell in picked]
if cells:
    print(f"µs an operation; the median of {rounds} rounds. Ratios: of each round, with their least and most.\n")
    print(f"{'':32}{'short':>9}{'long':>9}  short / long")
for cell in cells:
    short, long = [], []
    for number in range(rounds):
        for is_long in (False, True) if number % 2 else (True, False):
            options = on_device + ["--no-shared-memory"] * is_long
            (long if is_long else short).append(micros(cell, options))
    ratios = [a / b for a, b in zip(short, long)]
    print(f"{cell:32}{statistics.median(short):9.2f}{statistics.median(long):9.2f}  {spread(ratios)}", flush=True)
if APART in picked and (os.cpu_count() or 1) > 1:
    over = []
    for _ in range(rounds):
        floor = json.loads(subprocess.run([call, "--json", "5", "1", "0"], capture_output=True, check=True).stdout)
        inline = ["--device", f"{device}&inline=1"]
        bench = ["taskset", "-c", "0", meantime, "bench", "--no-control", *inline, "--rw", "randread", "--bs", "4k",
                 "--size", "128m", "--runtime", "1s", "--json", f"{work}/own.json"]
        subprocess.run(bench, check=True, capture_output=True)
        own = json.load(open(f"{work}/own.json"))["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"]
        read = f"--rw=randread --bs=4k --direct=1 {TIMED}".split()
        text = ran(["taskset", "-c", "1", *FIO, *read], inline, cpu=0)
        fios = json.loads(text[text.index("{"):])["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"]
        over.append((own, fios, floor["hand_over_ns"], fios - own - floor["hand_over_ns"]))
    own, fios, floor, more = zip(*over)
    print("\nA direct read of 4 KiB, the SSD inline in the owner, owner and program on a CPU each (p50, ns):")
    print(f"  meantime bench {spread(own, 0)}, fio {spread(fios, 0)}, 4 KiB between the CPUs {spread(floor, 0)}")
    print(f"  fio − bench − hand-over: {spread(more, 0)}")

if ORDERS in picked:
    print("\nRocksDB: the time with the classic order and a commit thread over ours, by threads:")
    for name, how in (("fillsync", ""), ("readrandom", ",overlap=none")):
        orders = (f"order=classic-thread{how}", "order=overlapped")
        for threads in (1, 2, 4, 8, 16):
            ratios = []
            for _ in range(rounds):
                classic, ours = (rocksdb(name, [*on_device, "-o", order], threads) for order in orders)
                ratios.append(classic / ours)
            print(f"  {name:12}{threads:3}  {spread(ratios)}", flush=True)
PYTHON
