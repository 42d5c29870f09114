//! Metadata from the device, a bounded number of them kept.

use std::sync::Arc;

use super::bounded::Bounded;
use super::error::Error;
use super::format::{Source, SourceError};
use super::lanes::Lanes;
use super::read::direct;
use crate::completion::Policy;

/// Smaller things are read, and kept, with their neighbours: inodes above all.
const WINDOW_BYTES: u64 = 4096;

/// The metadata of a mounted device.
pub struct DeviceSource {
    lanes: Arc<Lanes>,
    policy: Option<Policy>,
    /// By byte offset and length.
    kept: Bounded<(u64, usize), Arc<[u8]>>,
}

impl DeviceSource {
    /// Metadata through `lanes`, of which `cache_bytes` are kept.
    pub(super) fn new(lanes: Arc<Lanes>, policy: Option<Policy>, cache_bytes: usize) -> Self {
        Self { lanes, policy, kept: Bounded::new(cache_bytes) }
    }

    /// The bytes of `key`, which are within the device.
    fn fetch(&self, key: (u64, usize)) -> Result<Arc<[u8]>, SourceError> {
        if let Some(bytes) = self.kept.get(&key) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; key.1];
        direct::read_bytes(&self.lanes, key.0, &mut bytes, self.policy).map_err(|error| match error {
            Error::Io(error) => SourceError::Io(error),
            other => SourceError::Resources(other.to_string()),
        })?;
        Ok(self.kept.keep(key, bytes.into(), key.1))
    }
}

impl std::fmt::Debug for DeviceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSource").field("device", &self.lanes.info().uri).finish_non_exhaustive()
    }
}

impl Source for DeviceSource {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        let device_bytes = self.lanes.info().bytes();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > device_bytes) {
            return Err(SourceError::OutOfRange);
        }
        let window = offset - offset % WINDOW_BYTES;
        let inside = (offset - window) as usize;
        if bytes as u64 >= WINDOW_BYTES || inside as u64 + bytes as u64 > WINDOW_BYTES {
            return self.fetch((offset, bytes));
        }
        let all = self.fetch((window, WINDOW_BYTES.min(device_bytes - window) as usize))?;
        if all.len() == bytes { Ok(all) } else { Ok(all[inside..inside + bytes].into()) }
    }
}
