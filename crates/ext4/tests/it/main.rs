//! The file system, beside e2fsprogs and the kernel.

mod broken;
mod check;
mod fast_commit;
mod fast_commit_fsck;
mod fast_commit_mount;
mod fast_commit_write;
mod format;
mod fsx;
mod full;
mod inherit;
mod journal;
mod list;
mod mkfs;
mod mmp;
mod names;
mod odd_sizes;
mod read;
mod refused;
mod sparse;
mod stress;
mod times;
mod trim;
mod user_memory;
mod write;
