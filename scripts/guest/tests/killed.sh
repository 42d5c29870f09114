#!/bin/sh
# Whatever ends a program that has taken a device from the kernel, the kernel gets it back: by
# itself, or by one command.
#
# machine: seconds=180
# nvme: a ns=16M/512
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)

# A run that takes the device for as long as it lasts.
start() {
    meantime bench --device "vfio:$a" --completion poll --no-control --rw randread --bs 4k --runtime 100 --time-based >/tmp/out 2>&1 &
    running=$!
    until_true 60 opened 1 || { fail "the bench takes the device"; cat /tmp/out; }
    sleep 2
}
back() { is_driver "$a" nvme && disk a 1; }

for signal in TERM:143 INT:130 HUP:129; do
    code=${signal#*:} signal=${signal%:*}
    start
    kill "-$signal" $running
    wait $running
    check "SIG$signal: the exit code tells" [ $? = "$code" ]
    check "SIG$signal: it is given back" until_true 10 back
done
start
kill -KILL $running
wait $running
check "SIGKILL: it is not given back" is_driver "$a" vfio-pci
check "devices --repair" meantime devices --repair
cat /tmp/out
check "SIGKILL: repaired" until_true 10 back
check "once more does no harm" meantime devices --repair
check "the kernel can use it" [ "$(kernel_sum a 1)" != "" ]

# What is bound on purpose stays, whoever of its users is killed.
check "bind" meantime bind "$a"
start
kill -KILL $running
wait $running
check "repair leaves what was bound" meantime devices --repair
check "it is bound" is_driver "$a" vfio-pci
verified "vfio:$a" poll --rw randrw --bs 4k --size 1m
check "unbind" meantime unbind "$a"
check "given back" until_true 10 back

# Nobody loses a mounted disk: here a swapped-on one.
mkswap "$(disk a 1)" >/dev/null && swapon "$(disk a 1)"
refused "a device that is in use is not taken" "swap" meantime bind "$a"
refused "not by force either" "swap" meantime bind --force "$a"
check "nothing was touched" is_driver "$a" nvme
swapoff "$(disk a 1)"
finish
