//! Stands in for `pause` where the processor has no timed wait that every program can use:
//! AArch64's WFET is optional, and ends at any event.

/// An empty type: this machine has no such wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserWait {}

impl UserWait {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn pause_ns(&self, _: u64) {
        match *self {}
    }
}
