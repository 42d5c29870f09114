#!/usr/bin/env bash
# The loom models of the waits (ARCHITECTURE.md §5 and §6), of calls between processes (shm-rpc) and of
# the page cache.
#
# They have a target directory of their own, since --cfg loom rebuilds everything. Unit tests that
# need more than their crate are compiled without loom only.
set -euo pipefail
cd "$(dirname "$0")/.."
# Every schedule with at most three preemptions: enough for each window in these protocols.
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
model() { cargo test --profile loom --locked --quiet "$@"; }
model -p meantime-ssd --test loom_parking
model -p meantime-completion --lib loom_model::
model -p meantime-shm-rpc --lib loom_model::
model -p meantime-ext4 --lib loom_model::
