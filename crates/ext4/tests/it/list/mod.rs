//! Directory listings: in the kernel's order, with its cookies, and complete during changes.

mod changed;
mod collide;
mod damaged;
mod inodes;
mod kernel;
mod replayed;
mod threads;
