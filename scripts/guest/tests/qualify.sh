#!/bin/sh
# `meantime qualify` on controllers of others: QEMU's, with blocks of 4096 and of 512 bytes, and
# Linux's NVMe/TCP target. What deviates is what the specification says is wrong with them.
#
# machine: cpus=2 seconds=420
# nvme: a ns=32M/4096 ns=16M/512
. /lib.sh
# deviating FILE: the names of the checks that deviate.
deviating() { awk -F '"' '$2 == "name" { name = $4 } /"verdict": "deviates"/ { print name }' "$1" | xargs; }
# qualified NAME URI CHECKS: with writes, CHECKS deviate and no others.
qualified() {
    serial=$(meantime info --device "$2" --json | sed -nE 's/.*"serial": "([^"]*)".*/\1/p')
    meantime qualify "$2" "--destroy=$serial" --runtime 200ms --timeout 20 --json /tmp/report >/tmp/out 2>&1
    check "$1: the exit status" [ $? = 3 ]
    cat /tmp/report | grep '"what"'
    check "$1: $(deviating /tmp/report)" [ "$(deviating /tmp/report)" = "$3" ]
    check "$1: a writer was killed" grep -q '"title": "The writing process is killed"' /tmp/report
}

modprobe nvme
until_true 10 disk a 2
address=$(address a)
check "bind" meantime bind "$address"
# QEMU 7.2: the namespace has neither EUI64, NGUID nor UUID (1.4 §5.15.2.4 requires one). The
# firmware log has another revision than Identify (§5.15.2.2: the same), and the commands log has
# Verify, which ONCS does not have (§5.15.2.2).
for nsid in 1 2; do
    qualified "QEMU, namespace $nsid" "vfio:$address?nsid=$nsid" "namespace-lists other-logs"
done
check "unbind" meantime unbind "$address"

# Linux 6.1: the firmware log is all zeroes, so that slot 0 is active, which does not exist (1.4
# §5.14.1.3). Five features that are mandatory (§5.21.1) are refused. A namespace number above NN is
# not refused, but described by zeroes (§6.1.2).
nqn=nqn.2014-08.org.example:linux-target
ram_disk nullb0 512 32
target_up $nqn /dev/nullb0
qualified "Linux's target" "nvme+tcp://127.0.0.1/$nqn" "other-logs features refusals"
finish
