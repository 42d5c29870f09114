//! What a device itself knows of when things happened, if it says so: for measuring, never for
//! driving it.

/// When a device saw one command, began to serve it, and wrote its completion entry; in ns of the
/// driver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceStamp {
    /// Submission queue.
    pub qid: u16,
    /// Command identifier.
    pub cid: u16,
    /// The tail doorbell was found moved, just before the SQE was fetched.
    pub seen_ns: u64,
    /// A unit of the device was free for it.
    pub begun_ns: u64,
    /// Just before the CQE was written.
    pub written_ns: u64,
}

/// The stamps of a device's I/O commands, numbered from 0 in the order in which they completed. The
/// newest overwrite the oldest.
///
/// A stamp is written after the CQE: a thread that has seen a completion may have to look twice for
/// its stamp.
pub trait StampSource: Send + Sync {
    /// How many there have been.
    fn written(&self) -> u64;

    /// Stamp number `index`; `None` if it is not there yet, or not any more.
    fn get(&self, index: u64) -> Option<DeviceStamp>;

    /// How many are kept.
    fn capacity(&self) -> usize;
}
