#!/bin/sh
# docs/first-ssd.md, each of its commands as it is typed there, on an SSD that the kernel has.
#
# machine: cpus=2 seconds=420
# nvme: a ns=64M/512
. /lib.sh
modprobe nvme
modprobe fuse
until_true 10 disk a 1
dev=$(disk a 1)
address=$(address a)
before=$(kernel_sum a 1)

check "devices" meantime devices
says "devices: the address" "$address"
check "huge pages" sh -c 'echo 64 >/proc/sys/vm/nr_hugepages'
check "info" meantime info --device "vfio:$address"
says "info: the model" "QEMU NVMe Ctrl"
meantime info --device "vfio:$address" --json >/tmp/json
serial=$(sed -nE 's/.*"serial": "([^"]*)".*/\1/p' /tmp/json)
check "info gives it back" until_true 10 disk a 1
check "bind" meantime bind "$address"
check "bench" meantime bench --device "vfio:$address" --rw randread --bs 4k --completion interrupt,poll,adaptive --runtime 2
cd /tmp
# QEMU's controller deviates, as scripts/guest/tests/qualify.sh argues.
meantime qualify "vfio:$address" --html ssd.html --timeout 20 >/tmp/said 2>&1
check "qualify" [ $? = 3 ]
check "what deviates is what deviates elsewhere" [ "$(grep -c ^deviates /tmp/said)" = 2 ]
check "there is a page" grep -q "Identify Controller" ssd.html
check "without the serial number" sh -c '! grep -q "serial number" ssd.html'
check "not a byte was changed" [ "$(our_sum "vfio:$address")" = "$before" ]
refused "another serial number" "is not the serial number" meantime qualify "vfio:$address" --destroy=other
check "and still not" [ "$(our_sum "vfio:$address")" = "$before" ]
meantime qualify "vfio:$address" "--destroy=$serial" --timeout 20 >/tmp/said 2>&1
check "qualify --destroy" [ $? = 3 ]
check "the same deviates" [ "$(grep -c ^deviates /tmp/said)" = 2 ]
check "a writer was killed" grep -Eq "conforms +The writing process is killed" /tmp/said
check "mkfs" meantime fs mkfs "vfio:$address"
mkdir -p /tmp/ssd
if since 5.13; then
    check "mount" meantime mount "vfio:$address" /tmp/ssd
    check "a file goes there" cp /etc/passwd /tmp/ssd
    check "umount" meantime umount /tmp/ssd
else
    check "a file goes there" meantime fs put /etc/passwd "vfio:$address:/passwd"
fi
refused "what has a file system is not overwritten" "overwrite=1" meantime qualify "vfio:$address" "--destroy=$serial"
check "unbind" meantime unbind "$address"
check "the kernel has it" until_true 10 disk a 1
check "devices shows what is on it" meantime devices
says "devices: the format" "holds +ext4"
check "the kernel's ext4 mounts it" mount -t ext4 -o ro "$dev" /tmp/ssd
check "the file is there" cmp /etc/passwd /tmp/ssd/passwd
refused "mounted, it is not taken" "mounted" meantime qualify "vfio:$address"
umount /tmp/ssd
finish
