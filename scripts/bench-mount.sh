#!/usr/bin/env bash
# What programs do on a mount: on ours, on fuse2fs, and on the kernel's ext4 on a loop device, in
# turns, each with an image of the same kind in memory; what the system calls alone take, on a
# tmpfs; and what a FUSE server takes that does nothing (bare). A table of ratios, with their spread
# over the rounds. Needs root (mounts).
#
# Programs and servers share CPU 0, and the software SSD has CPU 1: else the scheduler decides where
# a server wakes, and that costs more than the work. --free: let it. --quick: few rounds. On a busy
# machine: `chrt -r 10 scripts/bench-mount.sh`.
# The image's memory is there before the work begins. --fresh: it is not, and is touched in the
# course of it.
# MOUNTS="NAME=OPTIONS ...": ours with these options (-o), too, one for each name.
# OTHER=FILE: another build of ours, as `other`.
# MEANTIME, MOUNT_WORK, BARE: paths of the programs, if they are built already.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

rounds=9 on=(taskset -c 0) cpu="&cpu=1" fresh=
for argument; do
    case $argument in
    --quick) rounds=3 ;;
    --free) on=() cpu= ;;
    --fresh) fresh=1 ;;
    *) echo "usage: $0 [--quick] [--free] [--fresh]" >&2; exit 2 ;;
    esac
done
[ "$(id -u)" = 0 ] || { echo "bench-mount: mounting needs root" >&2; exit 1; }
scripts/setup.sh fs
meantime=${MEANTIME:-} driver=${MOUNT_WORK:-} bare=${BARE:-}
if [ -z "$meantime" ]; then
    cargo build --release --locked --quiet --bin meantime
    meantime=target/release/meantime
fi
if [ -z "$driver" ]; then
    cargo build --release --locked --quiet -p meantime --example mount_work
    driver=target/release/examples/mount_work
fi
if [ -z "$bare" ]; then
    cargo build --release --locked --quiet -p meantime-mount --features bare --example bare_server
    bare=target/release/examples/bare_server
fi
read -r -a mounts <<<"${MOUNTS:-}"
peers=(tmpfs bare kernel)
[ -c /dev/fuse ] || { echo "bench-mount: no /dev/fuse here" >&2; exit 1; }
if command -v fuse2fs >/dev/null; then peers+=(fuse2fs); else echo "bench-mount: no fuse2fs" >&2; fi

