//! The protocol between the kernel's FUSE and a file server: `include/uapi/linux/fuse.h`, versions
//! 7.31 to 7.39. The module handles only bytes: it knows no file system, and opens nothing.

pub(crate) mod flags;
pub(crate) mod opcode;
pub(crate) mod request;
pub(crate) mod wire;

pub(crate) use opcode::Opcode;
pub(crate) use request::{Malformed, Request};
