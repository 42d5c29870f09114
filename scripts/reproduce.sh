#!/usr/bin/env bash
# reproduce.sh [--quick] [OPTION...]: `meantime reproduce` with everything that this machine can
# measure: the figures of a virtual machine first, if QEMU is installed and its kernels can be
# fetched. Options are those of `meantime reproduce`.
#
# Both parts go on where they were cut off.
set -euo pipefail
cd "$(dirname "$0")/.."

guest=out/guest.json
quick=()
[[ " $* " != *" --quick "* ]] || quick=(--quick)
if scripts/guest.sh reproduce --json "$guest" "${quick[@]}"; then
    set -- --guest "$guest" "$@"
else
    echo "reproduce: without the experiments of the virtual machine" >&2
fi
exec "${CARGO_TARGET_DIR:-target}/release/meantime" reproduce "$@"
