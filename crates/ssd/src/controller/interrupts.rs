//! MSI-X-like vectors, by eventfd or, in one process, without a descriptor. They have coalescing
//! (features 08h and 09h; 1.4 §5.21.1.8, §5.21.1.9, §7.5).

use meantime_nvme_spec::features::InterruptCoalescing;
use meantime_nvme_spec::soft_port::{Interrupt, PortError};

use crate::sys;

/// The unit of the aggregation time, in ns.
const TIME_UNIT_NS: u64 = 100_000;

#[derive(Default)]
struct Vector {
    event: Option<Interrupt>,
    /// The value of Coalescing Disable (feature 09h).
    coalescing_disabled: bool,
    /// The number of completions held back.
    held: u32,
    /// The latest time to announce them. It is valid only if any are held back.
    deadline_ns: u64,
}

pub(super) struct Interrupts {
    vectors: Box<[Vector]>,
    pub(super) coalescing: InterruptCoalescing,
    /// The number of vectors with completions held back.
    holding: u32,
    /// Whether another process owns the eventfds, and could make writes to them block.
    guarded: bool,
}

impl Interrupts {
    pub(super) fn new(vectors: u16) -> Self {
        let vectors = (0..vectors).map(|_| Vector::default()).collect();
        Self { vectors, coalescing: InterruptCoalescing(0), holding: 0, guarded: false }
    }

    /// Creates the vectors for a host in another process, which could fill its own eventfd so that
    /// a write blocks.
    pub(super) fn for_foreign_host(vectors: u16) -> Self {
        Self { guarded: true, ..Self::new(vectors) }
    }

    pub(super) fn len(&self) -> u16 {
        self.vectors.len() as u16
    }

    pub(super) fn set_event(
        &mut self,
        vector: u16,
        event: Option<Interrupt>,
    ) -> Result<(), PortError> {
        let vector = self.vectors.get_mut(usize::from(vector)).ok_or(PortError::NoSuchVector)?;
        vector.event = event;
        Ok(())
    }

    /// Returns Coalescing Disable of `vector`, or `None` if there is no such vector.
    pub(super) fn coalescing_disabled(&mut self, vector: u16) -> Option<&mut bool> {
        self.vectors.get_mut(usize::from(vector)).map(|v| &mut v.coalescing_disabled)
    }

    /// Returns whether completions of `vector` are held back. A time of 0 means no delay, and a
    /// (0's based) threshold of 0 means one completion (1.4 §5.21.1.8).
    pub(super) fn coalesces(&self, vector: u16) -> bool {
        self.coalescing.time() != 0
            && self.coalescing.thr() != 0
            && !self.vectors[usize::from(vector)].coalescing_disabled
    }

    /// Sends the interrupt now. Returns true if one was sent.
    pub(super) fn signal(&mut self, vector: u16) -> bool {
        let vector = &mut self.vectors[usize::from(vector)];
        if vector.held > 0 {
            vector.held = 0;
            self.holding -= 1;
        }
        match &vector.event {
            None => false,
            // A full eventfd is already signalled.
            Some(Interrupt::EventFd(event)) => {
                (self.guarded && !sys::is_writable(event)) || sys::signal(event)
            }
            Some(Interrupt::Local(event)) => {
                event.signal();
                true
            }
        }
    }

    /// Adds `n` completions for `vector`, which coalesces, at `now_ns`. Returns true if an
    /// interrupt was sent.
    pub(super) fn hold(&mut self, vector: u16, n: u32, now_ns: u64) -> bool {
        let threshold = u32::from(self.coalescing.thr()) + 1;
        let v = &mut self.vectors[usize::from(vector)];
        if v.held == 0 {
            self.holding += 1;
            v.deadline_ns = now_ns + u64::from(self.coalescing.time()) * TIME_UNIT_NS;
        }
        v.held += n;
        v.held >= threshold && self.signal(vector)
    }

    /// Returns the earliest deadline of a held-back interrupt.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        if self.holding == 0 {
            return None;
        }
        self.vectors.iter().filter(|v| v.held > 0).map(|v| v.deadline_ns).min()
    }

    /// Sends the interrupts that are due. Returns how many.
    pub(super) fn expire(&mut self, now_ns: u64) -> u64 {
        let mut sent = 0;
        for vector in 0..self.len() {
            let v = &self.vectors[usize::from(vector)];
            if v.held > 0 && v.deadline_ns <= now_ns {
                sent += u64::from(self.signal(vector));
            }
        }
        sent
    }

    /// Sets the state after a controller reset, which is without coalescing. The vectors stay, as
    /// in MSI-X.
    pub(super) fn reset(&mut self) {
        self.coalescing = InterruptCoalescing(0);
        self.holding = 0;
        for v in &mut self.vectors {
            (v.held, v.coalescing_disabled) = (0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_full_eventfd_of_another_process_does_not_block_the_controller() {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let count = || {
            let mut bytes = [0; 8];
            rustix::io::read(&*event, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let mut interrupts = Interrupts::for_foreign_host(1);
        interrupts.set_event(0, Some(Arc::clone(&event).into())).unwrap();
        assert!(interrupts.signal(0));
        assert_eq!(count(), 1);
        // This is the greatest count of an eventfd (eventfd(2)). A further write would wait for a
        // read.
        rustix::io::write(&*event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(interrupts.signal(0)));
        assert_eq!(done.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
        assert_eq!(count(), u64::MAX - 1);
    }
}
