#!/bin/sh
# Somebody resets the controller while I/O is under way: what was in flight is done again, all of it
# is right, and it goes on.
#
# machine: seconds=240
# nvme: a ns=32M/4096
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)
check "bind" meantime bind "$a"
for how in poll interrupt; do
    (
        meantime bench --device "vfio:$a" --completion $how --no-control --rw randrw --bs 4k --size 16m --iodepth 4 \
            --verify crc32c --time-based --runtime "$(for_seconds 14)" --json /tmp/$how.json >/tmp/$how.out 2>&1
        echo $? >/tmp/$how.status
    ) &
    check "$how: open" until_true 60 opened 1
    sleep 3
    check "$how: reset" sh -c "echo 1 >/sys/bus/pci/devices/$a/reset"
    check "$how: it ends" until_true 100 [ -e /tmp/$how.status ]
    cat /tmp/$how.out
    check "$how: nothing failed" [ "$(cat /tmp/$how.status) $(figure errors /tmp/$how.json)" = "0 0" ]
    check "$how: $(figure requeued /tmp/$how.json) commands were done again" [ "$(figure requeued /tmp/$how.json)" -gt 0 ]
    check "$how: nothing is wrong" [ "$(figure verify_errors /tmp/$how.json)" = 0 ]
    check "$how: it went on" [ "$(figure verified_blocks /tmp/$how.json)" -gt 1000 ]
    fact "commands $(figure total_ios /tmp/$how.json)"
    fact "verified $(figure verified_blocks /tmp/$how.json)"
    verified "vfio:$a" $how --rw randrw --bs 4k --size 8m --iodepth 4
done
ours=$(our_sum "vfio:$a")
check "unbind" meantime unbind "$a"
until_true 10 disk a 1
check "the kernel reads what we wrote" [ "$(kernel_sum a 1)" = "$ours" ]
say "image a1 $ours"
finish
