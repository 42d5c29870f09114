//! `pause` where the processor has no such wait for every program: AArch64's WFET is optional, and
//! ends at any event.

/// There is none.
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
