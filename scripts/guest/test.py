#!/usr/bin/env python3
"""test.py KERNEL INITRAMFS TEST...: runs each test (scripts/guest/tests/TEST.sh) in a guest of its own, three at a time: they sleep a lot.

GUEST_LONG=1: with as much as a verified run's arguments say, instead of a quarter, and with each depth.
"""
import concurrent.futures
import os
import pathlib
import sys
import time

import machine
import vm

TESTS = pathlib.Path(__file__).parent / "tests"
# All of them together are worth something only if they did so much.
LONG = os.environ.get("GUEST_LONG", "")
LEAST = {"commands": 100_000 if LONG else 30_000}
LOGS = pathlib.Path(__file__).parents[2] / "target" / "guest" / "log"


def show(name, outcome):
    """A line for what passed, everything for what did not; and all of it to a file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    lines = [f"{seconds:6.1f} {line}" for seconds, line in zip(outcome.times, outcome.lines)]
    (LOGS / name).write_text("\n".join([outcome.console, *lines, *outcome.trouble, outcome.why(), ""]))
    if outcome.passed:
        checks = sum(line.startswith("ok ") for line in outcome.lines)
        notes = "".join(f"; {line[5:]}" for line in outcome.lines if line.startswith("note "))
        print(f"guest: {name}: ok ({checks} checks, {outcome.seconds:.0f} s{notes})", flush=True)
        return
    print(f"guest: {name}: FAILED ({outcome.why()}, {outcome.seconds:.0f} s). Its console:")
    print(outcome.console)
    for line in [*outcome.lines, *outcome.trouble]:
        print(f"guest: {name}: {line}")
    sys.stdout.flush()


def main():
    kernel, initramfs = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
    names = sys.argv[3:] or [path.stem for path in TESTS.glob("*.sh")]
    missing = [name for name in names if not (TESTS / f"{name}.sh").exists()]
    if missing:
        sys.exit(f"guest: no such test: {', '.join(missing)}")
    # Those that may take long first, so that none of them is left at the end, alone.
    names.sort(key=lambda name: -machine.read(TESTS / f"{name}.sh").seconds)
    start = time.monotonic()
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = {pool.submit(vm.run, TESTS / f"{name}.sh", kernel, initramfs, f"long={LONG}"): name for name in names}
        for run in concurrent.futures.as_completed(runs):
            outcomes[runs[run]] = run.result()
            show(runs[run], run.result())
    sums = {}
    for outcome in outcomes.values():
        for key, value in outcome.facts():
            sums[key] = sums.get(key, 0) + int(value)
    failed = [name for name, outcome in outcomes.items() if not outcome.passed]
    for key, value in sorted(sums.items()):
        print(f"guest: {key}: {value}")
    for key, least in LEAST.items():
        if not sys.argv[3:] and not failed and sums.get(key, 0) < least:
            print(f"guest: {key}: {least} are the least")
            failed.append(key)
    passed = sum(outcome.passed for outcome in outcomes.values())
    print(f"guest: {passed} of {len(names)} passed in {time.monotonic() - start:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