# In memory, so that the disk of this machine is no part of it.
work=$(mktemp -d "${TMPDIR:-/dev/shm}/meantime-mount.XXXXXX")
place=$work/place image=$work/disk.img
# Whatever happened: nothing stays mounted, and only what is not mounted is removed.
clean() {
    if mountpoint -q "$place"; then umount "$place" || umount -l "$place" || true; fi
    rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place"
# Files of 1 KiB, 100 in a directory.
files=50000
[ "$rounds" -ge 9 ] || files=5000
python3 - "$work/tree.tar" "$files" <<'PYTHON'
import io, sys, tarfile

with tarfile.open(sys.argv[1], "w") as tar:
    for number in range(int(sys.argv[2])):
        member = tarfile.TarInfo(f"{number // 100}/file{number}")
        member.size = 1024
        tar.addfile(member, io.BytesIO(number.to_bytes(4, "big") * 256))
PYTHON

# The work of one round, at $place: a JSON object, times in µs of one operation. The server $1 is
# mounted again before the big file is read.
work_there() {
    "${on[@]}" "$driver" "$place" files large cached direct write append >"$work/driver.json" || return 1
    if [ "$1" != tmpfs ] && [ "$1" != bare ]; then
        unmount_from_there "$1"
        echo 3 >/proc/sys/vm/drop_caches
        mount_there "$@"
    fi
    "${on[@]}" "$driver" "$place" read >"$work/read.json" || return 1
    "${on[@]}" python3 - "$place" "$work" "$files" "$1" <<'PYTHON'
import json, os, re, shutil, sqlite3, subprocess, sys, time

place, work, files, who = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
results = json.load(open(f"{work}/driver.json")) | json.load(open(f"{work}/read.json"))


def databases():
    rows = 500
    database = sqlite3.connect(f"{place}/db", isolation_level=None)
    database.execute("create table t (id integer primary key, text text)")
    began = time.monotonic()
    for row in range(rows):
        # Each is a transaction of its own: a journal is made, synced and removed.
        database.execute("insert into t (text) values (?)", (f"the text of row {row}",))
    results["sqlite insert"] = (time.monotonic() - began) / rows * 1e6
    database.close()
    if shutil.which("db_bench"):
        command = ["db_bench", "--benchmarks=fillsync,fillseq,readrandom", "--num=20000",
                   f"--db={place}/rocksdb", "--compression_type=none"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, micros in re.findall(r"^(fillsync|readrandom) +: +([0-9.]+) micros/op", said, re.M):
            results[f"rocksdb {name}"] = float(micros)
        shutil.rmtree(f"{place}/rocksdb")


# The bare server has no names that change.
if who != "bare":
    databases()
os.mkdir(f"{place}/tree")
began = time.monotonic()
subprocess.run(["tar", "xf", f"{work}/tree.tar", "-C", f"{place}/tree"], check=True)
results["untar, a file"] = (time.monotonic() - began) / files * 1e6
began = time.monotonic()
subprocess.run(["rm", "-r", f"{place}/tree"], check=True)
results["rm -r, a file"] = (time.monotonic() - began) / files * 1e6
print(json.dumps(results))
PYTHON
}

# mount_there WHO [URI-PARAMETERS [OPTIONS]]
mount_there() {
    local who=$1 program=$meantime
    case $who in
    tmpfs) mount -t tmpfs tmpfs "$place" ;;
    bare)
        "${on[@]}" "$bare" "$place" &
        until mountpoint -q "$place"; do sleep 0.05; done
        ;;
    kernel) mount -o loop "$image" "$place" ;;
    fuse2fs)
        # It answers from a process of its own, when that has started.
        "${on[@]}" fuse2fs -o rw "$image" "$place" 2>"$work/fuse.log"
        until mountpoint -q "$place"; do sleep 0.05; done
        ;;
    *)
        [ "$who" != other ] || program=$OTHER
        "${on[@]}" "$program" mount "file:$image?$2$cpu" "$place" ${3:+-o "$3"} >"$work/mount.log"
        ;;
    esac
}

unmount_from_there() {
    case $1 in
    tmpfs | bare | kernel) umount "$place" ;;
    fuse2fs)
        umount "$place"
        while fuser -s "$image" 2>/dev/null; do sleep 0.1; done
        ;;
    *) "$meantime" umount "$place" ;;
    esac
}

# measure WHO [URI-PARAMETERS [OPTIONS]]: appends to $work/result.WHO.
measure() {
    rm -f "$image"
    if [ -n "$fresh" ]; then truncate -s 1G "$image"; else fallocate -l 1G "$image"; fi
    case $1 in
    tmpfs | bare) ;;
    *) mkfs.ext4 -q -F -N 200000 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$image" ;;
    esac
    mount_there "$@"
    work_there "$@" >>"$work/result.$1" || echo "bench-mount: $1: the work failed" >&2
    unmount_from_there "$1"
}

# What a direct read takes without a mount, by the same wait.
own_read() {
    "$meantime" bench --no-control --device "file:$image?model=null$cpu" --completion poll \
        --rw randread --bs 4k --runtime 500ms --json "$work/own.json" >/dev/null
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][0]["read"]["clat_ns"]["mean"] / 1000)' \
        "$work/own.json" >>"$work/own"
}

