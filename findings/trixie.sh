# shellcheck shell=bash
# Sourced by the scripts beside it: packages of Debian 13 (trixie) with all that they need, unpacked
# into a temporary folder, and commands in there. Nothing is installed, and root is not needed: as
# another user it takes a user namespace.
#
# Needs apt-get, dpkg-deb and Debian's keyring (which Debian 12 has), and unshare of util-linux.

dir=$(mktemp -d)
root=$dir/root
trap 'rm -rf "$dir"' EXIT

# trixie PACKAGE=VERSION...: unpacks these, a shell and the common tools, and prints the versions.
trixie() {
    local mirror deb
    # shellcheck disable=SC2016 # apt expands these.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' | sed -nE 's/ (bookworm|trixie) main$//p' | head -n 1)
    [[ $mirror ]] || { echo "apt on this machine has no mirror of Debian configured" >&2; exit 1; }
    mkdir -p "$dir"/apt/{cache/archives/partial,state/lists/partial} "$root"
    : >"$dir/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
        >"$dir/apt/sources.list"
    printf '%s "%s";\n' Dir::Etc::sourcelist "$dir/apt/sources.list" Dir::Etc::sourceparts - \
        Dir::State "$dir/apt/state" Dir::State::status "$dir/apt/status" \
        Dir::Cache "$dir/apt/cache" APT::Sandbox::User root Debug::NoLocking 1 >"$dir/apt/conf"
    APT_CONFIG=$dir/apt/conf apt-get -qq update
    APT_CONFIG=$dir/apt/conf apt-get -qq --yes --no-install-recommends --download-only install \
        base-files bash coreutils dash diffutils findutils grep sed "$@" >"$dir/apt/log"
    for deb in "$dir"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
    rm -rf "$dir/apt"
    printf '%s\n' "$@"
}

# Inside: wait_for COMMAND...: until it succeeds, for ten seconds at most.
mkdir -p "$root/usr/bin"
cat >"$root/usr/bin/wait_for" <<'SCRIPT'
#!/bin/bash
for _ in {1..100}; do ! "$@" 2>/dev/null || exit 0; sleep 0.1; done
echo "not within ten seconds: $*" >&2
exit 1
SCRIPT
chmod +x "$root/usr/bin/wait_for"

# inside COMMAND...: in there, with /tmp as the current folder. What it leaves running ends with it.
inside() {
    local options=(--mount --pid --fork --kill-child)
    ((EUID == 0)) || options+=(--map-root-user)
    # shellcheck disable=SC2016 # The inner shell expands these.
    unshare "${options[@]}" bash -c '
        mkdir -p "$0/proc" "$0/dev"
        mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc" 2>/dev/null || mount --rbind /proc "$0/proc"
        exec chroot "$0" /usr/bin/env -i -C /tmp PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C "$@"
    ' "$root" "$@"
}

needs_fuse() {
    [[ -r /dev/fuse && -w /dev/fuse ]] || { echo "not run: /dev/fuse cannot be opened"; exit 0; }
}

failed=0
# compare WHAT EXPECTED DESCRIBED SEEN: what one would expect, what the header says, what came.
compare() {
    echo "$1: expected $2, seen $4"
    # shellcheck disable=SC2034 # The scripts exit with it.
    [[ $3 == "$4" ]] || { echo "    the description says: $3"; failed=1; }
}
