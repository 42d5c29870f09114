//! The SSD's counters. They have one writer (the controller) and any number of readers.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with a single writer, so adding needs no locked instruction.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines counters: `Counters`, a copy of them all, and `SharedCounters`, which hold them.
macro_rules! counters {
    ($(#[doc = $of:literal])* $copy:ident; $( $(#[doc = $doc:literal])* $name:ident, )*) => {
        $(#[doc = $of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $copy {
            $( $(#[doc = $doc])* pub $name: u64, )*
        }

        #[derive(Default)]
        pub(crate) struct SharedCounters {
            $( pub(crate) $name: $crate::counters::Count, )*
        }

        impl $copy {
            /// Returns every counter with its name, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name), )*].into_iter()
            }
        }

        impl SharedCounters {
            pub(crate) fn snapshot(&self) -> $copy {
                $copy { $( $name: self.$name.get(), )* }
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// A copy of the SSD's counters since it was started.
    Counters;
    /// Admin commands fetched.
    admin_commands,
    /// Reads completed.
    reads,
    /// Writes completed.
    writes,
    /// Flushes completed.
    flushes,
    /// Other I/O commands completed.
    other_io,
    /// Bytes read by the host.
    read_bytes,
    /// Bytes written by the host.
    written_bytes,
    /// Commands that ended with an error because the host broke a rule.
    refused,
    /// Register accesses that broke a rule.
    bad_registers,
    /// Doorbell values beyond their queue.
    bad_doorbells,
    /// Rings of doorbells whose queue does not exist, or before the controller was enabled.
    stray_doorbells,
    /// Reads of blocks that Write Uncorrectable has marked.
    media_errors,
    /// Commands with a CID that was outstanding.
    cid_conflicts,
    /// Queues that ended because the host unmapped their memory.
    ended_queues,
    /// Transfers to or from memory that is not mapped.
    dma_errors,
    /// Times that CSTS.CFS was set.
    fatal,
    /// Controller resets.
    resets,
    /// Completion queue entries written.
    cqes,
    /// Interrupts sent.
    interrupts,
    /// Faults injected: error statuses.
    injected_errors,
    /// Faults injected: completions never written.
    injected_losses,
    /// Faults injected: late completions.
    injected_late,
    /// Faults injected: completions that belong to no command, or came twice.
    injected_strays,
    /// Faults injected: data with flipped bits, read or stored.
    injected_corruptions,
    /// Faults injected: completions with the wrong phase tag.
    injected_bad_phase,
    /// Faults injected: completions without an interrupt.
    injected_lost_interrupts,
    /// Faults injected: completions with a wrong SQ head.
    injected_bad_sqhd,
    /// Faults injected: flushes that were not executed.
    injected_ignored_flushes,
    /// Faults injected: writes that a power cut left incomplete.
    injected_tears,
    /// Refusals of any kind whose reasons were recorded. The latest can be queried.
    remembered,
    /// Of those, the tolerated ones, which do no harm.
    tolerated,
    /// Number of times that the thread parked.
    parks,
    /// Number of times that it was woken.
    wakes,
    /// Number of times that it napped because no client would have woken it.
    naps,
}
