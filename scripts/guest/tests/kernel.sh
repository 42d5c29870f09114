#!/bin/sh
# The kernel's own stack as a device, `kernel:`: verified I/O by interrupt, polled and as either
# suits, on both formats; polled I/O interrupts nobody.
#
# machine: seconds=180 kernel="nvme.poll_queues=1"
# nvme: a ns=16M/512+16M/4096
. /lib.sh
modprobe nvme
until_true 10 disk a 2
for nsid in 1 2; do
    dev=$(disk a $nsid)
    verified "kernel:$dev" adaptive --rw randrw --bs 4k --size 4m --iodepth 1
    for how in interrupt poll; do
        before=$(interrupts nvme)
        verified "kernel:$dev" $how --rw randrw --bs 4k --size 4m --iodepth 4
        had=$(($(interrupts nvme) - before))
        if [ $how = poll ]; then
            # What is not a transfer goes by interrupt: flushes, and the log pages that are read now
            # and then.
            check "kernel:$dev $how: $had interrupts" [ $had -lt 20 ]
        else
            check "kernel:$dev $how: $had interrupts" [ $had -gt 20 ]
        fi
    done
    # What the controller says of itself, by the kernel's passthrough of admin commands.
    check "info of kernel:$dev" meantime info --device "kernel:$dev"
    says "it has the model of $dev" "QEMU NVMe"
    says "it has the health of $dev" "power cycles"
    ours=$(meantime copy "kernel:$dev" - 2>/dev/null | sha256sum | cut -d ' ' -f 1)
    check "copy of $dev" [ "$ours" = "$(kernel_sum a $nsid)" ]
    say "image a$nsid $ours"
done
finish
