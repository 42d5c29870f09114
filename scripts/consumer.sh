#!/usr/bin/env bash
# consumer.sh [BENCH…]: the benchmarks of the polled path (instructions, path) as a crate of
# somebody else's would have them: outside this workspace, with cargo's default release profile (no
# link-time optimisation, sixteen codegen units).
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
dir=${CARGO_TARGET_DIR:-$root/target}/consumer
benches=("$@")
[ $# -gt 0 ] || benches=(instructions path)

mkdir -p "$dir"
{
    printf '[workspace]\n\n[package]\nname = "consumer"\nversion = "0.0.0"\nedition = "2024"\n'
    printf '\n[dependencies]\n'
    printf 'meantime = { path = "%s" }\n' "$root/crates/meantime"
    for crate in baselines block completion hw nvme nvme-spec process ssd; do
        printf 'meantime-%s = { path = "%s" }\n' "$crate" "$root/crates/$crate"
    done
    sed -n '/^\[workspace.dependencies\]/,/^\[/p' Cargo.toml | grep -E '^(libc|rustix|serde_json) '
    for bench in "${benches[@]}"; do
        printf '\n[[bin]]\nname = "%s"\npath = "%s"\n' \
            "$bench" "$root/crates/meantime/benches/$bench.rs"
    done
} >"$dir/Cargo.toml"
# The versions of everything are those that the workspace is tested with.
cp Cargo.lock "$dir/Cargo.lock"

CARGO_TARGET_DIR=$dir/target cargo build --release --quiet --manifest-path "$dir/Cargo.toml"
for bench in "${benches[@]}"; do
    "$dir/target/release/$bench"
done
