#!/usr/bin/env bash
# The figures of docs/benchmarks.md. Best on a machine with two CPUs and nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "== instructions of a read (callgrind)"
cargo bench --locked --quiet -p meantime --bench instructions
echo "== the polled path: depth 1 against the floor, depth 32"
cargo bench --locked --quiet -p meantime --bench path
echo "== both in a crate of somebody else's: cargo's default release profile, no link-time optimisation"
scripts/consumer.sh
echo "== the software SSD alone"
cargo bench --locked --quiet -p meantime-ssd --bench ssd_alone
echo "== what adaptive adds to an I/O"
cargo bench --locked --quiet -p meantime --bench estimator
