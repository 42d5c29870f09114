#!/usr/bin/env python3
"""Does the kernel: column agree with fio on the same file? Runs both in turns, fio twice a turn, and prints what each says beside
how far fio differs from itself (the A/A spread).

    scripts/agree.py FILE [--pairs 9] [--seconds 2] [--bs 4k] [--engine io_uring|preadv2] [--iodepth N]

FILE is made if it is not there (256 MiB); it is only read.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

MEANTIME = os.environ.get("MEANTIME", os.path.join(os.path.dirname(__file__), "../target/release/meantime"))
FIO_ENGINES = {"io_uring": "io_uring", "preadv2": "pvsync2"}


def figures(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    job = json.loads(done.stdout)["jobs"][0]
    read = job["read"]
    return {
        "mean µs": read["lat_ns"]["mean"] / 1e3,
        "p50 µs": read["clat_ns"]["percentile"]["50.000000"] / 1e3,
        "p99 µs": read["clat_ns"]["percentile"]["99.000000"] / 1e3,
        "IOPS": read["iops"],
        "CPU %": job["usr_cpu"] + job["sys_cpu"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--bs", default="4k")
    parser.add_argument("--engine", choices=FIO_ENGINES, default="io_uring")
    parser.add_argument("--iodepth", type=int, default=1)
    args = parser.parse_args()
    common = [f"--bs={args.bs}", "--rw=randread", f"--iodepth={args.iodepth}"]
    # Fixed buffers and files, as our column has them by default. One CPU for all, so that the
    # scheduler has no part in it.
    fio = ["fio", "--name=agree", f"--filename={args.file}", f"--ioengine={FIO_ENGINES[args.engine]}", "--direct=1",
           "--size=256m", "--time_based", "--output-format=json", "--cpus_allowed=0", f"--runtime={args.seconds * 1000:.0f}ms"] + common
    if args.engine == "io_uring":
        fio += ["--fixedbufs=1", "--registerfiles=1"]
    ours = [MEANTIME, "bench", "--json", "-", "--completion", "interrupt", "--name", "agree", "--cpus-allowed", "0",
            "--device", f"kernel:{args.file}?engine={args.engine}&create=256M", "--runtime", f"{args.seconds * 1000:.0f}ms", "--time-based"] + common
    runs = {"fio": [], "again": [], "ours": []}
    figures(ours)  # Makes the file and fills it.
    for pair in range(args.pairs):
        # The order turns around, so that a drift favours nobody.
        order = [("fio", fio), ("ours", ours), ("again", fio)]
        for name, command in order if pair % 2 == 0 else reversed(order):
            runs[name].append(figures(command))
        print(f"\r{pair + 1} of {args.pairs}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(f"{'':8} {'fio':>10} {'ours':>10}   ours/fio, median (from, to)      fio/fio (A/A)")
    outside = 0
    for key in runs["fio"][0]:
        a, b, c = ([run[key] for run in runs[name]] for name in ("fio", "again", "ours"))
        both = [(x + y) / 2 for x, y in zip(a, b)]
        ratios = sorted(o / f for o, f in zip(c, both))
        same = sorted(y / x for x, y in zip(a, b))
        ratio = statistics.median(ratios)
        inside = same[0] <= ratio <= same[-1]
        outside += not inside
        print(f"{key:8} {statistics.median(both):10.2f} {statistics.median(c):10.2f}   {ratio:.3f} ({ratios[0]:.3f}, {ratios[-1]:.3f})"
              f"      {statistics.median(same):.3f} ({same[0]:.3f}, {same[-1]:.3f})   {'within' if inside else 'OUTSIDE'}")
    sys.exit(1 if outside else 0)


main()
