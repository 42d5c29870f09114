#!/usr/bin/env python3
"""The figures of `meantime reproduce --guest FILE`: ways to wait of two kernels in a virtual machine, on QEMU's NVMe controllers.

Each boot measures every row of reproduce.plan once, the order turned round each time; the report's nth repetition is the nth boot. FILE is
written after each boot, and a run with the same setting goes on where the last one was cut off.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import bench

PLAN = pathlib.Path(__file__).parent / "reproduce.plan"
# Boots of each kernel and milliseconds for each row: quick and full.
LENGTHS = {True: (3, 500), False: (9, 1000)}
# Other programs may use this much of one CPU; more, and a boot is done again, twice at most for each kernel.
OTHERS_MAX_PERCENT = 15
REPEATED_MAX = 2


def plan():
    """By kernel, its rows as bench/ways.sh takes them."""
    rows = {}
    for line in PLAN.read_text().splitlines():
        if not line.startswith("#"):
            kernel, controller, size, *ways = line.split()
            rows.setdefault(kernel, []).extend(f"{controller}/{size}/{way}" for way in ways)
    return rows


class Load:
    """How much CPU other programs use: those that are there at the end, and what the hypervisor takes. (/proc/stat less our own time would
    count threads of ours.)"""

    def __init__(self):
        self.at, self.ticks = time.monotonic(), {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(") ", 1)[1].split()
            except OSError:
                continue  # It has ended.
            if stat.parent.name != str(os.getpid()):
                self.ticks[stat.parent.name] = int(fields[11]) + int(fields[12])
        self.ticks["steal"] = int(pathlib.Path("/proc/stat").read_text().split()[8])

    def others_percent(self):
        now = Load()
        used = sum(ticks - self.ticks.get(name, 0) for name, ticks in now.ticks.items())
        return max(0, used) / os.sysconf("SC_CLK_TCK") / (now.at - self.at) * 100


def boot(kernel, initramfs, rows, ms):
    load, cells = Load(), []
    for row, interrupts, reads, job in bench.ways(kernel, initramfs, rows, ms):
        controller, size, way = row.split("/")
        cell = {"controller": controller, "bytes": int(size), "way": way, "interrupts": interrupts, "reads": reads}
        cells.append({**cell, "job": job})
    return {"others_percent": load.others_percent(), "ended_s": int(time.time()), "cells": cells}


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guests", nargs="+", metavar="KERNEL INITRAMFS", help="of one kernel or two")
    parser.add_argument("--meantime", required=True, help="the command in the guests")
    parser.add_argument("--json", type=pathlib.Path, required=True, metavar="FILE", help="the figures")
    parser.add_argument("--quick", action="store_true", help="three short boots of each kernel instead of nine longer ones")
    args = parser.parse_args()
    boots, ms = LENGTHS[args.quick]
    paths = [pathlib.Path(path).resolve() for path in args.guests]
    rows = plan()
    guests = []
    for kernel, initramfs in zip(paths[::2], paths[1::2]):
        version = next((kernel / "lib" / "modules").iterdir()).name
        guests.append((".".join(version.split(".")[:2]), version, kernel, initramfs))
    about = [
        f"{said(args.meantime, '--version')}, Linux {' and '.join(version for _, version, _, _ in guests)}, in {said('qemu-system-x86_64', '--version')}",
        f"Software emulation of one CPU; {boots} boots of each kernel, {ms} ms for each row",
    ]
    # What the figures depend on: those of another setting cannot be mixed with new ones.
    setting = {"about": about, "rows": rows}
    results = {"setting": setting, "about": about, "boots": []}
    if args.json.exists():
        earlier = json.loads(args.json.read_text())
        if earlier.get("setting") == setting:
            results = earlier
    results["command"] = f"scripts/guest.sh reproduce --json {args.json}{' --quick' if args.quick else ''}"
    for at in range(boots):
        for name, _, kernel, initramfs in guests:
            if sum(done["kernel"] == name for done in results["boots"]) > at:
                continue
            print(f"guest: Linux {name}: boot {at + 1} of {boots}", file=sys.stderr, flush=True)
            order = rows[name][:: -1 if at % 2 else 1]
            done = boot(kernel, initramfs, order, ms)
            repeated = sum(one["repeated"] for one in results["boots"] if one["kernel"] == name)
            again = 0
            while done["others_percent"] > OTHERS_MAX_PERCENT and repeated + again < REPEATED_MAX:
                again += 1
                done = boot(kernel, initramfs, order, ms)
            results["boots"].append({"kernel": name, "repeated": again, **done})
            args.json.parent.mkdir(parents=True, exist_ok=True)
            new = args.json.with_name(f".{args.json.name}.new")
            new.write_text(json.dumps(results))
            new.rename(args.json)


if __name__ == "__main__":
    main()
