//! How a library behaves in a process that is not its own: it does as little as possible that the
//! program could notice.
//!
//! Its threads take none of the process's signals ([`thread`]), its descriptors stay out of the way
//! of the program's ([`descriptor`]), what belongs to one process is not used in the child of a
//! fork ([`fork`]), and its locks have an order ([`lock`]).

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod descriptor;
pub mod fork;
pub mod lock;
pub mod thread;
