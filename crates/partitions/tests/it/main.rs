//! Compares the lists of partitions with those of `sfdisk`, and the signatures with those of
//! `blkid`, on disks that other tools have made.

mod damaged;
mod image;
mod mutations;
mod selectors;
mod signatures;
mod tables;
