//! What the NVM Express specification defines, as data.
//!
//! References are to NVM Express Base Specification revision 1.4 ("1.4 §3.1.1"); where revision 2.0
//! changed or added something, to that ("2.0 §3.1.3.1", or "NVM 1.0 §..." for the NVM Command Set
//! Specification it was moved to). Integers on the wire are little-endian, counts keep the
//! specification's base ("0's based" means that 0 stands for one) unless a name or comment says
//! otherwise, and a code that a device or host may send decodes fallibly: reserved values are an
//! error here, never undefined behaviour.
//!
//! Driver and software SSD share this crate, so a wrong number could hide between them: sizes and
//! offsets are asserted at compile time against numbers typed from the specification.

// `seam` declares what its implementers and users have to promise; nothing here does anything
// unsafe.
#![deny(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod macros;

pub mod bytes;
pub mod cqe;
pub mod dbbuf;
pub mod dsm;
pub mod features;
pub mod identify;
pub mod log;
pub mod opcode;
pub mod pci;
pub mod prp;
pub mod regs;
pub mod seam;
pub mod sgl;
pub mod sqe;
mod sqe_admin;
pub mod status;
pub mod vfio_user;

pub use macros::UnknownCode;
