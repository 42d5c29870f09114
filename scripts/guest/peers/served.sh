#!/bin/sh
# Linux's own NVMe driver on a software SSD of ours, which a process outside serves: verified I/O by
# interrupt and polled, the same data after a reset of the controller. scripts/guest/served.sh
# starts it.
. /lib.sh
modprobe nvme
until_true 20 test -b /dev/nvme0n1
serial=$(tr -d ' ' </sys/class/nvme/nvme0/serial)
check "it is the one outside" [ "$serial" = SERVED ]
for how in interrupt poll; do
    before=$(interrupts nvme0q)
    verified kernel:/dev/nvme0n1 $how --rw randrw --bs 4k --size 4m --iodepth 4
    had=$(($(interrupts nvme0q) - before))
    if [ $how = poll ]; then
        check "$how: $had interrupts" [ $had -lt 20 ]
    else
        check "$how: $had interrupts" [ $had -gt 200 ]
    fi
done
verified kernel:/dev/nvme0n1 interrupt --rw randrw --bs 128k --size 16m --iodepth 4
sum=$(kernel_sum SERVED 1)
echo 1 >/sys/class/nvme/nvme0/reset_controller
check "the same data after a reset" [ "$(kernel_sum SERVED 1)" = "$sum" ]
finish
