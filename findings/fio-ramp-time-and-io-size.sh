#!/usr/bin/env bash
# fio: what ramp_time does to the two options that say how much I/O is done.
#
# ramp_time is documented as the time for which the workload runs "before logging any performance
# numbers". io_size is how much I/O a job does, number_ios how many I/Os. One would expect both to
# mean the same amount: either both with the ramp or both without it. Seen, with fio 3.39 (and
# 3.41), in jobs of 4096-byte I/Os at 1000 a second with a ramp of one second:
#
#   number_ios=1500   1500 I/Os are reported, of 1.5 seconds: the ramp's are not counted
#   io_size=6000k     which is 1500 I/Os, too: about 500 are reported, of half a second: the ramp's
#                     are counted
#   size=6000k        as io_size
#   io_size=2000k     which the ramp alone would do: 500 I/Os are reported, of half a second, as
#                     many as without a ramp: the job ends in its ramp, and all of it is reported
#
# So the same amount of I/O is reported as a third of itself, and one that is smaller than the ramp
# as itself, though none of that was done after the ramp.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

trixie fio=3.39-1

# Prints how many I/Os the job reports, and its runtime, to the nearest 500 and 0.5 s.
job() {
    inside fio --name=job --ioengine=null --bs=4k --rate_iops=1000 --output-format=json "$@" |
        python3 -c '
import json, sys
read = json.load(sys.stdin)["jobs"][0]["read"]
print(round(read["total_ios"] / 500) * 500, "I/Os in", round(read["runtime"] / 500) / 2, "s")'
}
ramp=(--ramp_time=1)
compare number_ios=1500 "1500 I/Os in 1.5 s" "1500 I/Os in 1.5 s" \
    "$(job "${ramp[@]}" --size=1G --number_ios=1500)"
compare io_size=6000k "the same" "500 I/Os in 0.5 s" "$(job "${ramp[@]}" --size=1G --io_size=6000k)"
compare size=6000k "the same" "500 I/Os in 0.5 s" "$(job "${ramp[@]}" --size=6000k)"
compare io_size=2000k "no I/O, or 500 after the ramp" "500 I/Os in 0.5 s" \
    "$(job "${ramp[@]}" --size=1G --io_size=2000k)"
compare "io_size=2000k, without the ramp" "500 I/Os in 0.5 s" "500 I/Os in 0.5 s" \
    "$(job --size=1G --io_size=2000k)"
exit "$failed"
