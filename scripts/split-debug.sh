#!/usr/bin/env bash
# split-debug.sh FILE...
#
# Takes the debug information out of programs and libraries, and puts it beside each as FILE.debug.
# Debuggers, perf and backtraces find it there (or in .debug/ beside, or in /usr/lib/debug) by the
# link that is left; without it backtraces still have the names of functions.
set -euo pipefail

for file in "$@"; do
    # Nothing new was built. (grep -q ends before readelf does, which pipefail takes for a no.)
    readelf -SW "$file" | grep ' \.debug_info ' >/dev/null || continue
    objcopy --only-keep-debug --compress-debug-sections "$file" "$file.debug"
    chmod a-x "$file.debug"
    # A file of its own: what cargo has by another name (a hard link) stays whole.
    objcopy --strip-debug --add-gnu-debuglink="$file.debug" "$file" "$file.stripped"
    mv -f "$file.stripped" "$file"
done
