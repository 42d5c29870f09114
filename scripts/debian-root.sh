# Sourced. A bare Debian of its own, for what users install: it is kept in memory, since dpkg syncs
# all it writes, and removed again. The caller has `die` and `say`, is root, and calls
# `remove_debian` at its end.

root=""

# make_debian SUITE LOG: makes it at $root, from where this machine's apt has Debian, with its proxy.
make_debian() {
    local suite=$1 log=$2 mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        sed -n "s/ $suite main\$//p" | head -n 1)
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        grep -v -- -security | cut -d' ' -f1 | head -n 1)
    [ -n "$mirror" ] || die "apt on this machine has no package mirror configured"
    local http_proxy="" https_proxy=""
    eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
    export http_proxy https_proxy

    root=$(mktemp -d --tmpdir meantime-debian-XXXXXX)
    mount -t tmpfs -o mode=755,size=4G meantime-packages "$root"
    say "making a bare Debian ($suite) in $root"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$log" 2>&1 ||
        { tail -n 5 "$log" >&2; die "debootstrap failed"; }
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    inside useradd --create-home --shell /bin/bash user
}

remove_debian() {
    trap '' INT TERM HUP
    [ -n "$root" ] || return 0
    # Lazily: what still runs there keeps it until it has ended.
    umount -R "$root" 2>/dev/null || umount -Rl "$root" || true
    rmdir "$root"
}

# inside COMMAND...: as root in the new Debian. as_user COMMAND...: as its user.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { chroot --userspec=user:user "$root" env -i -C /home/user PATH=/usr/bin:/bin HOME=/home/user USER=user TERM=dumb LC_ALL=C.UTF-8 "$@"; }

# expect WHAT TEXT COMMAND...: the command succeeds, and its output has the text in it.
expect() {
    local what=$1 text=$2 output
    shift 2
    output=$("$@" 2>&1) || die "$what: failed: $output"
    [[ $output = *"$text"* ]] || die "$what: no '$text' in: $output"
    say "$what: as it should be"
}
