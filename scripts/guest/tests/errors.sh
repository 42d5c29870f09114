#!/bin/sh
# A device that cannot read one block and cannot write another: these commands fail by name,
# everything else is right.
#
# machine: seconds=180
# nvme: a ns=16M/512 error=read:2048 error=write:4096
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)
check "bind" meantime bind "$a"
for how in poll interrupt; do
    refused "$how: a read error, by name" "read at LBA 2048: .*Unrecovered Read Error" \
        meantime bench --device "vfio:$a" --completion $how --no-control --rw read --bs 4k --offset 512k --size 1m
    refused "$how: a write error, by name" "write at LBA 4096: .*Write Fault" \
        meantime bench --device "vfio:$a" --completion $how --no-control --rw write --bs 4k --offset 1536k --size 1m
    # What did not fail is what was written: the block of the write error is not known to hold
    # anything, that of the read error is not readable.
    meantime bench --device "vfio:$a" --completion $how --no-control --rw randwrite --bs 4k --size 8m --iodepth 8 --verify crc32c \
        --json /tmp/json >/tmp/out 2>&1
    check "$how: with errors the exit code is 1" [ $? = 1 ]
    check "$how: $(figure errors /tmp/json) errors" [ "$(figure errors /tmp/json)" = 2 ]
    check "$how: nothing else is wrong" [ "$(figure verify_errors /tmp/json)" = 0 ]
    check "$how: $(figure verified_blocks /tmp/json) blocks are right" [ "$(figure verified_blocks /tmp/json)" -gt 1000 ]
    fact "commands $(figure total_ios /tmp/json)"
    fact "verified $(figure verified_blocks /tmp/json)"
done
refused "copy stops, and says where" "read at LBA .*Unrecovered Read Error" sh -c "meantime copy 'vfio:$a' - >/dev/null"
check "unbind" meantime unbind "$a"
finish
