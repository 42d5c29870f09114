#!/usr/bin/env bash
# What ways to wait cost on two models of fast SSDs and one of flash, and what the kernel's own
# stack takes on this machine's disk; a minute and a half. Writes a report.
set -euo pipefail
cd "$(dirname "$0")/.."
meantime=${CARGO_TARGET_DIR:-target}/demo/meantime
mkdir -p out
devices='mem:256M?model=fast12,mem:256M?model=optane,mem:256M?model=nand'
kernel='kernel:out/demo.img?create=256M'
rm -f out/demo.img
# Not every file system has direct I/O, and not every container io_uring: then without the kernel's
# column, and why.
if why=$($meantime bench --device "$kernel" --completion interrupt --rw read --bs 4k --size 4k 2>&1 >/dev/null); then
    rm -f out/demo.img
    devices="$devices,$kernel"
else
    printf 'demo: without the kernel, because of this:\n  %s\n' "$why" >&2
fi
$meantime bench jobs/qd1.fio --device "$devices" --completion interrupt,poll,hybrid,adaptive \
    --json out/demo.json --html out/demo.html "$@"
rm -f out/demo.img
echo
echo "The same with plots, to read and to pass on: out/demo.html"
