//! The data structures and codes of the NVM Express specification.
//!
//! # What it is for
//! Driver and software SSD share these definitions, and only these. Nothing here does I/O.
//!
//! References are to NVM Express Base Specification revision 1.4 ("1.4 §3.1.1"); where revision
//! 2.0 changed or added something, to that ("2.0 §3.1.3.1", or "NVM 1.0 §..." for the NVM Command
//! Set Specification it was moved to).
//!
//! # What it promises
//! - Integers on the wire are little-endian. Counts keep the specification's base ("0's based"
//!   means that 0 stands for one) unless a name or comment says otherwise.
//! - A code that a device or host may send decodes fallibly: a reserved value is an error, never
//!   undefined behaviour.
//! - Sizes and offsets are asserted at compile time against numbers typed from the specification,
//!   because two sides that share a wrong number agree with each other. `tests/it/golden_bytes.rs`
//!   compares encoded bytes.
//!
//! # Parts, in reading order
//! ```text
//!   macros                  registers of bit fields, wire structures, sets of named codes
//!   regs                    CAP, CC, CSTS, doorbells
//!   sqe, sqe_admin, opcode  submission queue entry; I/O and admin commands
//!   cqe, status             completion queue entry; its status
//!   prp, sgl, dsm           how a command names its data; ranges of Dataset Management
//!   identify/, features,    what a controller reports about itself
//!     log
//!   dbbuf                   shadow doorbells
//!   fabrics, tcp            commands of NVMe over Fabrics; PDUs of NVMe/TCP
//!   soft_port               SoftPort: what a driver and a software SSD in one process share in
//!                             place of a PCIe link: registers, doorbells, `parked`, mappings
//!   pci, vfio_user          configuration space; the protocol to a device of another process
//! ```
//!
//! `soft_port` declares contracts (`unsafe trait`, `unsafe fn`) that its users have to keep.

// `soft_port` only declares what its implementers and users have to promise; no code in this crate
// is unsafe.
#![deny(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod macros;

pub mod bytes;
pub mod cqe;
pub mod dbbuf;
pub mod dsm;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod log;
pub mod opcode;
pub mod pci;
pub mod prp;
pub mod regs;
pub mod sgl;
pub mod soft_port;
pub mod sqe;
mod sqe_admin;
pub mod status;
pub mod tcp;
pub mod vfio_user;

pub use macros::UnknownCode;

/// The former name of [`soft_port`].
#[deprecated(note = "use `soft_port`")]
pub mod seam {
    pub use super::soft_port::PortError as SeamError;
    pub use super::soft_port::*;
}
