//! The kernel's files about devices, under roots that tests can move.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::address::PciAddress;
use super::attribute::{attribute, link_name, number};
use super::error::PciError;
use super::ops::{SysfsOps, System};

/// Time between two checks of a changing file: at first, and at most.
const LOOKS_APART: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// Base class and sub-class of non-volatile memory (PCI Code and ID Assignment Specification: 01h,
/// 08h).
pub(super) const NVME_CLASS: u16 = 0x0108;

/// The paths of the kernel's files, and the operations on them.
#[derive(Debug, Clone)]
pub struct Sysfs {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/run`.
    pub run: PathBuf,
    ops: Arc<dyn SysfsOps>,
}

impl Default for Sysfs {
    /// This machine.
    fn default() -> Self {
        Self::at(Path::new("/"), Arc::new(System::default()))
    }
}

impl Sysfs {
    /// A machine whose `/sys`, `/proc`, `/dev` and `/run` are in `root`, with the operations `ops`.
    pub fn at(root: &Path, ops: Arc<dyn SysfsOps>) -> Self {
        Self {
            sys: root.join("sys"),
            proc: root.join("proc"),
            dev: root.join("dev"),
            run: root.join("run"),
            ops,
        }
    }

    pub(super) fn ops(&self) -> &dyn SysfsOps {
        &*self.ops
    }

    pub(super) fn bus(&self) -> PathBuf {
        self.sys.join("bus/pci")
    }

    /// The directory of a PCI function.
    pub(crate) fn function(&self, address: PciAddress) -> PathBuf {
        self.bus().join("devices").join(address.to_string())
    }

    /// Base class and sub-class of a function; `None` if it does not exist.
    pub(super) fn class(&self, address: PciAddress) -> Option<u16> {
        Some((number(&self.function(address).join("class"))? >> 8) as u16)
    }

    pub(crate) fn driver(&self, address: PciAddress) -> Option<String> {
        link_name(&self.function(address).join("driver"))
    }

    /// The content of `driver_override`; the kernel shows an empty one as `(null)`.
    pub(super) fn driver_override(&self, address: PciAddress) -> Option<String> {
        attribute(&self.function(address).join("driver_override")).filter(|name| name != "(null)")
    }

    pub(super) fn has_driver(&self, name: &str) -> bool {
        self.bus().join("drivers").join(name).is_dir()
    }

    /// Writes to a file of sysfs.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<(), PciError> {
        self.ops.write(path, text).map_err(|source| PciError::Kernel {
            what: format!("refused {:?} written to {}", text.trim_end(), path.display()),
            source,
        })
    }

    /// Waits until `done` returns true, for `limit` at most. Returns whether it did.
    pub(super) fn wait(&self, limit: Duration, mut done: impl FnMut() -> bool) -> bool {
        let end = self.ops.now() + limit;
        let [mut pause, most] = LOOKS_APART;
        loop {
            if done() {
                return true;
            }
            if self.ops.now() >= end {
                return false;
            }
            self.ops.pause(pause);
            pause = (pause * 2).min(most);
        }
    }

    /// The name that a path below `/dev` resolves to: `/dev/disk/by-id/…` → `nvme0n1`.
    pub(super) fn node_name(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix("/dev").ok()?;
        let node = self.dev.join(inside);
        let node = fs::canonicalize(&node).unwrap_or(node);
        Some(node.file_name()?.to_str()?.to_owned())
    }
}
