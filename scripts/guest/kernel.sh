#!/usr/bin/env bash
# kernel.sh SUITE: fetches Debian's kernel of SUITE (trixie: 6.12, bookworm: 6.1, bullseye: 5.10) and
# unpacks what a guest needs of it.
#
# Prints the directory, target/guest/kernel/SUITE: `vmlinux` (ELF, booted by PVH: three seconds less
# than unpacking itself) and `lib/modules/VERSION`. What is there is kept; remove the directory for
# a newer one. Nothing is installed, root is not needed. The package mirror is the one this machine
# is configured for, with only the suite changed; packages are verified by apt as ever.
set -euo pipefail
cd "$(dirname "$0")/../.."

suite=${1:?usage: kernel.sh SUITE}
dir=$PWD/target/guest/kernel/$suite
# Of 400 MB of modules, those of directories that NVMe, NVMe/TCP and VFIO need something from, ext4
# and FUSE.
modules=(
    './lib/modules/*/modules.*' './lib/modules/*/kernel/drivers/'{nvme,vfio,block}'/*'
    './lib/modules/*/kernel/'{lib,crypto,arch,virt,block}'/*' './lib/modules/*/kernel/fs/'{configfs,ext4,fuse,jbd2}'/*'
    './lib/modules/*/kernel/fs/mbcache.ko*'
)
# One that was fetched before a module was wanted has a shorter list.
if [ -e "$dir/vmlinux" ] && [ "$(cat "$dir/wanted" 2>/dev/null)" = "${modules[*]}" ]; then
    echo "$dir"
    exit 0
fi
die() { echo "guest: $*" >&2; exit 1; }
command -v apt-get >/dev/null || die "no apt-get here: the guest's kernel comes from a Debian mirror"

apt=$PWD/target/guest/apt/$suite
rm -rf "$dir.new" "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$dir.new"

# A mirror has a release's packages in one place and its security updates in another: both keep
# their own.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
options=check-valid-until=no
[ ! -e $keyring ] || options="$options signed-by=$keyring"
apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | sort -u |
    while read -r uri release; do
        case $release in
            *-security) echo "deb [$options] $uri $suite-security main" ;;
            *-*) ;; # updates, backports: not needed
            *) echo "deb [$options] $uri $suite main" ;;
        esac
    done | sort -u >"$apt/sources.list"
grep -q . "$apt/sources.list" || die "apt on this machine has no package mirror configured"

# No translations and the like, and nothing of this machine's own lists is touched.
aptopts=(
    -qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$apt/lists"
    -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o APT::Architecture=amd64
    -o APT::Architectures=amd64
)
log=$apt/log
# A mirror may lack a suite in one of its two places (an old one's may have moved to an archive):
# then the other will do.
apt-get "${aptopts[@]}" update >"$log" 2>&1 || true
package=$(apt-cache "${aptopts[@]}" depends linux-image-amd64 2>>"$log" | sed -nE 's/^ *Depends: (linux-image-[0-9].*)/\1/p')
if [ -z "$package" ]; then
    cat "$log" >&2
    die "the package mirror of this machine has no kernel of $suite (or cannot be reached)"
fi
echo "guest: fetching $package ($suite)" >&2
(cd "$apt/cache" && apt-get "${aptopts[@]}" download "$package" >>"$log" 2>&1) || { cat "$log" >&2; die "cannot fetch $package"; }
dpkg-deb --fsys-tarfile "$apt"/cache/linux-image-*.deb >"$apt/linux.tar"
# Since trixie modules are beneath /usr, and compressed.
if tar -tf "$apt/linux.tar" './usr/lib/modules' >/dev/null 2>&1; then
    modules_there=("${modules[@]/#.\/lib/./usr/lib}")
else
    modules_there=("${modules[@]}")
fi
tar -xf "$apt/linux.tar" -C "$dir.new" --transform 's,^\./usr/lib,./lib,' --wildcards './boot/vmlinuz-*' "${modules_there[@]}"
find "$dir.new/lib" -name '*.ko.xz' -exec xz -d {} +
python3 scripts/guest/vmlinux.py "$dir.new"/boot/vmlinuz-* "$dir.new/vmlinux"
version=$(basename "$dir.new"/lib/modules/*)
# The package brings no index of its modules: installing it makes one.
PATH=$PATH:/usr/sbin:/sbin depmod -b "$dir.new" "$version"
rm -rf "$dir.new/boot" "$apt"
echo "${modules[*]}" >"$dir.new/wanted"
rm -rf "$dir"
mv "$dir.new" "$dir"
echo "$dir"
