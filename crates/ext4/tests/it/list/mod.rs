//! Directories listed: in the kernel's order and with its cookies, and whole while they are
//! changed.

mod changed;
mod collide;
mod damaged;
mod inodes;
mod kernel;
mod replayed;
mod threads;
