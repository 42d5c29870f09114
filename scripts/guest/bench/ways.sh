#!/bin/sh
# Ways to wait, one after the other, as $rows orders them (by the kernel's command line): a row is
# CONTROLLER/BYTES/WAY. BYTES is the namespace's block size and that of the reads. Each row is
# measured for $ms. Reports go to the host whole, with the numbers of interrupts and of reads that
# the kernel has counted meanwhile.
#
# machine: seconds=600 kernel="nvme.poll_queues=1"
# nvme: null ns=1G/512+1G/4096 medium=null
# nvme: slow ns=1G/512 medium=null latency_us=100
. /lib.sh

modprobe nvme
until_true 10 disk null 2
until_true 10 disk slow 1
null=$(address null) slow=$(address slow)

# measure ROW DEVICE POLICY DISK: DISK is the kernel's, or none.
measure() {
    before_interrupts=$(interrupts nvme) before_reads=$(reads "$4")
    if ! meantime bench --device "$2" --completion "$3" --no-control --rw randread --bs "$bytes" --norandommap \
        --ramp-time 500ms --runtime "${ms}ms" --time-based --json /tmp/json >/tmp/out 2>&1; then
        fail "$1"
        cat /tmp/out
        return
    fi
    say "report $1 $(($(interrupts nvme) - before_interrupts)) $(($(reads "$4") - before_reads))" >/dev/null
    cat /tmp/json >/dev/ttyS1
    say "end"
}

# reads DISK: how many reads the kernel has done on it.
reads() { [ -z "$1" ] && echo 0 || awk '{ print $1 }' "/sys/block/$1/stat"; }

for row in $(echo "$rows" | tr , ' '); do
    controller=${row%%/*} way=${row##*/}
    bytes=${row#*/} && bytes=${bytes%/*}
    case $controller in
        null) a=$null ;;
        slow) a=$slow ;;
    esac
    nsid=1
    [ "$bytes" = 512 ] || nsid=2
    case $way in
        kernel-*)
            is_driver "$a" nvme || meantime unbind "$a"
            until_true 10 disk "$controller" $nsid
            disk=$(basename "$(disk "$controller" $nsid)")
            delay=-1 how=poll
            case $way in
                *-interrupt) how=interrupt ;;
                # Half the mean of what the kernel has seen, and a time of our own.
                *-hybrid) delay=0 ;;
                *-hybrid-*) delay=${way##*-} ;;
            esac
            echo $delay >"/sys/block/$disk/queue/io_poll_delay"
            measure "$row" "kernel:/dev/$disk" $how "$disk"
            ;;
        ours-*)
            is_driver "$a" vfio-pci || meantime bind "$a"
            measure "$row" "vfio:$a?nsid=$nsid" "${way#ours-}" ""
            ;;
    esac
done
finish
