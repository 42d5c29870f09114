//! What the calling thread has used, in a simulation: what it then tells takes the place of what
//! the system would say, which is about the simulator.

use std::cell::Cell;
use std::marker::PhantomData;

/// What a thread has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time in ns.
    pub cpu_ns: u64,
    /// How often it was taken off its CPU for another thread's sake.
    pub involuntary_switches: u64,
}

thread_local! {
    static TOLD: Cell<Option<Usage>> = const { Cell::new(None) };
}

/// While it lives, [`thread_cpu_ns`](super::clock::thread_cpu_ns) and
/// [`involuntary_switches`](super::cpu::involuntary_switches) say on this thread what was told
/// last.
#[derive(Debug)]
pub struct Pretence {
    before: Option<Usage>,
    /// Of this thread.
    _not_send: PhantomData<*const ()>,
}

impl Pretence {
    /// Nothing was used yet.
    pub fn begin() -> Self {
        Self { before: TOLD.replace(Some(Usage::default())), _not_send: PhantomData }
    }

    /// Sets the thread's usage.
    #[inline]
    pub fn tell(&self, usage: Usage) {
        TOLD.set(Some(usage));
    }
}

impl Drop for Pretence {
    fn drop(&mut self) {
        TOLD.set(self.before);
    }
}

/// What was told, if a simulation is under way.
pub(super) fn told() -> Option<Usage> {
    TOLD.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_cpu_ns;
    use crate::cpu::involuntary_switches;

    #[test]
    fn what_is_told_counts_while_it_lasts() {
        let real_ns = thread_cpu_ns();
        {
            let outer = Pretence::begin();
            assert_eq!((thread_cpu_ns(), involuntary_switches()), (0, 0));
            outer.tell(Usage { cpu_ns: 7, involuntary_switches: 3 });
            drop(Pretence::begin());
            assert_eq!((thread_cpu_ns(), involuntary_switches()), (7, 3));
            // Others go by the system.
            assert!(std::thread::spawn(thread_cpu_ns).join().unwrap() > 7);
        }
        assert!(thread_cpu_ns() >= real_ns && real_ns > 7);
    }
}
