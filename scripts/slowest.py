#!/usr/bin/env python3
"""slowest.py [N]: the N (20) tests of the last `make tests` that took longest, as cargo-nextest wrote them down."""
import os
import pathlib
import sys
import xml.etree.ElementTree as tree

report = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"), "nextest", "default", "junit.xml")
tests = [
    (float(case.get("time", 0)), suite.get("name"), case.get("name"))
    for suite in tree.parse(report).getroot().iter("testsuite")
    for case in suite.iter("testcase")
]
tests.sort(reverse=True)
print(f"the slowest of {len(tests)} tests, in seconds:")
for seconds, binary, name in tests[: int(sys.argv[1]) if sys.argv[1:] else 20]:
    print(f"{seconds:8.1f}  {binary.removeprefix('meantime-')} {name}")
