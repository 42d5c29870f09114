//! Generated images, whole and damaged. The allocator of this process counts.

mod agree;
mod compare;
mod kernel;
mod memory_use;
mod mutate;
mod mutations;
