#!/usr/bin/env bash
# stages.sh STAGE...: makes one target after the other, and says at the end how long each took, and
# which tests were slowest. A stage is a target, or several lanes of targets at the same time:
# 'a b | c' makes b after a, and c meanwhile, on what CPU a and b leave; what c says is
# shown when it has ended.
set -uo pipefail
cd "$(dirname "$0")/.."

times=$(mktemp) said=$(mktemp -d)
# The slowest tests, if they ran; then the stages.
summary() {
    ! grep -q '^tests:' "$times" || scripts/slowest.py || true
    echo "stage: wall, CPU in seconds"
    cat "$times"
    echo "all: $SECONDS"
    rm -rf "$times" "$said"
}
trap summary EXIT
# What runs in the background ignores Ctrl-C.
trap 'trap "" TERM; kill 0; exit 130' INT TERM
TIMEFORMAT="%0R, %0U + %0S"

# lane TARGET...: makes them in turn.
lane() {
    local target
    for target; do
        echo "== $target"
        { time "${MAKE:-make}" --no-print-directory "$target" 2>&3; } 3>&2 2>"$said/$target.time" ||
            { echo "== $target failed"; return 1; }
        echo "$target: $(cat "$said/$target.time")" >>"$times"
    done
}

status=0
for stage; do
    IFS='|' read -ra lanes <<<"$stage"
    if [ ${#lanes[@]} = 1 ]; then
        # shellcheck disable=SC2086
        lane $stage || exit 1
        continue
    fi
    pids=()
    for at in "${!lanes[@]}"; do
        [ "$at" != 0 ] || continue
        {
            chrt --idle --pid 0 $BASHPID
            # Cargo lets one at a time build: the first lane, which has built, is to be it.
            sleep 10
            # shellcheck disable=SC2086
            lane ${lanes[at]}
        } >"$said/$at" 2>&1 &
        pids[at]=$!
    done
    # shellcheck disable=SC2086
    lane ${lanes[0]} || status=1
    for at in "${!pids[@]}"; do
        wait "${pids[at]}" || status=1
        cat "$said/$at"
    done
    [ "$status" = 0 ] || exit 1
done
