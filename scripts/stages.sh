#!/usr/bin/env bash
# stages.sh TARGET...: makes each target, and says at the end how long each took.
set -uo pipefail
cd "$(dirname "$0")/.."

times=$(mktemp)
trap 'echo "stage: wall, CPU in seconds"; cat "$times"; rm -f "$times"' EXIT
for target; do
    echo "== $target"
    TIMEFORMAT="$target: %0R, %0U + %0S"
    { time "${MAKE:-make}" --no-print-directory "$target" 2>&3; } 3>&2 2>>"$times" || exit 1
done
