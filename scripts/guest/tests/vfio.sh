#!/bin/sh
# Our driver on a controller that is not ours, and the kernel's on the same one before and after:
# they agree on every byte.
#
# machine: seconds=420
# nvme: a ns=16M/512+16M/4096
# nvme: b ns=8M/4096
. /lib.sh
modprobe nvme
until_true 10 disk a 2
until_true 10 disk b 1
a=$(address a)

check "devices" meantime devices
for word in "$a" "$(address b)" nvme; do
    says "devices shows $word" "$word"
done

# What the kernel wrote, we read.
for nsid in 1 2; do
    dd if=/dev/urandom of="$(disk a $nsid)" bs=128k oflag=direct 2>/dev/null
    eval "kernel$nsid=$(kernel_sum a $nsid)"
done
check "bind" meantime bind "$a"
check "vfio-pci is in charge" is_driver "$a" vfio-pci
check "info" meantime info --device "vfio:$a"
says "info shows the model" "QEMU NVMe"
for nsid in 1 2; do
    eval "kernel=\$kernel$nsid"
    check "we read what the kernel wrote, namespace $nsid" [ "$(our_sum "vfio:$a?nsid=$nsid")" = "$kernel" ]
    cat /tmp/err
done

# What we write is right, however it is waited for.
for how in poll interrupt adaptive; do
    verified "vfio:$a?nsid=1" $how --rw randrw --bs 512 --size 3m
    verified "vfio:$a?nsid=1" $how --rw randrw --bs 4k --offset 4m --size 8m --iodepth 16
    verified "vfio:$a?nsid=1" $how --rw rw --bs 64k --size 8m --iodepth 4
    verified "vfio:$a?nsid=2" $how --rw randrw --bs 4k --size 16m --iodepth 8 --loops 2
    verified "vfio:$a?nsid=2" $how --rw randrw --bs 8k --size 8m --iodepth 4 --numjobs 2
    # Larger than a command may be: split.
    verified "vfio:$a?nsid=2" $how --rw randwrite --bs 512k --size 16m --iodepth 2
done

# And the other way round.
for nsid in 1 2; do
    eval "ours$nsid=$(our_sum "vfio:$a?nsid=$nsid")"
done
check "unbind" meantime unbind "$a"
check "the kernel's driver is back" is_driver "$a" nvme
check "its block devices too" until_true 10 disk a 2
for nsid in 1 2; do
    eval "ours=\$ours$nsid"
    check "the kernel reads what we wrote, namespace $nsid" [ "$(kernel_sum a $nsid)" = "$ours" ]
    say "image a$nsid $ours"
done

# A whole namespace from a pipe.
dd if=/dev/urandom of=/tmp/data bs=128k count=64 2>/dev/null
b=$(address b)
check "bind the other one" meantime bind "$b"
check "copy from a pipe" sh -c "meantime copy - 'vfio:$b' </tmp/data"
check "unbind the other one" meantime unbind "$b"
until_true 10 disk b 1
sum=$(sha256sum </tmp/data | cut -d ' ' -f 1)
check "the kernel reads what came from the pipe" [ "$(kernel_sum b 1)" = "$sum" ]
say "image b1 $sum"
finish
