//! Generated images, intact and damaged. The allocator of this process counts bytes.

mod agree;
mod compare;
mod kernel;
mod memory_use;
mod mutate;
mod mutations;
