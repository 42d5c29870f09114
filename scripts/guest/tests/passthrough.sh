#!/bin/sh
# NVMe passthrough, `kernel:/dev/ng0n1`: verified I/O by interrupt and polled, on both formats, of
# one command and of several; the block device has the same bytes. What it cannot do says what can.
#
# machine: seconds=300 kernel="nvme.poll_queues=1"
# nvme: a ns=16M/512+16M/4096
# nvme: e ns=16M/512 error=read:2048
. /lib.sh
modprobe nvme
until_true 10 disk a 2
until_true 10 disk e 1
# generic SERIAL NSID: the namespace's character device.
generic() { disk "$1" "$2" | sed 's/nvme/ng/'; }
if ! since 5.19; then
    refused "no passthrough yet, in words" "takes I/O by it since 5.19; use the namespace's block device" \
        meantime bench --device "kernel:$(generic a 1)" --completion interrupt --no-control --rw read --bs 4k --number-ios 10
    verified "kernel:$(disk a 1)" interrupt --rw randrw --bs 4k --size 1m
    say "note no passthrough before Linux 5.19: that it is refused is all that was tested"
    finish
fi

for nsid in 1 2; do
    dev=$(disk a $nsid) ng=$(generic a $nsid)
    check "$ng is a character device" [ -c "$ng" ]
    for how in interrupt poll; do
        before=$(interrupts nvme)
        verified "kernel:$ng" $how --rw randrw --bs 4k --size 4m --iodepth 4
        had=$(($(interrupts nvme) - before))
        if [ $how = poll ]; then
            # What is not a transfer goes by interrupt, also Identify.
            check "kernel:$ng $how: $had interrupts" [ $had -lt 20 ]
        else
            check "kernel:$ng $how: $had interrupts" [ $had -gt 20 ]
        fi
        # More than one command can have.
        verified "kernel:$ng" $how --rw write --bs 1m --size 8m --iodepth 2 --fsync 4
    done
    check "info of kernel:$ng" meantime info --device "kernel:$ng"
    says "it has the health of $ng" "power cycles"
    # Written by one, read by the other, both ways.
    ours=$(our_sum "kernel:$ng")
    check "the block device of $ng has the same" [ "$ours" = "$(kernel_sum a $nsid)" ]
    dd if=/dev/urandom of="$dev" bs=64k count=16 seek=7 oflag=direct 2>/dev/null
    ours=$(our_sum "kernel:$ng")
    check "$ng has the same as its block device" [ "$ours" = "$(kernel_sum a $nsid)" ]
done

# A file system on it, whose file layer reads to pages that lie anywhere.
dd if=/dev/urandom of=/tmp/file bs=64k count=80 2>/dev/null
check "a file system" meantime fs mkfs "kernel:$ng"
check "a file goes there" meantime fs put /tmp/file "kernel:$ng:/file"
check "nothing is damaged" meantime fs check "kernel:$dev"
sum=$(sha256sum </tmp/file)
for there in "$ng" "$dev"; do
    check "the file by $there" [ "$(meantime fs cat "kernel:$there:/file" | sha256sum)" = "$sum" ]
    check "the file by $there, through a cache" meantime bench --device "kernel:$there:/file" --no-control --completion interrupt \
        --rw read --bs 256k --size 5m
done
say "image a2 $(kernel_sum a 2)"

dev=$(disk a 1) ng=$(generic a 1) e=$(generic e 1)
# one URI POLICY ARGUMENTS…: a short run.
one() {
    _uri=$1 _how=$2
    shift 2
    meantime bench --device "$_uri" --completion "$_how" --no-control --bs 4k --number-ios 100 "$@"
}
for how in interrupt poll; do
    refused "$how: a status, by name" "read at LBA 2048: .*Unrecovered Read Error" \
        meantime bench --device "kernel:$e" --completion $how --no-control --rw read --bs 4k --offset 512k --size 1m
done
refused "no preadv2" "leave engine=preadv2 out" one "kernel:$ng?engine=preadv2" interrupt --rw read
refused "no page cache" "leave direct=0 out" one "kernel:$ng?direct=0" interrupt --rw read
if since 6.12; then
    check "fixed=1" one "kernel:$ng?fixed=1" interrupt --rw read
else
    refused "fixed=1 needs a later kernel" "Linux 6.12" one "kernel:$ng?fixed=1" interrupt --rw read
fi
refused "no hybrid-min" "use poll, or the block device" one "kernel:$ng" hybrid-min --rw read
refused "no deallocation" "by passthrough: open its block device" one "kernel:$ng" interrupt --rw trim
refused "a controller is no namespace" "nor the character device of an NVMe namespace" one "kernel:/dev/nvme0" interrupt --rw read
refused "no such namespace" "use the namespace's block device" one "kernel:/dev/ng7n1" interrupt --rw read
chmod 666 "$ng" "$dev"
chmod 1777 /tmp
as_user() {
    su user -c "cd /tmp && meantime bench --device kernel:$ng --completion interrupt --no-control --rw read --bs 4k --number-ios 1"
}
if since 6.2; then
    check "whoever may open it, since Linux 6.2" as_user
else
    refused "root only, before Linux 6.2" "become root, or use kernel:$dev" as_user
fi

# What is in use is not written, though the driver would take it.
mkswap "$dev" >/dev/null && swapon "$dev"
refused "swap space" "swapoff" one "kernel:$ng" interrupt --rw write
check "swap space may be read" one "kernel:$ng" interrupt --rw read
swapoff "$dev"
refused "what is not in use is kept, too" "a swap area" one "kernel:$ng" interrupt --rw write
check "free again" one "kernel:$ng?overwrite=1" interrupt --rw write
# While we have it, nobody else takes it.
meantime bench --device "kernel:$ng?overwrite=1" --completion interrupt --no-control --rw randwrite --bs 4k --time-based --runtime 4 >/dev/null 2>&1 &
usleep 2000000
refused "not taken meanwhile" "busy" swapon "$dev"
wait

# Without queues to poll, the module's parameter is named.
a=$(address a)
echo 0 >/sys/module/nvme/parameters/poll_queues
echo "$a" >"/sys/bus/pci/drivers/nvme/unbind"
echo "$a" >"/sys/bus/pci/drivers/nvme/bind"
until_true 10 disk a 1
refused "no queues to poll" "nvme.poll_queues=N" one "kernel:$(generic a 1)" poll --rw read
check "by interrupt all the same" one "kernel:$(generic a 1)" interrupt --rw read
say "image a1 $(our_sum "kernel:$(generic a 1)")"
finish
