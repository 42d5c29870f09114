//! What a library does to a process that is somebody else's: as little as can be noticed.
//!
//! Its threads take none of the process's signals ([`thread`]), its descriptors stay out of the way
//! of the program's ([`descriptor`]), and what lives in one process only is not used in the child
//! of a fork ([`fork`]).

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod descriptor;
pub mod fork;
pub mod lock;
pub mod thread;
