#!/usr/bin/env bash
# stages.sh STAGE...: makes one target after the other, and says at the end how long each took, and
# which tests were slowest. A stage is a target, or several lanes of targets at the same time:
# 'a b | c' makes b after a, and c meanwhile. What a lane says is shown when it has ended; all but
# the first are nice.
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
        # shellcheck disable=SC2086
        { [ "$at" = 0 ] || renice -n 10 $BASHPID >/dev/null; lane ${lanes[at]}; } \
            >"$said/$at" 2>&1 &
        pids+=($!)
    done
    for at in "${!lanes[@]}"; do
        wait "${pids[at]}" || status=1
        cat "$said/$at"
    done
    [ "$status" = 0 ] || exit 1
done
