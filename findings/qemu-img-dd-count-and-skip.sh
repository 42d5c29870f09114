#!/usr/bin/env bash
# qemu-img dd with both count= and skip=: how much is copied.
#
# The manual page of qemu-img says that with count=BLOCKS "dd will stop reading input after reading
# BLOCKS input blocks", and gives skip=BLOCKS in the synopsis, as those of dd(1). Whoever cuts a
# part out of an image (a partition, say) expects of them what dd(1) does: skip that many blocks,
# then copy that many. Seen, with qemu-img 10.0.13, in an image of 4 MiB, with the status 0
# throughout:
#
#   bs=1M count=2          2 MiB, as dd(1)
#   bs=1M skip=1           3 MiB, as dd(1)
#   bs=1M count=2 skip=1   1 MiB: the skipped blocks are counted, too
#   bs=1M count=2 skip=2   nothing: an empty file
#   bs=64k count=10 skip=4 6 blocks of 64 KiB
#
# What is copied is right. It is the start of what was asked for, and nothing says that the rest is
# missing. 11.1.3 does the same.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

trixie qemu-utils=1:10.0.13+ds-0+deb13u1
head -c 4M /dev/urandom >"$root/tmp/whole.raw"

while read -r described operands; do
    read -ra operands <<<"$operands"
    rm -f "$root/tmp/part.raw"
    inside qemu-img dd -f raw -O raw if=whole.raw of=part.raw "${operands[@]}" || failed=1
    dd if="$root/tmp/whole.raw" of="$root/tmp/expected.raw" status=none "${operands[@]}"
    seen=$(stat -c %s "$root/tmp/part.raw")
    expected=$(stat -c %s "$root/tmp/expected.raw")
    compare "bytes with ${operands[*]}" "$expected" "$described" "$seen"
    cmp -n "$seen" "$root/tmp/part.raw" "$root/tmp/expected.raw" || failed=1
done <<'CASES'
2097152 bs=1M count=2
3145728 bs=1M skip=1
1048576 bs=1M count=2 skip=1
0 bs=1M count=2 skip=2
393216 bs=64k count=10 skip=4
CASES
exit "$failed"
