#!/bin/sh
# DH-HMAC-CHAP with Linux: our host on Linux's target, and Linux's host on ours, with each hash and
# with and without a group, one way and both ways; and what a wrong key gets.
#
# machine: cpus=2 seconds=420
. /lib.sh
# What hangs fails, and the test goes on.
meantime() { timeout 60 /bin/meantime "$@"; }
host=nqn.2014-08.org.example:host
key=DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:
hashed=DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:
other=DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:
groups="null ffdhe2048 ffdhe3072${long:+ ffdhe4096 ffdhe6144 ffdhe8192}"
# keys NAME KEY [KEY]: a file of keys for this host.
keys() {
    _name=$1
    shift
    echo "$host $*" >"/tmp/$_name"
    chmod 600 "/tmp/$_name"
}
keys one $key
keys both $hashed $other
keys wrong $other
for module in dh_generic hmac sha256_generic sha512_generic; do modprobe $module 2>/dev/null; done

# Linux's target.
theirs=nqn.2014-08.org.example:linux-target
ram_disk nullb0 4096 32
target_up $theirs /dev/nullb0
target_unlink $theirs
of_host=$nvmet/hosts/$host
mkdir "$of_host"
if [ -e "$of_host/dhchap_key" ]; then
    echo 0 >"$nvmet/subsystems/$theirs/attr_allow_any_host"
    ln -s "$of_host" "$nvmet/subsystems/$theirs/allowed_hosts/$host"
    target_link $theirs
    uri="nvme+tcp://127.0.0.1/$theirs?nsid=1&hostnqn=$host"
    for hash in sha256 sha384 sha512; do
        for group in $groups; do
            echo $key >"$of_host/dhchap_key"
            echo >"$of_host/dhchap_ctrl_key" 2>/dev/null
            echo "hmac($hash)" >"$of_host/dhchap_hash"
            check "their target takes $group" sh -c "echo $group >$of_host/dhchap_dhgroup"
            check "our host, $hash, $group" meantime info --device "$uri&dhchap_keys=/tmp/one"
            says "our host, $hash, $group: the model" "Linux"
        done
        echo $hashed >"$of_host/dhchap_key"
        echo $other >"$of_host/dhchap_ctrl_key"
        check "our host, $hash, both ways" meantime info --device "$uri&dhchap_keys=/tmp/both"
    done
    verified "$uri&dhchap_keys=/tmp/both" interrupt --rw randrw --bs 4k --size 4m --iodepth 8 --numjobs 2
    refused "our host without a key" "dhchap_keys=FILE" meantime info --device "$uri"
    refused "our host with a wrong key" "another key" meantime info --device "$uri&dhchap_keys=/tmp/wrong"
    target_unlink $theirs
else
    say "note not run: this kernel's target knows no DH-HMAC-CHAP"
fi

# Our target.
ours=nqn.2014-08.org.example:our-target
modprobe nvme-tcp
/bin/meantime ssd --tcp 127.0.0.1:4421 --nqn $ours --dhchap-keys /tmp/both "mem:32M?lba=4096" >/tmp/ssd.out 2>/tmp/ssd.err &
ssd=$!
check "our target listens" until_true 30 grep -q "is served at" /tmp/ssd.out
says_ssd() { grep -Eq "$1" /tmp/ssd.err; }
if linux_connect $ours "trsvcid=4421,hostnqn=$host,hostid=12345678-9abc-4def-8123-456789abcdef,dhchap_secret=$hashed" 2>/tmp/connect; then
    check "Linux's host finds its namespace" until_true 20 linux_disk $ours 1
    dev=$(linux_disk $ours 1)
    verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 4m --iodepth 8
    check "Linux's host disconnects" linux_disconnect $ours
    check "Linux's host, both ways" linux_connect $ours "trsvcid=4421,hostnqn=$host,hostid=12345678-9abc-4def-8123-456789abcdef,dhchap_secret=$hashed,dhchap_ctrl_secret=$other"
    check "it finds its namespace, too" until_true 20 linux_disk $ours 1
    check "Linux's host disconnects again" linux_disconnect $ours
    refused "Linux's host with a wrong key" "" linux_connect $ours "trsvcid=4421,hostnqn=$host,hostid=12345678-9abc-4def-8123-456789abcdef,dhchap_secret=$key"
    check "our target says why" until_true 10 says_ssd "$host was refused.*does not know the key"
else
    say "note not run: this kernel's host knows no DH-HMAC-CHAP"
    dmesg | tail -n 5 | while read -r line; do say "note $line"; done
fi
check "our host on our target" meantime info --device "nvme+tcp://127.0.0.1:4421/$ours?hostnqn=$host&dhchap_keys=/tmp/both"
kill -TERM $ssd
wait $ssd
check "the target ends well" [ $? = 0 ]
cat /tmp/ssd.err
finish