# What the server itself takes: threads, memory, CPU while nothing is asked of it, and how long a
# program waits for a mount of its own.
server_costs() {
    rm -f "$image"
    truncate -s 1G "$image"
    mkfs.ext4 -q -F "$image"
    "$meantime" mount "file:$image?model=null" "$place" >"$work/mount.log"
    python3 - "$image" "$place" <<'PYTHON'
import os, subprocess, sys, time

image, place = sys.argv[1:]
pid = subprocess.run(["fuser", image], capture_output=True, text=True).stdout.split()[0]


def status(key):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(key + ":")).split()[1])


def cpu_s():
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


print(f"\nThe server: {status('Threads')} threads, {status('RssAnon') / 1024:.0f} MiB of its own", end="")
pages = 40_000
with open(f"{place}/file", "wb") as file:
    for _ in range(pages // 250):
        file.write(b"x" * 250 * 4096)
os.sync()
# Until the last commit, too.
time.sleep(7)
began, used = time.monotonic(), cpu_s()
time.sleep(5)
idle = (cpu_s() - used) / (time.monotonic() - began) * 100
print(f", {status('RssAnon') / 1024:.0f} MiB after {pages} pages were written; idle: {idle:.1f} % of a CPU")
PYTHON
    "$meantime" umount "$place"
    python3 - "$meantime" "$image" <<'PYTHON'
import statistics, subprocess, sys, time

times = []
for _ in range(11):
    began = time.monotonic()
    subprocess.run([sys.argv[1], "run", "--device", f"file:{sys.argv[2]}?model=null", "--", "true"], check=True)
    times.append((time.monotonic() - began) * 1e3)
print(f"`meantime run -- true`: {statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})")
PYTHON
}

# With a device that takes no time, and with one that takes as long as a real one.
ours=(meantime optane)
[ -z "${OTHER:-}" ] || ours+=(other)
for ((round = 0; round < rounds; round++)); do
    for peer in "${peers[@]}"; do measure "$peer"; done
    measure meantime "model=null"
    own_read
    measure optane "model=optane"
    [ -z "${OTHER:-}" ] || measure other "model=null"
    for mount in "${mounts[@]}"; do
        measure "${mount%%=*}" "model=null" "${mount#*=}"
        [ "$round" -gt 0 ] || ours+=("${mount%%=*}")
    done
    echo "bench-mount: round $((round + 1)) of $rounds" >&2
done

python3 - "$work" "${ours[*]}" "${peers[@]}" <<'PYTHON'
import json, os, statistics, sys

work, ours, peers = sys.argv[1], sys.argv[2].split(), sys.argv[3:]


def read(who):
    path = os.path.join(work, f"result.{who}")
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def ratio(left, right, kind):
    ratios = [a[kind] / b[kind] for a, b in zip(left, right) if kind in b]
    return f"{'':>24}" if not ratios else f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


runs = {who: read(who) for who in ours + peers}
print(f"{'µs':<16}", *(f"{who:>10}" for who in runs))
for kind in runs["meantime"][0]:
    medians = ([run[kind] for run in runs[who] if kind in run] for who in runs)
    print(f"{kind:<16}", *(f"{statistics.median(of):>10.2f}" if of else f"{'':>10}" for of in medians))
for who in ours:
    others = [peer for peer in peers + ours[:1] if peer != who and peer != "tmpfs"]
    print(f"\n{who + ', times':<16}", *(f"{'of ' + peer + ' (spread)':>24}" for peer in others))
    for kind in runs[who][0]:
        print(f"{kind:<16}", *(f"{ratio(runs[who], runs[peer], kind):>24}" for peer in others))
own = [float(line) for line in open(f"{work}/own")]
over = [run["read 4k direct"] - alone for run, alone in zip(runs["meantime"], own)]
print(f"\nA direct read by the mount takes {statistics.median(over):.1f} µs more than by `meantime bench`"
      f" ({min(over):.1f} to {max(over):.1f}; {statistics.median(own):.1f} µs there).")
print("Times of one operation; the median of the rounds. Ratios: under 1 is faster; the median of the rounds,"
      " and their least and most. tmpfs: what the system calls alone take.")
PYTHON
server_costs
