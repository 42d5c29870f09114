#!/bin/sh
# A machine whose IOMMU is off, and addresses that are nothing: an error that says what to do, and
# nothing is touched.
#
# machine: kernel="intel_iommu=off"
# nvme: a ns=16M/512
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)
refused "bind" "intel_iommu=on" meantime bind "$a"
refused "bind by force" "intel_iommu=on" meantime bind --force "$a"
refused "vfio:" "intel_iommu=on" meantime bench --device "vfio:$a" --no-control --rw randread --number-ios 10
check "the kernel's driver is in charge" is_driver "$a" nvme
check "its disk is there" disk a 1
for wrong in 0000:00:1e.7 99:00.0 nvme9 nonsense; do
    refused "no device: $wrong" "$wrong" meantime bind "$wrong"
done
check "devices" meantime devices
says "devices shows it" "$a"
check "nothing to repair" meantime devices --repair
finish
