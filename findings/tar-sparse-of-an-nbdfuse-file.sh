#!/usr/bin/env bash
# tar --sparse of a file that nbdfuse shows.
#
# nbdfuse (libnbd) mounts an export of NBD as a file. Its stat(2) has the size of the export, and 0
# as the number of 512-byte blocks allocated. GNU tar's --sparse is documented to handle sparse
# files efficiently. One would expect it to find the holes either with lseek(2) or by reading, as cp
# does. Seen, with nbdfuse 1.22.2, tar 1.35 and cp 9.7:
#
#   The file is 1 MiB of random bytes, and reads as that. cp --sparse=auto copies it.
#   lseek(SEEK_DATA) says that there is data from its first byte on.
#   tar without --sparse archives it: the archive has more than 1 MiB.
#   tar --sparse exits with 0. The archive has 10240 bytes; what it extracts is 1 MiB of zeroes.
#
# --hole-detection=seek and --hole-detection=raw change nothing: a file that occupies no block is
# one hole to tar before it looks for any.
#
# Needs /dev/fuse, open to the user.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

needs_fuse
trixie libnbd-bin=1.22.2-1+b1 fuse3=3.17.2-3 nbdkit=1.42.3-1 tar=1.35+dfsg-3.1 coreutils=9.7-3 \
    python3-minimal=3.13.5-1

inside bash -euo pipefail -s >"$dir/seen" <<'INSIDE'
head -c 1M /dev/urandom >disk.raw
mkdir mounted
nbdkit -f -r -U "$PWD/socket" file disk.raw &
wait_for test -S socket
nbdfuse --readonly mounted/disk "nbd+unix:///?socket=$PWD/socket" &
wait_for test -e mounted/disk
stat -c '%s bytes, %b blocks' mounted/disk
cmp mounted/disk disk.raw && echo same
cp --sparse=auto mounted/disk copy.raw
cmp copy.raw disk.raw && echo same
python3 -c 'import os; print(os.lseek(os.open("mounted/disk", os.O_RDONLY), 0, os.SEEK_DATA))'
tar -C mounted -cf plain.tar disk
tar -xOf plain.tar disk | cmp - disk.raw && echo same
for detection in '' --hole-detection=seek --hole-detection=raw; do
    tar -C mounted --sparse $detection -cf sparse.tar disk
    echo "$?, $(stat -c %s sparse.tar) bytes"
    tar -xOf sparse.tar disk | cmp -n 1048576 - /dev/zero && echo zeroes
done
fusermount3 -u mounted
INSIDE
mapfile -t seen <"$dir/seen"
compare "stat" "1048576 bytes, 2048 blocks" "1048576 bytes, 0 blocks" "${seen[0]}"
compare "what is read" same same "${seen[1]}"
compare "what cp --sparse=auto copies" same same "${seen[2]}"
compare "first data by lseek" 0 0 "${seen[3]}"
compare "what tar archives without --sparse" same same "${seen[4]}"
for at in 5 7 9; do
    compare "tar --sparse: status and archive" "0, more than 1048576 bytes" "0, 10240 bytes" \
        "${seen[at]}"
    compare "what it archives" same zeroes "${seen[at + 1]}"
done
exit "$failed"
