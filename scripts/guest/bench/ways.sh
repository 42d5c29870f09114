#!/bin/sh
# Ways to wait on one controller that answers at once, one after the other, as $rows orders them (by
# the kernel's command line); $size is the namespace's block size and that of the reads, $seconds
# how long each is measured. Reports go to the host whole.
#
# machine: seconds=600 kernel="nvme.poll_queues=1"
# nvme: a ns=1G/512+1G/4096 medium=null
. /lib.sh

nsid=1
[ "$size" = 512 ] || nsid=2
modprobe nvme
until_true 10 disk a $nsid
a=$(address a)
disk=$(disk a $nsid)
queue=/sys/block/$(basename "$disk")/queue

# measure ROW DEVICE POLICY
measure() {
    if ! meantime bench --device "$2" --completion "$3" --no-control --rw randread --bs "$size" --norandommap \
        --ramp-time 500ms --runtime "$seconds" --time-based --json /tmp/json >/tmp/out 2>&1; then
        fail "$1"
        cat /tmp/out
        return
    fi
    say "report $1" >/dev/null
    cat /tmp/json >/dev/ttyS1
    say "end"
}

for row in $(echo "$rows" | tr , ' '); do
    case $row in
        kernel-*)
            is_driver "$a" nvme || { meantime unbind "$a" && until_true 10 [ -e "$queue" ]; }
            delay=-1 how=poll
            case $row in
                *-interrupt) how=interrupt ;;
                # Half the mean of what the kernel has seen, and a time of our own.
                *-hybrid) delay=0 ;;
                *-hybrid-*) delay=${row##*-} ;;
            esac
            echo $delay >"$queue/io_poll_delay"
            measure "$row" "kernel:$disk" $how
            ;;
        ours-*)
            is_driver "$a" vfio-pci || meantime bind "$a"
            measure "$row" "vfio:$a?nsid=$nsid" "${row#ours-}"
            ;;
    esac
done
finish
