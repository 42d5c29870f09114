//! A device's own time stamps, if it provides them. They are for measurements, never for driving
//! it.

/// The times when a device saw a command, began to serve it, and wrote its completion entry, in ns
/// of the driver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceStamp {
    /// Submission queue.
    pub qid: u16,
    /// Command identifier.
    pub cid: u16,
    /// When the tail doorbell was found moved, just before the SQE was fetched.
    pub seen_ns: u64,
    /// When a unit of the device was free for it.
    pub begun_ns: u64,
    /// When the CQE was about to be written.
    pub written_ns: u64,
}

/// The stamps of a device's I/O commands, numbered from 0 in order of completion. The newest
/// overwrite the oldest.
///
/// A stamp is written after the CQE, so a thread may have to look twice for its stamp after a
/// completion.
pub trait StampSource: Send + Sync {
    /// Number of stamps so far.
    fn written(&self) -> u64;

    /// Stamp number `index`; `None` if it is not written yet, or was overwritten.
    fn get(&self, index: u64) -> Option<DeviceStamp>;

    /// Number of stamps kept.
    fn capacity(&self) -> usize;
}
