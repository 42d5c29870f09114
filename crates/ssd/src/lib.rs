//! A software NVMe SSD at register level.
//!
//! # What it is for
//! A driver can be tested, measured and broken without hardware. The SSD is a controller of NVMe
//! Base Specification 1.4 with the NVM command set: registers, admin commands, I/O queues,
//! MSI-X-like interrupts, a DRAM or file [`Medium`], a volatile write cache, and a service-time
//! [`Model`]. A driver reaches it through [`SoftPort`](meantime_nvme_spec::soft_port::SoftPort), or from
//! another process over vfio-user ([`served`]).
//!
//! # What it owns
//! It owns its medium, its write cache, and the queues as a controller keeps them. Host memory
//! belongs to the host, and every access is translated and bounds-checked (`hostmem`).
//!
//! # What it promises
//! - It is strict. What a real controller refuses, or leaves undefined, ends with the proper status
//!   or CSTS.CFS, and is counted with the reason. docs/faults.md lists what is tolerated.
//! - One controller can run in two ways. [`Ssd`] has a thread and real time. [`SteppedSsd`] has
//!   none and moves only when its clock does, so one seed reproduces a run.
//! - With a model the device time is the model's. Data is transferred when a command is fetched,
//!   and the completion entry is written when it is due. The entry is reserved before the fetch.
//! - The write cache is real: `power_cut` rolls back any subset of completed, unflushed writes,
//!   torn at AWUPF. For `file:` the kernel's page cache is the volatile cache, and FLUSH and FUA
//!   are `fdatasync`.
//! - Both commands of a fused pair are fetched together and executed with nothing between.
//! - Doorbells are 128 bytes apart (CAP.DSTRD = 5), two cache lines each.
//! - Each turn serves every queue once, unless CC.AMS selects weighted round robin or the model
//!   bounds the commands inside the device (`inside`): then `arbiter` chooses.
//!
//! # Parts, in reading order
//! ```text
//!   config, model          what kind of SSD; how long commands take
//!   controller/mod         the controller's state
//!     turn, arbiter          Controller::turn: doorbells, fetch, execute; which queue is next
//!     doorbell, queues       doorbells and shadows; queues, posting completions
//!     regs, enable           registers; writes to them, reset
//!     fast                   plain reads and writes without a model, in one pass
//!     io, prp, sgl           all other I/O; walking their data, strictly
//!     complete, pending, interrupts     completions now or later, telling the host
//!     admin, identify, features, logs   admin commands
//!     outcome, refusals      how commands end; rules that hosts break
//!   event_requests         requests for events that are held (in tcp/, too), and events
//!   hostmem                host memory: translation, copies, rings
//!   medium, store, vwc     the medium, namespaces, the write cache
//!   service                a model at work: which channel is busy until when
//!   threaded, stepped      the two ways to run
//!   port                   what a driver and a server hold of it
//!   faults/                rules, their text, the engine
//!   record                 what was written and flushed, for tests of power cuts
//!   control/               changing a running one
//!   served/                a PCI function of it, over vfio-user
//!   tcp/                   an NVMe subsystem of it, over NVMe/TCP
//! ```
//!
//! # Parking
//! The thread sleeps when nothing is in flight and no doorbell has moved for 2 ms (ARCHITECTURE.md
//! §6). While completions wait for room in a completion queue it naps for 1 ms at a time, because a
//! write to the head doorbell wakes no thread.
//!
//! Over vfio-user the doorbells and `parked` are in memory that both processes map. A vendor
//! specific capability in configuration space says where. To wake the thread, the host sends the
//! doorbell value again in a message, and waits for the reply, because a late message would
//! overwrite a newer store. A host that does not know `parked` (it did not say so in the handshake)
//! cannot wake the thread. The thread then naps, 50 µs to 1 ms, while there are queues. Calls wake
//! it whatever the shared word contains. For a host with shadow doorbells (1.4 §7.13) the SSD
//! stores the values that it has seen in EventIdx before it parks, executes the full fence of the
//! announcement, and checks again.
//!
//! # Serving
//! `served::Function` is a PCI function of the controller without a socket; the fuzzer drives it.
//! `Server` gives it to one client at a time. Each client gets new doorbells in a sealed memfd,
//! because a former client may have kept its mapping. When a client goes, the controller is
//! power-cycled without loss of data, the client's memory is unmapped and its eventfds are closed,
//! all before its connection is. If the file of a mapping shrinks, the SIGBUS handler replaces the
//! mapping by zeroes, and its client is disconnected. Eventfds are checked before they are written,
//! so a full one blocks no thread. The Keep Alive Timer is checked when the SSD is idle; when it
//! expires, CSTS.CFS is set.
//!
//! # Unsafe code
//! It is in `hostmem` (memory shared with the host), `medium` (mapped data), `sys` (prefetches),
//! `tcp::machine` (memory that the controller shares with the target)
//! and `served::mapping` (memory shared with another process). `port` promises what `SoftPort` asks
//! for.
//! The rest is safe code over their bounds-checked interfaces.

#![deny(unsafe_code)]
// Under loom the atomics of `soft_port` are loom's, which this crate's shared-memory code cannot
// use. Only the parking protocol itself is modelled, in `tests/loom_parking.rs`.
#![cfg(not(loom))]
#![deny(missing_docs)]

mod clock;
mod config;
pub mod control;
mod controller;
mod counters;
mod error;
mod event_requests;
mod faults;
mod hostmem;
mod inline;
mod mailbox;
mod medium;
mod model;
mod port;
pub mod record;
pub mod served;
mod service;
mod stamps;
mod stepped;
mod store;
mod sys;
pub mod tcp;
mod threaded;
mod uncorrectable;
mod vwc;

pub use meantime_random::Rng;

pub use clock::{Clock, MonotonicClock};
pub use config::{NamespaceConfig, PowerState, SsdConfig};
pub use control::{AddFaultError, FaultControl};
pub use controller::Refusal;
pub use counters::Counters;
pub use error::SsdError;
pub use faults::{
    FAULT_RULES_MAX, Fault, FaultHits, FaultPlan, FaultRule, FaultRules, OpcodeSet, TooManyRules,
    When,
};
pub use inline::InlineSsd;
pub use medium::{MEDIUM_ALIGN_BYTES, Medium};
pub use model::{Jitter, Model, Nand, Select, Slow};
pub use stamps::{STAMP_RING_LEN, Stamp, StampRing};
pub use stepped::SteppedSsd;
pub use threaded::{Ssd, SsdHandle};
