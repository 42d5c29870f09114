#!/usr/bin/env python3
"""Programs on one disk in a virtual machine: on the kernel's ext4, on ours by `meantime run`, and on
ours by FUSE alone.

The table has the median of all turns, in us for an operation, and each turn's time over the kernel's. Best on a machine with nothing else
to do. The machine is emulated, so only the ratios count.
"""
import argparse
import collections
import json
import pathlib
import statistics
import sys

import vm

SCRIPT = pathlib.Path(__file__).parent / "bench" / "programs.sh"
PROGRAMS = ["read-direct", "write-fdatasync", "sqlite-insert", "rocksdb-fillsync", "rocksdb-readrandom"]
WAYS = ["kernel", "short", "long"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", type=pathlib.Path)
    parser.add_argument("initramfs", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="only these, with commas between")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to FILE")
    args = parser.parse_args()
    outcome = vm.run(SCRIPT, args.kernel.resolve(), args.initramfs.resolve(), f"turns={args.turns} programs={args.programs}")
    if not outcome.passed:
        sys.exit("\n".join([outcome.console, *outcome.lines, f"guest: {outcome.why()}"]))
    times = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in outcome.lines:
        if line.startswith("time "):
            _, program, way, us = line.split()
            times[program][way].append(float(us))
    print(f"{'us an operation':20} {'kernel':>10} {'short':>10} {'long':>10}   over the kernel's: short (least - most), long")
    for program, ways in times.items():
        medians = "".join(f" {statistics.median(ways[way]):10.1f}" for way in WAYS)
        ratios = {way: sorted(us / kernel for us, kernel in zip(ways[way], ways["kernel"])) for way in WAYS[1:]}
        said = ", ".join(f"{statistics.median(all):.2f} ({all[0]:.2f} - {all[-1]:.2f})" for all in ratios.values())
        print(f"{program:20}{medians}   {said}")
    if args.json:
        args.json.write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
