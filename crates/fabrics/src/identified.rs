//! What Identify has returned for the controller and its namespaces.
//!
//! A command says how many blocks it moves, a capsule how many bytes. A PCIe controller knows its
//! formats; here they are taken from the Identify data that pass by.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use meantime_nvme_spec::identify::{IdentifyController, IdentifyNamespace, ctratt};
use meantime_nvme_spec::status::{Status, StatusCode};
use zerocopy::FromBytes;

/// The known properties.
#[derive(Debug, Default)]
pub(crate) struct Identified {
    /// log2 of the block size by NSID.
    shifts: Mutex<BTreeMap<u32, u8>>,
    /// A number that changes with the block sizes.
    version: AtomicU32,
    /// The most data in a capsule of an I/O queue, in bytes.
    in_capsule_bytes: AtomicU32,
    /// Whether any command restarts the Keep Alive Timer.
    is_traffic_based: AtomicBool,
}

impl Identified {
    /// Notes what Identify Controller has returned.
    pub(crate) fn learn_controller(&self, data: &[u8]) {
        if let Ok(controller) = IdentifyController::ref_from_bytes(data) {
            let bytes = controller.fabrics.in_capsule_bytes();
            self.in_capsule_bytes.store(bytes, Ordering::Relaxed);
            let traffic = controller.ctratt.get() & ctratt::TRAFFIC_BASED_KEEP_ALIVE != 0;
            self.is_traffic_based.store(traffic, Ordering::Relaxed);
        }
    }

    /// Whether any command restarts the Keep Alive Timer.
    pub(crate) fn is_traffic_based(&self) -> bool {
        self.is_traffic_based.load(Ordering::Relaxed)
    }

    /// The most data in a capsule of an I/O queue, in bytes.
    pub(crate) fn in_capsule_bytes(&self) -> u32 {
        self.in_capsule_bytes.load(Ordering::Relaxed)
    }

    /// Sets log2 of a block size.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn set_shift(&self, nsid: u32, shift: u8) {
        self.shifts.lock().unwrap_or_else(PoisonError::into_inner).insert(nsid, shift);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Notes what Identify Namespace has returned for `nsid`.
    pub(crate) fn learn_namespace(&self, nsid: u32, data: &[u8]) {
        let Ok(data) = IdentifyNamespace::ref_from_bytes(data) else { return };
        let Some(format) = data.lba_format_in_use() else { return };
        if !(9..=16).contains(&format.lbads) {
            return;
        }
        let mut shifts = self.shifts.lock().unwrap_or_else(PoisonError::into_inner);
        if shifts.insert(nsid, format.lbads) != Some(format.lbads) {
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// A queue's view of the block sizes.
#[derive(Debug)]
pub(crate) struct BlockShifts {
    identified: Arc<Identified>,
    version: u32,
    /// The namespace used last, and log2 of its block size.
    last: Option<(u32, u8)>,
}

impl BlockShifts {
    pub(crate) fn new(identified: Arc<Identified>) -> Self {
        Self { identified, version: 0, last: None }
    }

    /// log2 of the block size of `nsid`, or the status of a command for it.
    pub(crate) fn get(&mut self, nsid: u32) -> Result<u8, Status> {
        let version = self.identified.version.load(Ordering::Acquire);
        match self.last {
            Some((last, shift)) if last == nsid && version == self.version => Ok(shift),
            _ => {
                let shifts = self.identified.shifts.lock().unwrap_or_else(PoisonError::into_inner);
                let shift = *shifts.get(&nsid).ok_or_else(|| {
                    Status::from_code(StatusCode::InvalidNamespaceOrFormat).with_dnr()
                })?;
                (self.version, self.last) = (version, Some((nsid, shift)));
                Ok(shift)
            }
        }
    }
}
