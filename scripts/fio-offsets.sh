#!/usr/bin/env bash
# fio-offsets.sh [--build] VERSION...
#
# Writes crates/fio-engine/src/abi/table.rs: where fio of these versions, a column each, has what the engine
# uses. A C program measures it against fio's own headers. They come from Debian's source package,
# and stay in target/fio-VERSION/source. With --build it builds that fio there instead, for the
# tests, and prints the program's path.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "fio-offsets: $*" >&2; exit 1; }
build=
[ "${1:-}" != --build ] || { build=1; shift; }
[ $# -gt 0 ] || { sed -nE '2,/^$/s/^# ?//p' "$0" >&2; exit 2; }

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

# The suites that have a version, or had it.
suites() {
    case $1 in
        3.33) echo bookworm ;;
        3.39) echo trixie ;;
        *) echo forky sid ;;
    esac
}

# fetch VERSION: its source, configured as Debian does it. What the layout depends on beside the
# version (CUDA) is not in Debian's.
fetch() {
    local version=$1 suite source=target/fio-$1/source
    # The last that is written.
    [ ! -e "$source/configured" ] || return 0
    for suite in $(suites "$version"); do
        scripts/debian-source.sh fio "$suite" "$new" 2>>"$new/log" || true
        [ ! -e "$new/fio_$version.orig.tar.gz" ] || break
    done
    [ -e "$new/fio_$version.orig.tar.gz" ] || {
        cat "$new/log" >&2
        die "the package mirror has no fio $version"
    }
    rm -rf "$source"
    mkdir -p "$source"
    tar -x -C "$source" --strip-components 1 -f "$new/fio_$version.orig.tar.gz"
    (cd "$source" && ./configure --disable-native --prefix=/usr >configure.log) ||
        die "fio $version cannot be configured: $source/configure.log says why"
    touch "$source/configured"
}

