//! Directories listed: in the kernel's order and with its cookies, and whole while they are
//! changed.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/ext4_image.rs"]
mod image;

mod changed;
mod collide;
mod damaged;
mod inodes;
mod kernel;
mod replayed;
mod threads;
