#!/usr/bin/env bash
# The times of a file that QEMU exports by FUSE.
#
# qemu-storage-daemon --export fuse shows an image of any format as a raw file. One would expect
# that its modification time is the image's, or that of the start of the export, and in any case
# that it stays the same while nobody writes: programs tell by it whether a file has changed. Seen,
# with qemu-storage-daemon 10.0.13 and an export that cannot even be written (writable=off):
#
#   All three times of stat(2) are those of the call, in whole seconds.
#   The file is newer than one that was created after the export started.
#   GNU tar (1.35), which looks at a file before and after it has read it, says "file changed as we
#   read it" and exits with 1, if the second changes in between.
#   Once copied with its times (cp --preserve), the next cp --update copies it again.
#
# Needs /dev/fuse, open to the user.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

needs_fuse
trixie qemu-utils=1:10.0.13+ds-0+deb13u1 fuse3=3.17.2-3 tar=1.35+dfsg-3.1 coreutils=9.7-3

inside bash -euo pipefail -s >"$dir/seen" <<'INSIDE'
head -c 8M /dev/urandom >image
touch -d '2020-01-01 00:00:00 UTC' image
cp --preserve image export
qemu-storage-daemon --blockdev file,filename=image,node-name=n,read-only=on \
    --export fuse,id=e,node-name=n,mountpoint=export,writable=off &
wait_for grep -q "/export " /proc/mounts
cmp export image && echo same
sleep 1.1
touch later
sleep 1.1
before=$(date +%s) times=$(stat -c '%X %Y %Z' export) after=$(date +%s)
now=yes
for time in $times; do ((time >= before && time <= after)) || now=no; done
echo $now
stat -c %y export | cut -d. -f2 | cut -d' ' -f1
[ export -nt later ] && echo yes || echo no
# A reader of 8 MiB that takes more than a second.
echo 0 >status
{ tar -cf - export 2>message || echo $? >status; } | { sleep 1.5; cat >/dev/null; }
cat status
sed -n 's/.*: //p' message
cp --preserve export copy
sleep 1.1
cp --update --verbose export copy | wc -l
stat -c %Y image
fusermount3 -u export
INSIDE
mapfile -t seen <"$dir/seen"
compare "content" same same "${seen[0]}"
compare "times are those of the call of stat" no yes "${seen[1]}"
compare "nanoseconds" "those of the image" 000000000 "${seen[2]}"
compare "newer than a file created later" no yes "${seen[3]}"
compare "status of tar" 0 1 "${seen[4]}"
compare "what tar says" nothing "file changed as we read it" "${seen[5]}"
compare "files that cp --update copies again" 0 1 "${seen[6]}"
compare "modification time of the image" 1577836800 1577836800 "${seen[7]}"
exit "$failed"
