#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET]]: builds the fuzzers and runs each (or TARGET) for SECONDS (15).
#
# libFuzzer on the stable compiler: what it needs of the instrumentation is a pass of LLVM's, which stable flags turn on. Corpora
# are kept under target/fuzz, so that longer runs go on where others ended; findings are kept there, too.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
targets=${2:-ssd driver job uri}
host=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/target/fuzz
mkdir -p "$out"

export CARGO_TARGET_DIR=$out RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-max-loads-per-memcmp=0 \
-Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
# --target keeps the flags away from build scripts and macros.
if ! cargo build --release --locked --quiet --manifest-path fuzz/Cargo.toml --target "$host" 2>"$out.log"; then
    cat "$out.log" >&2
    exit 1
fi

failed=0
for target in $targets; do
    binary=$out/$host/release/$target
    corpus=$out/corpus/$target
    mkdir -p "$corpus" "$out/findings"
    log=$out/$target.log
    if "$binary" "$corpus" "fuzz/corpus-seed/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$out/findings/$target-" >"$log" 2>&1; then
        runs=$(sed -nE 's/^Done ([0-9]+) runs.*/\1/p' "$log")
        coverage=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)
        printf 'fuzz: %-7s ok    %s executions, %s edges covered\n' "$target" "$runs" "$coverage"
    else
        failed=1
        printf 'fuzz: %-7s FAILED\n' "$target"
        grep -E 'panicked|SUMMARY|Test unit written' -A1 "$log" | sed 's/^/    /' || tail -n 20 "$log"
        finding=$(sed -nE 's/.*Test unit written to (.*)/\1/p' "$log" | tail -n 1)
        echo "    again: $binary $finding"
    fi
done
exit $failed
