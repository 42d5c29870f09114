//! The floor: the latency that no protocol between two cores can beat.
//!
//! One core sets a flag. The other sees it, copies the payload from a random place of a medium as
//! large as the device's into the first core's buffer, and sets a flag back. There is no queue and
//! no command (docs/benchmarks.md).

#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_hw::pages::Pages;
use meantime_hw::{Clock, DmaBuf, DmaLimits, HwError, cpu};
use meantime_random::Rng;

#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// The request's flag and its parameters, in one cache line.
#[derive(Default)]
struct Request {
    sequence: AtomicU64,
    offset: AtomicUsize,
    target: AtomicUsize,
    len: AtomicUsize,
}

#[derive(Default)]
struct Shared {
    request: Line<Request>,
    answer: Line<AtomicU64>,
    active: Line<AtomicBool>,
    ended: AtomicBool,
}

/// The responder's core and its medium.
pub struct Floor {
    shared: Arc<Shared>,
    medium_bytes: usize,
    sequence: u64,
    random: Rng,
    clock: Clock,
    responder: Option<JoinHandle<()>>,
}

impl Floor {
    /// Starts a responder on `responder_cpu` with a medium of `medium_bytes`, of the same kind of
    /// pages as the I/O's.
    ///
    /// # Errors
    /// Returns an error if there is no memory for a second medium, or the CPU is not available.
    pub fn start(medium_bytes: u64, responder_cpu: Option<usize>) -> Result<Self, HwError> {
        let bytes = usize::try_from(medium_bytes).unwrap_or(usize::MAX);
        let medium = Pages::map(bytes, &DmaLimits::default())?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let (report, bound) = std::sync::mpsc::channel();
        let responder = meantime_process::thread::spawn("meantime-floor", move || {
            let binding = responder_cpu.map_or(Ok(()), |cpu| cpu::bind(&[cpu]));
            let ok = binding.is_ok();
            let _ = report.send(binding);
            if ok {
                respond(&theirs, &medium);
            }
        })
        .map_err(|source| HwError::Os { what: "cannot start the floor's thread", source })?;
        bound.recv().unwrap_or(Err(HwError::Gone))?;
        Ok(Self {
            shared,
            medium_bytes: bytes,
            sequence: 0,
            random: Rng::new(1),
            clock: Clock::real(),
            responder: Some(responder),
        })
    }

    /// Returns the median time in ns of `count` exchanges of `len` bytes into `buf`.
    ///
    /// Before it measures, it sleeps until a software SSD on the responder's core is parked.
    ///
    /// # Panics
    /// Panics if `len` exceeds the buffer or the medium, or `count` is 0.
    pub fn measure(&mut self, buf: &mut DmaBuf, len: usize, count: usize) -> f64 {
        assert!(len <= buf.len() && len <= self.medium_bytes && count > 0);
        self.shared.active.0.store(true, Ordering::Release);
        self.unpark();
        std::thread::sleep(Duration::from_millis(4));
        let warm_up = count / 10 + 1;
        let mut times: Vec<u64> =
            (0..warm_up + count).map(|_| self.exchange(buf, len)).skip(warm_up).collect();
        self.shared.active.0.store(false, Ordering::Release);
        // The responder parks once it sees that `active` is false.
        times.sort_unstable();
        times[times.len() / 2] as f64
    }

    fn exchange(&mut self, buf: &mut DmaBuf, len: usize) -> u64 {
        let places = (self.medium_bytes / len) as u64;
        let offset = self.random.below(places) as usize * len;
        self.sequence += 1;
        let request = &self.shared.request.0;
        let start_ns = self.clock.now_ns();
        request.offset.store(offset, Ordering::Relaxed);
        request.target.store(buf.as_mut_ptr() as usize, Ordering::Relaxed);
        request.len.store(len, Ordering::Relaxed);
        // Release: the three stores above are visible before the flag.
        request.sequence.store(self.sequence, Ordering::Release);
        // Acquire: the payload is read after the flag.
        while self.shared.answer.0.load(Ordering::Acquire) != self.sequence {}
        self.clock.now_ns() - start_ns
    }

    fn unpark(&self) {
        if let Some(responder) = &self.responder {
            responder.thread().unpark();
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.active.0.store(true, Ordering::Release);
        self.unpark();
        if let Some(responder) = self.responder.take() {
            let _ = responder.join();
        }
    }
}

fn respond(shared: &Shared, medium: &Pages) {
    let mut answered = 0;
    let request = &shared.request.0;
    loop {
        while !shared.active.0.load(Ordering::Acquire) {
            std::thread::park();
        }
        loop {
            let sequence = request.sequence.load(Ordering::Acquire);
            if sequence != answered {
                let offset = request.offset.load(Ordering::Relaxed);
                let target = request.target.load(Ordering::Relaxed) as *mut u8;
                let len = request.len.load(Ordering::Relaxed);
                // SAFETY: `exchange` keeps `offset + len` within the medium, borrows its buffer of
                // at least `len` bytes mutably until the answer is there, and the two are different
                // mappings.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        medium.as_ptr().as_ptr().add(offset),
                        target,
                        len,
                    );
                }
                // Release: the payload is visible before the flag.
                shared.answer.0.store(sequence, Ordering::Release);
                answered = sequence;
            } else if !shared.active.0.load(Ordering::Relaxed) {
                break;
            } else if shared.ended.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meantime_testkit::rig::{Rig, ssd};

    #[test]
    fn exchanges_and_ends() {
        let rig = Rig::new(ssd("null"));
        let mut buf = rig.device.heap().alloc(4096).unwrap();
        let mut floor = Floor::start(8 << 20, None).unwrap();
        assert!(floor.measure(&mut buf, 4096, 10) > 0.0);
        assert!(floor.measure(&mut buf, 512, 10) > 0.0);
    }
}
