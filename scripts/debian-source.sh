#!/usr/bin/env bash
# debian-source.sh PACKAGE SUITE DIRECTORY: fetches the source package of a Debian suite.
#
# The package mirror is the one this machine is configured for, with only the suite changed. apt
# checks what it fetches against the signed sums. Nothing is installed, and root is not needed.
set -euo pipefail
package=$1 suite=$2 directory=$3

die() { echo "debian-source: $*" >&2; exit 1; }
command -v apt-get >/dev/null || die "no apt-get here: $package's source comes from a Debian mirror"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || die "no $keyring: install debian-archive-keyring"

apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt"/{lists,cache}/partial "$directory"
# A mirror has a release's packages in one place and its security updates in another: the first.
apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    while read -r uri release; do
        case $release in
            *-security) ;;
            *) echo "deb-src [signed-by=$keyring check-valid-until=no] $uri $suite main" ;;
        esac
    done | sort -u >"$apt/sources.list"
grep -q . "$apt/sources.list" || die "apt on this machine has no package mirror configured"

# What is installed does not count: apt would look for the source of that version.
: >"$apt/status"
apt_get() {
    apt-get -qq -o Dir::State::status="$apt/status" \
        -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}
# A mirror may lack the suite in one of its places, and a package a detached signature: what counts
# is whether the source is there.
apt_get update >"$apt/log" 2>&1 || true
(cd "$directory" && apt_get source --download-only "$package") >>"$apt/log" 2>&1 || true
ls "$directory/${package%%=*}"_*.orig.tar.* >/dev/null 2>&1 || {
    cat "$apt/log" >&2
    die "the package mirror of this machine has no source of $package ($suite), or cannot be reached"
}
