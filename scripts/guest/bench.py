#!/usr/bin/env python3
"""The kernel's ways to wait and ours on one controller, in a virtual machine: random reads at depth 1 from a medium that answers at once.
With --tcp, Linux's NVMe/TCP host and ours on Linux's target, over the loopback interface, in the newer kernel.

Each boot measures every row several times, the order turned round each time, and takes the median of its means; what is compared is rows of
one boot. Best on a machine with nothing else to do. Exits with 1 if a bar is missed, in the mean: ours-poll <= 0.6 x kernel-interrupt, and
<= 1.0 x kernel-poll; with --tcp, <= 0.9 x each of them.
"""
import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

import vm

SCRIPTS = pathlib.Path(__file__).parent / "bench"
BASE = "kernel-interrupt"
# Kernels from 5.19 on have the switches of hybrid polling, and no hybrid polling.
HYBRID = ["kernel-hybrid", "kernel-hybrid-20"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is measured, and how much of another row's time ours-poll may take."""

    script: pathlib.Path
    rows: list
    sizes: list
    bars: list


PCIE = Comparison(
    SCRIPTS / "ways.sh",
    [BASE, "kernel-poll", "ours-interrupt", "ours-poll", "ours-hybrid", "ours-adaptive"],
    [4096, 512],
    [(BASE, 0.6), ("kernel-poll", 1.0)],
)
TCP = Comparison(
    SCRIPTS / "tcp.sh",
    [BASE, "kernel-poll", "ours-interrupt", "ours-poll", "ours-adaptive"],
    [4096],
    [(BASE, 0.9), ("kernel-poll", 0.9)],
)


def measure(kernel, initramfs, script, rows, size, args, first):
    """One boot: the figures of each row, medians of its turns."""
    turns = [rows[:: 1 if (turn + first) % 2 else -1] for turn in range(args.turns)]
    figures = {row: [] for row in rows}
    rows_of_turns = [f"null/{size}/{row}" for row in sum(turns, [])]
    for row, _, _, job in ways(kernel, initramfs, rows_of_turns, args.seconds * 1000, script):
        figures[row.split("/")[2]].append(figures_of(job))
    return {row: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]} for row, turns in figures.items()}


def percentile(bins, percent):
    """Of a histogram as the reports have it: times with how many I/Os took so long."""
    left = sum(bins.values()) * percent / 100
    for ns in sorted(bins, key=int):
        left -= bins[ns]
        if left <= 0:
            return int(ns)


def ways(kernel, initramfs, rows, ms, script=PCIE.script):
    """One boot: each row with the interrupts and reads that the kernel counted, and its job's report."""
    outcome = vm.run(script, kernel, initramfs, f"rows={','.join(rows)} ms={ms}")
    if not outcome.passed:
        sys.exit("\n".join([outcome.console, *(line for line in outcome.lines if line.startswith("FAILED")), f"guest: {outcome.why()}"]))
    row, text = None, []
    for line in outcome.lines:
        if line.startswith("report "):
            row, interrupts, reads = line.split()[1:]
            text = []
        elif line == "end" and row:
            yield row, int(interrupts), int(reads), json.loads("\n".join(text))["jobs"][0]
            row = None
        elif row:
            text.append(line)


def figures_of(job):
    read = job["read"]
    return {
        "mean_ns": read["lat_ns"]["mean"],
        "p50_ns": percentile(read["lat_ns"]["bins"], 50),
        "p99_ns": percentile(read["lat_ns"]["bins"], 99),
        "iops": read["iops"],
        "cpu_percent": job["usr_cpu"] + job["sys_cpu"],
        "ios": read["total_ios"],
    }


def ratio(boots, row, base, key="mean_ns"):
    """Median, least and most of the boots."""
    ratios = sorted(boot[row][key] / boot[base][key] for boot in boots)
    return {"median": statistics.median(ratios), "min": ratios[0], "max": ratios[-1]}


def table(boots, rows):
    print(f"  {'':18} {'mean':>9} {'p50':>9} {'p99':>9} {'CPU':>6}   of {BASE}: mean (least - most of {len(boots)} boots), p50")
    for row in rows:
        mean, p50, p99 = (statistics.median(boot[row][key] for boot in boots) / 1000 for key in ("mean_ns", "p50_ns", "p99_ns"))
        cpu = statistics.median(boot[row]["cpu_percent"] for boot in boots)
        to_base = ratio(boots, row, BASE)
        p50_to_base = ratio(boots, row, BASE, "p50_ns")["median"]
        spread = f"{to_base['median']:.2f}  ({to_base['min']:.2f} - {to_base['max']:.2f})  {p50_to_base:.2f}"
        print(f"  {row:18} {mean:6.1f} us {p50:6.1f} us {p99:6.1f} us {cpu:4.0f} %   {spread}")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guests", nargs="+", help="KERNEL INITRAMFS, of one kernel or two")
    parser.add_argument("--tcp", action="store_true", help="compare NVMe/TCP hosts")
    parser.add_argument("--boots", type=int, default=5, help="how often each kernel is booted for each size [5]")
    parser.add_argument("--turns", type=int, default=3, help="how often each row is measured in a boot [3]")
    parser.add_argument("--seconds", type=int, default=1, help="how long each time [1]")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to FILE")
    args = parser.parse_args()
    paths = [pathlib.Path(path).resolve() for path in args.guests]
    what, pairs = (TCP, [paths[:2]]) if args.tcp else (PCIE, zip(paths[::2], paths[1::2]))
    results, missed = [], []
    for kernel, initramfs in pairs:
        version = next((kernel / "lib" / "modules").iterdir()).name
        rows = what.rows + (HYBRID if version.startswith("5.10.") and not args.tcp else [])
        for size in what.sizes:
            boots = []
            for boot in range(args.boots):
                boots.append(measure(kernel, initramfs, what.script, rows, size, args, boot))
                print(f"guest: Linux {version}, {size} bytes: boot {boot + 1} of {args.boots}", file=sys.stderr, flush=True)
            print(f"Linux {version}, random reads of {size} bytes at depth 1; median of {args.boots} boots")
            table(boots, rows)
            bars = []
            for base, most in what.bars:
                bars.append({"row": "ours-poll", "base": base, "at_most": most, "is": ratio(boots, "ours-poll", base)["median"]})
                if bars[-1]["is"] > most:
                    missed.append(f"Linux {version}, {size} bytes: ours-poll is {bars[-1]['is']:.2f} x {base}; {most} is the bar")
            ratios = {row: {"mean": ratio(boots, row, BASE), "p50": ratio(boots, row, BASE, "p50_ns")} for row in rows}
            results.append({"kernel": version, "bytes": size, "boots": boots, "ratios": ratios, "bars": bars})
    if args.json:
        args.json.write_text(json.dumps({"results": results, "missed": missed}, indent=2) + "\n")
    met = " and ".join(f"{most} x {base}" for base, most in what.bars)
    print("\n".join(missed) or f"Both bars are met: ours-poll is at most {met}.")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
