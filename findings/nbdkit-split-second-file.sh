#!/usr/bin/env bash
# nbdkit's split plugin: where a write to its second file goes.
#
# The plugin "split" serves several files, logically concatenated, as one disk. Its manual page
# lists what it does not do as well as the plugin "file"; writing is not among that, and it offers
# to be written. One would expect that what is written is read back, and that the files keep their
# sizes, of which the disk's is the sum. Seen, with nbdkit 1.42.3 and two files of 512 KiB:
#
#   Reads are right in both files.
#   A write to the first file is right.
#   A write of 4096 bytes to the disk's byte 524288, which is the first one of the second file, gets
#   the answer that it succeeded. It goes to byte 524288 of the second file, whose size is 528384
#   afterwards. A read of the same bytes still returns what the file had there.
#   qemu-img convert (10.0.13) of 1 MiB to that disk exits with 0; the second half is not there.
#
# The next start of nbdkit with the same files serves a larger disk. 1.48.1 does the same with the
# write of 4096 bytes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

trixie nbdkit=1.42.3-1 python3-libnbd=1.22.2-1+b1 libnbd-bin=1.22.2-1+b1 \
    qemu-utils=1:10.0.13+ds-0+deb13u1

inside bash -euo pipefail -s >"$dir/seen" <<'INSIDE'
fill() { head -c 524288 /dev/zero | tr '\0' "$1"; }
fill a >first
fill b >second
nbdkit -U - split first second --run 'nbdsh -u "$uri" -c "
def name(b):
    return chr(b[0]) if b == b[:1] * len(b) else \"mixed\"
print(h.get_size())
print(name(h.pread(524288, 0)), name(h.pread(524288, 524288)))
h.pwrite(b\"x\" * 4096, 0)
print(name(h.pread(4096, 0)))
h.pwrite(b\"y\" * 4096, 524288)
print(name(h.pread(4096, 524288)))
"'
stat -c %s first second | xargs
tail -c 4096 second | tr -d y | wc -c
nbdkit -U - split first second --run 'nbdinfo --size "$uri"'

truncate -s 512K third fourth
{ fill c; fill d; } >whole
nbdkit -U - split third fourth --run 'qemu-img convert -n -f raw -O raw whole "$uri"; echo $?'
fill c | cmp -s - third && echo same || echo different
head -c 524288 fourth | tr -d '\0' | wc -c
INSIDE
mapfile -t seen <"$dir/seen"
compare "size of the disk" 1048576 1048576 "${seen[0]}"
compare "both files, as read" "a b" "a b" "${seen[1]}"
compare "read after a write of x to the first file" x x "${seen[2]}"
compare "read after a write of y to the second file" y b "${seen[3]}"
compare "sizes of the files" "524288 524288" "524288 528384" "${seen[4]}"
compare "bytes other than y in the second file's last 4096" 4096 0 "${seen[5]}"
compare "size of the disk when served again" 1048576 1052672 "${seen[6]}"
compare "status of qemu-img convert" 0 0 "${seen[7]}"
compare "the first half of what it copied" same same "${seen[8]}"
compare "bytes other than zero in its second half" 524288 0 "${seen[9]}"
exit "$failed"
