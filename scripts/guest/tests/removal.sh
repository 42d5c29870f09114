#!/bin/sh
# A controller is taken out of its slot while I/O is under way: its user hears of it at once, its
# neighbour does not.
#
# machine: cpus=2 seconds=180
# nvme: a at=port ns=16M/512
# nvme: b at=port ns=16M/4096
. /lib.sh
modprobe nvme
until_true 10 disk a 1
until_true 10 disk b 1
a=$(address a) b=$(address b)
check "bind a" meantime bind "$a"
check "bind b" meantime bind "$b"

# start NAME ADDRESS ARGUMENTS…: a run in the background, /tmp/NAME.out and /tmp/NAME.status.
start() {
    _run=$1 _at=$2
    shift 2
    (
        meantime bench --device "vfio:$_at" --no-control "$@" >"/tmp/$_run.out" 2>&1
        echo $? >"/tmp/$_run.status"
    ) &
}
gone() { [ ! -e "/sys/bus/pci/devices/$a" ]; }

start b "$b" --completion interrupt --rw randrw --bs 4k --runtime "$(for_seconds 25)" --time-based
start a "$a" --completion poll --rw randrw --bs 4k --runtime 100 --time-based
check "both are open" until_true 60 opened 2
sleep 3
say "host remove a"
check "its user ends" until_true 20 [ -e /tmp/a.status ]
check "with an error" [ "$(cat /tmp/a.status)" = 1 ]
check "which says so" grep -Eq "the device is gone" /tmp/a.out
cat /tmp/a.out
check "the kernel can let go of it" until_true 20 gone
check "the other one's goes on" until_true 60 [ -e /tmp/b.status ]
check "to a good end" [ "$(cat /tmp/b.status)" = 0 ]
cat /tmp/b.out
verified "vfio:$b" poll --rw randrw --bs 4k --size 4m --iodepth 4
check "unbind b" meantime unbind "$b"
check "devices has no record of a left" meantime devices --repair
finish
