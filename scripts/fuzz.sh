#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET]: builds the fuzzers (fuzz/) and runs each, or TARGET, for SECONDS (15).
#
# libFuzzer needs of the compiler only coverage instrumentation, which stable Rust has behind flags
# of LLVM's: neither a nightly compiler nor cargo-fuzz. What a run learns stays in
# target/fuzz/corpus, for the next one.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-15}
all=(ssd driver host job uri served user tcp ext4 line meeting disk auth)
targets=("${@:2:1}")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
    [[ " ${all[*]} " = *" $target "* ]] || { echo "fuzz: no target $target; there are: ${all[*]}" >&2; exit 2; }
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: $seconds is no number of seconds" >&2; exit 2; }

flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    # Comparisons of texts stay calls, so that libFuzzer sees what an input is compared with.
    -Cllvm-args=-max-loads-per-memcmp=0
    # One object file for each crate, so that nothing is counted twice.
    -Ccodegen-units=1
    -Cdebug-assertions=on
    -Coverflow-checks=on
)
host=$(rustc -vV | sed -n 's/^host: //p')
dir=target/fuzz
bin=$dir/$host/fuzz
mkdir -p "$dir/log"

# With --target the flags are for the fuzzers, not for build scripts and macros.
unset CARGO_ENCODED_RUSTFLAGS
if ! RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR=$PWD/$dir nice cargo build --profile fuzz --locked --quiet \
    -p meantime-fuzz --features libfuzzer --bins --target "$host" >"$dir/log/build" 2>&1; then
    cat "$dir/log/build" >&2
    echo "fuzz: the fuzzers do not build (they need a C++ compiler)" >&2
    exit 1
fi

# Runs one; what came of it is said in one piece.
run() {
    local target=$1 status=0
    local corpus=$dir/corpus/$target artifacts=$dir/artifacts/$target log=$dir/log/$target
    mkdir -p "$corpus" "$artifacts"
    local options=(-rss_limit_mb=2048 -timeout=10 -max_len=1024)
    RUST_BACKTRACE=1 nice "$bin/$target" "$corpus" "fuzz/corpus-seed/$target" "${options[@]}" \
        -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$artifacts/" >"$log" 2>&1 || status=$?
    local executions coverage reproducer
    executions=$(sed -nE 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    coverage=$(sed -nE 's/^#[0-9]+.* cov: ([0-9]+) .*/\1/p' "$log" | tail -n 1)
    local result="$target: ${executions:-no} executions, coverage ${coverage:-unknown}"
    if [ "$status" = 0 ]; then
        echo "fuzz: $result: ok"
        return
    fi
    {
        echo "fuzz: $result: FOUND SOMETHING"
        grep -aA 1 -m 1 -E "panicked at|ERROR: libFuzzer" "$log" || tail -n 20 "$log"
        reproducer=$(sed -nE 's/.*Test unit written to //p' "$log" | tail -n 1)
        if [ -n "$reproducer" ]; then
            echo "fuzz: reproducer: $reproducer"
            echo "fuzz: again with: $bin/$target ${options[*]} $reproducer"
        fi
        echo "fuzz: everything it said: $log"
    } >&2
    return 1
}

# As many at once as there are CPUs.
failed=0
running=0
for target in "${targets[@]}"; do
    if [ "$running" -ge "$(nproc)" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    run "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
