//! fio's engine: `fio --ioengine=external:libmeantime-fio.so --device=mem:1G --thread=1 …`.
//!
//! docs/fio-engine.md says how to use it.
//!
//! # What it is for
//! Scripts that call fio run on Meantime's devices. `meantime bench` reads fio's job files itself.
//!
//! # What it owns
//! - The open devices (`devices`): jobs on one URI share one. It is closed with its last job, or at
//!   the end of the process.
//! - For each job a channel, and the memory of its I/Os (`slab`), which is DMA memory: nothing is
//!   copied. A job is a thread of fio's.
//!
//! # What it promises
//! - It needs nothing of fio's but the program. It finds fio's version, and the functions that it
//!   calls, among the program's symbols. For each version it has a table of offsets (`abi`), which
//!   it compares with fio's own table of options. It refuses other versions.
//! - Between `queue` and `getevents` under `poll` it adds no allocation, lock or system call.
//! - A panic ends in the hook (`hooks`), and with it the job: its channel is neither used nor
//!   dropped, because the device may still write to its buffers.
//! - A failed flush ends the job. fio looks at errors of reads, writes and trims only.
//!
//! # Parts, in reading order
//! ```text
//!   hooks       what fio calls
//!   job         a job's channel: starts I/Os, and reaps them
//!   slab        their memory
//!   devices     the open devices
//!   options     device=, completion=
//!   host, abi   what the program exports; where its structures have what
//! ```

mod abi;
mod devices;
mod hooks;
mod host;
mod job;
mod options;
mod slab;

use std::panic::catch_unwind;

use abi::{Fio3_33, Fio3_41, Ptr, Version};

/// A version of fio, and the function that makes its engine.
type Known = (&'static str, fn() -> Result<Ptr, String>);

const VERSIONS: [Known; 2] = [
    (Fio3_33::ABI.version, hooks::engine::<Fio3_33>),
    (Fio3_41::ABI.version, hooks::engine::<Fio3_41>),
];

/// The symbol that fio looks up in an engine that is loaded from a file. `place` stays unchanged if
/// the engine does not know this fio.
///
/// # Safety
/// `place` points to a pointer. No two threads of a program call it at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ioengine(place: *mut Ptr) {
    let _ = catch_unwind(|| {
        let warnings = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(std::io::stderr);
        let _ = warnings.without_time().with_target(false).try_init();
        // SAFETY: the caller's promise.
        unsafe { hooks::hand_out(place) };
    });
}
