#!/bin/sh
# Very many verified commands over vfio-pci, by interrupt and polled, by two threads on two CPUs;
# small, since it is commands that count.
#
# machine: cpus=2 seconds=420
# nvme: a ns=16M/512
# nvme: b ns=64M/4096
. /lib.sh
modprobe nvme
until_true 10 disk a 1
until_true 10 disk b 1
a=$(address a) b=$(address b)
check "bind" meantime bind "$a"
check "bind" meantime bind "$b"
for how in poll interrupt; do
    verified "vfio:$a" $how --rw randrw --bs 512 --size 12m --iodepth 32
    verified "vfio:$b" $how --rw randrw --bs 4k --size 64m --iodepth 32 --numjobs 2
done
ours_a=$(our_sum "vfio:$a") ours_b=$(our_sum "vfio:$b")
check "unbind" meantime unbind "$a"
check "unbind" meantime unbind "$b"
until_true 10 disk b 1
check "the kernel reads the same" [ "$(kernel_sum a 1)$(kernel_sum b 1)" = "$ours_a$ours_b" ]
say "image a1 $ours_a"
say "image b1 $ours_b"
finish
