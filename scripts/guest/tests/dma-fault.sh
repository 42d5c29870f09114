#!/bin/sh
# Whether this rig would notice a DMA to where it may not go: that the other tests see none is worth
# as much as this one sees.
#
# A controller in nobody's charge is told by hand of an admin queue at an address that the IOMMU has
# not mapped. (QEMU lets such a command end well: only the kernel's log tells.)
#
# nvme: a ns=16M/512
. /lib.sh
modprobe nvme
until_true 10 disk a 1
address=$(address a)
dev=/sys/bus/pci/devices/$address
echo "$address" >"$dev/driver/unbind"

check "nothing to notice yet" sh -c '. /lib.sh; ! dmesg | dma_faults'
bar=$(cut -d ' ' -f 1 "$dev/resource" | head -n 1)
reg() { devmem $((bar + $1)) 32 "$2"; }
# PCI command register: memory decoding and bus mastering.
printf '\006' | dd of="$dev/config" bs=1 seek=4 conv=notrunc 2>/dev/null
rdy() { [ $(($(devmem $((bar + 0x1c)) 32) & 1)) = "$1" ]; }
reg 0x14 0 # CC: the kernel's driver has left it enabled
check "the controller is disabled" until_true 10 rdy 0
reg 0x24 0x001f001f # AQA: 32 entries each
reg 0x28 0xdead1000 # ASQ
reg 0x2c 0
reg 0x30 0xdead2000 # ACQ
reg 0x34 0
reg 0x14 0x00460001 # CC: sizes of entries, enable
check "the controller is ready" until_true 10 rdy 1
reg 0x1000 1 # the admin queue's doorbell: a command to fetch
# Linux 5.10 writes the address without 0x.
noticed() { dmesg | dma_faults | grep -Eq 'addr (0x)?dead1'; }
check "the fault is noticed" until_true 10 noticed
dmesg | dma_faults
# Not `finish`, which takes it for a failure.
say "done"
exit $((failures > 0))
