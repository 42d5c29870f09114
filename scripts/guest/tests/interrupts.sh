#!/bin/sh
# `interrupt` interrupts, `poll` does not: what the guest's kernel counted, while the bench runs.
#
# machine: seconds=180
# nvme: a ns=16M/512
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)
check "bind" meantime bind "$a"

# count POLICY: interrupts of ours in the middle of a run. (The kernel forgets the lines when the
# device is closed.)
count() {
    meantime bench --device "vfio:$a" --completion "$1" --no-control --rw randread --bs 4k --runtime "$(for_seconds 12)" --time-based \
        --json /tmp/json >/tmp/out 2>&1 &
    running=$!
    until_true 60 opened 1 || fail "$1: the bench does not open the device"
    sleep 1
    before=$(interrupts vfio-msix)
    sleep 2
    had=$(($(interrupts vfio-msix) - before))
    kill -0 $running 2>/dev/null || fail "$1: the bench has ended early"
    wait $running || { fail "$1: the bench has failed"; cat /tmp/out; }
}
count interrupt
check "interrupt: $had interrupts" [ "$had" -gt 200 ]
count poll
# Health is asked for now and then, by the admin queue.
check "poll: $had interrupts" [ "$had" -lt 5 ]
check "unbind" meantime unbind "$a"
finish
