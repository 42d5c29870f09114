#!/usr/bin/env bash
# Two filters of nbdkit, and what nbdcopy gets of the data that they serve.
#
# NBD's extension "block status" tells where an export has holes that read as zeroes; nbdcopy skips
# them. nbdkit's filters pass the request for it on to what they are above, unless they answer it
# themselves. One would expect those that change what is read to answer it. Two do not; seen, with
# nbdkit 1.42.3 and libnbd 1.22.2, with the status 0 throughout:
#
#   cache   Right after 64 KiB are written to an export with a cache over an empty file, a read
#           returns them, and nbdinfo --map says that all is a hole. nbdcopy copies zeroes. After a
#           flush it copies what was written. (cache=writeback, which keeps what is written until a
#           flush, is the filter's default.)
#   ext2    It serves one file of an ext4 image, without writing anything. The map is that of the
#           image, from its first byte, not of the file. nbdcopy leaves zeroes where the image, at
#           the same offset, has a hole.
#
# In both cases nbdcopy --no-extents copies what is there. The manual pages of the filters do not
# warn of it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

trixie nbdkit=1.42.3-1 libnbd-bin=1.22.2-1+b1 python3-libnbd=1.22.2-1+b1 e2fsprogs=1.47.2-3+b12

echo "The cache filter, between a write and a flush:"
inside bash -euo pipefail -s >"$dir/seen" <<'INSIDE'
truncate -s 1M empty.raw
nbdkit -U - --filter=cache file empty.raw --run '
    nbdsh -u "$uri" -c "h.pwrite(b\"x\" * 65536, 0)"
    nbdsh -u "$uri" -c "print(h.pread(1 << 20, 0).count(b\"x\"))"
    nbdinfo --map "$uri"
    nbdcopy "$uri" copy.raw && tr -d "\0" <copy.raw | wc -c
    nbdcopy --no-extents "$uri" copy.raw && tr -d "\0" <copy.raw | wc -c
    nbdsh -u "$uri" -c "h.flush()"
    nbdcopy "$uri" copy.raw && tr -d "\0" <copy.raw | wc -c
'
INSIDE
mapfile -t seen <"$dir/seen"
compare "bytes written that a read finds" 65536 65536 "${seen[0]}"
compare "map" "data first" "0 1048576 3 hole,zero" "$(xargs <<<"${seen[1]}")"
compare "bytes written that nbdcopy finds" 65536 0 "${seen[2]}"
compare "bytes written that nbdcopy --no-extents finds" 65536 65536 "${seen[3]}"
compare "bytes written that nbdcopy finds after a flush" 65536 65536 "${seen[4]}"

echo "A file of 4 MiB in an ext4 image of 64 MiB:"
inside bash -euo pipefail -s >"$dir/seen" <<'INSIDE'
head -c 4M /dev/urandom >file
truncate -s 64M ext4.raw
mke2fs -q -t ext4 -b 4096 ext4.raw
debugfs -w -R 'write file file' ext4.raw >debugfs 2>&1
e2fsck -fn ext4.raw >debugfs 2>&1
nbdkit -r -U - --filter=ext2 file ext4.raw ext2file=/file --run '
    nbdcopy "$uri" copy.raw
    nbdcopy --no-extents "$uri" whole.raw'
# Reads without a client that asks for extents.
nbdkit -r -U - --filter=ext2 file ext4.raw ext2file=/file --run '
    nbdsh -u "$uri" -c "open(\"read.raw\", \"wb\").write(h.pread(h.get_size(), 0))"'
nbdkit -r -U - --filter=ext2 file ext4.raw ext2file=/file --run 'nbdinfo --map "$uri" >file.map'
nbdkit -r -U - --filter=truncate file ext4.raw truncate=4M --run 'nbdinfo --map "$uri" >image.map'
for copy in read copy whole; do
    stat -c %s $copy.raw
    cmp -s $copy.raw file && echo same || echo different
done
# Where it differs there is nothing but zeroes.
{ cmp -l copy.raw file || true; } | sed -E "s/^ *[0-9]+ +([0-9]+) .*/\1/" | sort -u | xargs
cmp -s file.map image.map && echo same || echo different
INSIDE
mapfile -t seen <"$dir/seen"
compare "bytes that reads find" "4194304, same" "4194304, same" "${seen[0]}, ${seen[1]}"
compare "bytes that nbdcopy finds" "4194304, same" "4194304, different" "${seen[2]}, ${seen[3]}"
compare "bytes that nbdcopy --no-extents finds" "4194304, same" "4194304, same" \
    "${seen[4]}, ${seen[5]}"
compare "octal values of the bytes that differ" none 0 "${seen[6]}"
compare "its map and that of the image's first 4 MiB" different same "${seen[7]}"
exit "$failed"