# C: name of the constant, its Rust type and the member; the size of a member is checked. It prints
# a row for each: name and type, a tab, the value.
program() {
    cat <<'END'
#include <stdio.h>
#include "fio.h"
#include "optgroup.h"

#define FIELD(name, type, bytes, of, member)                                          \
    _Static_assert(sizeof(((of *)0)->member) == bytes, #name);                        \
    printf(#name ": Field<" type ">\tField::at(%zu)\n", offsetof(of, member))
#define NUMBER(name, type, value) printf(#name ": " type "\t%lld\n", (long long)(value))
#define PTR(name, of, member) FIELD(name, "Ptr", 8, of, member)
#define I32(name, of, member) FIELD(name, "i32", 4, of, member)
#define U32(name, of, member) FIELD(name, "u32", 4, of, member)
#define U64(name, of, member) FIELD(name, "u64", 8, of, member)

int main(void)
{
    typedef struct ioengine_ops ops;
    typedef struct thread_data td;
    typedef struct fio_option option;
    printf("version: &'static str\t\"fio-%s\"\n", VERSION);
    NUMBER(ioops_version, "i32", FIO_IOOPS_VERSION);
    NUMBER(flags, "i32", FIO_RAWIO | FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_NOEXTEND |
                             FIO_MEMALIGN | FIO_NO_OFFLOAD);
    printf("errdetails_has_td: bool\t%s\n", _Generic(((ops *)0)->errdetails,
        char *(*)(struct thread_data *, struct io_u *): "true", char *(*)(struct io_u *): "false"));

    NUMBER(ops_bytes, "usize", sizeof(ops));
    PTR(ops_name, ops, name);
    I32(ops_version, ops, version);
    I32(ops_flags, ops, flags);
    PTR(ops_setup, ops, setup);
    PTR(ops_init, ops, init);
    PTR(ops_queue, ops, queue);
    PTR(ops_getevents, ops, getevents);
    PTR(ops_event, ops, event);
    PTR(ops_errdetails, ops, errdetails);
    PTR(ops_cleanup, ops, cleanup);
    PTR(ops_open_file, ops, open_file);
    PTR(ops_close_file, ops, close_file);
    PTR(ops_invalidate, ops, invalidate);
    PTR(ops_unlink_file, ops, unlink_file);
    PTR(ops_get_file_size, ops, get_file_size);
    PTR(ops_iomem_alloc, ops, iomem_alloc);
    PTR(ops_iomem_free, ops, iomem_free);
    PTR(ops_get_zoned_model, ops, get_zoned_model);
    I32(ops_option_struct_size, ops, option_struct_size);
    PTR(ops_options, ops, options);

    NUMBER(option_bytes, "usize", sizeof(option));
    PTR(option_name, option, name);
    PTR(option_lname, option, lname);
    I32(option_type, option, type);
    U32(option_off1, option, off1);
    PTR(option_help, option, help);
    U64(option_category, option, category);
    U64(option_group, option, group);
    NUMBER(opt_str_store, "i32", FIO_OPT_STR_STORE);
    NUMBER(opt_c_engine, "u64", FIO_OPT_C_ENGINE);
    NUMBER(opt_g_invalid, "u64", FIO_OPT_G_INVALID);

    NUMBER(td_options, "usize", offsetof(td, o));
    PTR(td_eo, td, eo);
    PTR(td_files, td, files);
    U32(td_files_index, td, files_index);
    I32(td_error, td, error);
    PTR(td_orig_buffer, td, orig_buffer);
    PTR(td_io_ops, td, io_ops);
    PTR(td_io_ops_data, td, io_ops_data);
    I32(o_td_ddir, td, o.td_ddir);
    U32(o_iodepth, td, o.iodepth);
    U32(o_iodepth_batch, td, o.iodepth_batch);
    U32(o_sync_io, td, o.sync_io);
    FIELD(o_min_bs, "[u64; 3]", 24, td, o.min_bs);
    FIELD(o_max_bs, "[u64; 3]", 24, td, o.max_bs);
    U32(o_mem_align, td, o.mem_align);
    U32(o_use_thread, td, o.use_thread);

    I32(file_filetype, struct fio_file, filetype);
    PTR(file_name, struct fio_file, file_name);
    U64(file_real_size, struct fio_file, real_file_size);
    I32(file_flags, struct fio_file, flags);
    NUMBER(file_size_known, "i32", FIO_FILE_size_known);
    NUMBER(type_block, "i32", FIO_TYPE_BLOCK);

    I32(io_u_ddir, struct io_u, ddir);
    U64(io_u_offset, struct io_u, offset);
    PTR(io_u_buf, struct io_u, buf);
    PTR(io_u_xfer_buf, struct io_u, xfer_buf);
    U64(io_u_xfer_buflen, struct io_u, xfer_buflen);
    U32(io_u_error, struct io_u, error);
    U32(io_u_index, struct io_u, index);
    /* What has the same numbers in all versions. */
    _Static_assert(DDIR_READ == 0 && DDIR_WRITE == 1 && DDIR_TRIM == 2 && DDIR_SYNC == 3, "");
    _Static_assert(DDIR_DATASYNC == 4 && DDIR_SYNC_FILE_RANGE == 5, "");
    _Static_assert(TD_DDIR_READ == 1 && TD_DDIR_WRITE == 2 && TD_DDIR_TRIM == 8, "");
    _Static_assert(FIO_Q_COMPLETED == 0 && FIO_Q_QUEUED == 1 && FIO_Q_BUSY == 2, "");
    _Static_assert(ZBD_NONE == 1, "");
    return 0;
}
END
}

columns=()
for version; do
    fetch "$version"
    source=target/fio-$version/source
    if [ -n "$build" ]; then
        make -s -C "$source" -j"$(nproc)" fio >"$source/build.log" 2>&1 ||
            die "fio $version cannot be built: $source/build.log says why"
        echo "$PWD/$source/fio"
        continue
    fi
    program >"$new/offsets.c"
    cc -w -D_GNU_SOURCE -DCONFIG_STRSEP -DBITS_PER_LONG=64 -DVERSION="\"$version\"" \
        -include "$source/config-host.h" -I"$source" -o "$new/offsets" "$new/offsets.c"
    "$new/offsets" >"$new/column-$version"
    columns+=("$new/column-$version")
done
[ -z "$build" ] || exit 0

file=crates/fio-engine/src/abi/table.rs
{
    echo "//! fio ${*}. Written by scripts/fio-offsets.sh; do not edit."
    printf '\nuse super::{Field, Ptr, abi};\n\nabi! {\n'
    paste "${columns[@]}" | awk -F'\t' '{
        values = $2
        for (at = 4; at <= NF; at += 2) values = values ", " $at
        print "    " $1 " = [" values "],"
    }'
    echo "}"
} >"$file"
echo "$file"
