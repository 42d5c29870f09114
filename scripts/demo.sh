#!/usr/bin/env bash
# What three ways to wait cost on two models of fast SSDs, in about a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out
exec target/release/meantime bench jobs/qd1.fio \
    --device "mem:256M?model=fast12,mem:256M?model=optane" \
    --completion interrupt,poll,hybrid --json out/demo.json "$@"
