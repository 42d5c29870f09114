#!/usr/bin/env bash
# The loom models of the waits (ARCHITECTURE.md §5 and §6) and of the page cache. Their own target directory: --cfg loom rebuilds everything.
set -euo pipefail
cd "$(dirname "$0")/.."
# Every schedule with at most three preemptions: enough for each window in these protocols, in seconds instead of a minute.
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --locked -p meantime-ssd --test loom_parking
cargo test --locked -p meantime-completion --lib model::
cargo test --locked -p meantime-ext4 --lib model::
