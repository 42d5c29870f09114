#!/bin/sh
# A mount by FUSE on a disk of the kernel's, and a program that alone sees one: files are written,
# and the kernel's ext4 reads the same. A kernel that is too old for it is refused in words.
#
# machine: seconds=240
# nvme: a ns=64M/4096
. /lib.sh
modprobe nvme
modprobe fuse
until_true 10 disk a 1
dev=$(disk a 1)
uri=kernel:$dev
check "a file system" meantime fs mkfs "$uri"
dd if=/dev/urandom of=/tmp/data bs=64k count=80 2>/dev/null
sum=$(sha256sum </tmp/data)
mkdir /tmp/mnt
if ! since 5.13; then
    refused "no mount yet, in words" "Linux 5.13 or later is needed" meantime mount "$uri" /tmp/mnt
    refused "no run, in words" "Linux 5.13 or later is needed" meantime run --device "$uri" --at /tmp/mnt -- true
    check "nothing is mounted" sh -c '! grep fuse /proc/mounts'
    check "a file goes there without a mount" meantime fs put /tmp/data "$uri:/data"
    check "and is there" [ "$(meantime fs cat "$uri:/data" | sha256sum)" = "$sum" ]
    say "note no mount before Linux 5.13: that it is refused was tested"
    finish
fi

check "mount" meantime mount "$uri" /tmp/mnt
check "it is a mount" grep -q ' /tmp/mnt fuse' /proc/mounts
check "a file goes there" cp /tmp/data /tmp/mnt/data
check "by direct I/O, synced" dd if=/tmp/data of=/tmp/mnt/direct bs=64k oflag=direct conv=fsync
check "read back" [ "$(sha256sum </tmp/mnt/data)" = "$sum" ]
check "directories and names" sh -c 'cd /tmp/mnt && mkdir -p a/b && mv direct a/b/moved && ln -s a/b/moved link && ln data hard && rm data'
check "by a symbolic link" [ "$(sha256sum </tmp/mnt/link)" = "$sum" ]
check "its size" [ "$(stat -c %s /tmp/mnt/hard)" = 5242880 ]
check "umount" meantime umount /tmp/mnt
check "it is none any more" sh -c '! grep /tmp/mnt /proc/mounts'
check "nothing is damaged" meantime fs check "$uri"
check "run: it sees the file" meantime run --device "$uri" --at /tmp/mnt -- cmp /tmp/data /tmp/mnt/hard
check "run: it writes" meantime run --device "$uri" --at /tmp/mnt -- cp /tmp/data /tmp/mnt/more
check "nobody else saw that" sh -c '! grep /tmp/mnt /proc/mounts'

check "the kernel's ext4 mounts it" mount -t ext4 -o ro "$dev" /tmp/mnt
for name in a/b/moved hard link more; do
    check "the kernel's ext4 reads $name" [ "$(sha256sum <"/tmp/mnt/$name")" = "$sum" ]
done
umount /tmp/mnt
finish
