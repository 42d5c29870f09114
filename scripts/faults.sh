#!/usr/bin/env bash
# faults.sh [NAME...]: shows that tests catch the faults in faults/, or those named.
#
# Each is a patch that says before its diff what it would do to a user, and on a line `Caught-by:`
# which tests catch it: arguments of `cargo nextest run`, or `loom` and arguments of `cargo test`.
# These pass without a fault, which is tried first. The faults are put into a worktree of what is
# committed or changed here, where git writes only what differs, so that cargo builds no more.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dir=$target/faults tree=$target/faults/tree limit_s=300
export PATH=$target/tools/bin:$PATH LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1 CARGO_PROFILE_TEST_DEBUG=0
names=("${@/#/faults/}")
[ $# -gt 0 ] || names=(faults/*.patch)
names=("${names[@]%.patch}")

# run SECONDS LOG TESTS [--no-run]: in the background, so that bash sees Ctrl-C meanwhile.
run() {
    local arguments command=(cargo nextest run) environment=()
    mapfile -t arguments < <(xargs printf '%s\n' <<<"$3")
    if [ "${arguments[0]}" = loom ]; then
        environment=("CARGO_TARGET_DIR=$dir/build/loom" "RUSTFLAGS=--cfg loom")
        command=(cargo test --profile loom) arguments=("${arguments[@]:1}")
    fi
    env -C "$tree" CARGO_TARGET_DIR="$dir/build" "${environment[@]}" timeout -k 20 "$1" \
        "${command[@]}" --locked "${@:4}" "${arguments[@]}" >"$2" 2>&1 &
    wait $!
}
trap 'kill $! 2>/dev/null; exit 130' INT TERM
first_failed() {
    sed -nE "s/^ *(FAIL|TIMEOUT|SIG[A-Z]+) \[[^]]*\] *(\([^)]*\) *)?//p
        s/^test (.*) \.\.\. FAILED/\1/p; s/^thread '([^']*)' .*panicked at.*/\1/p" "$1" | sed -n 1p
}
state=$(git -c user.name=faults -c user.email=faults stash create)
[ -e "$tree" ] || git worktree add --quiet --force --detach --no-checkout "$tree"
git -C "$tree" checkout --quiet --force --detach "${state:-$(git rev-parse HEAD)}"
mapfile -t all < <(sed -n 's/^Caught-by: //p' "${names[@]/%/.patch}" | sort -u)
for tests in "${all[@]}"; do
    run 0 "$dir/log" "$tests" --no-run && run "$limit_s" "$dir/log" "$tests" ||
        { tail -n 30 "$dir/log" >&2; echo "faults: these fail anyway: $tests" >&2; exit 1; }
done
caught=0
for name in "${names[@]}"; do
    log=$dir/${name##*/}.log status=0 said="broken: see $dir/${name##*/}.log"
    tests=$(sed -n 's/^Caught-by: //p' "$name.patch")
    if [ -n "$tests" ] && git -C "$tree" apply --recount "$PWD/$name.patch" >"$log" 2>&1 &&
        run 0 "$log" "$tests" --no-run && ! grep -q ^warning "$log"; then
        run "$limit_s" "$log" "$tests" || status=$?
        case $status in # 100 is nextest's if a test fails, 101 cargo's, the others timeout's.
            0) said="NOT CAUGHT" ;;
            100 | 101) said="caught by $(first_failed "$log")" caught=$((caught + 1)) ;;
            124 | 137) said="caught by a hang: $(first_failed "$log")" caught=$((caught + 1)) ;;
        esac
    fi
    echo "${name#faults/}: $said"
    git -C "$tree" checkout --quiet --force .
done
echo "$caught of ${#names[@]} faults caught, in $SECONDS s"
[ "$caught" = ${#names[@]} ]
