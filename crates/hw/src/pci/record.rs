//! Records of changes to a controller, written before the changes: `/run/meantime/pci/ADDRESS`, in
//! JSON.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::address::PciAddress;
use super::attribute::names;
use super::error::PciError;
use super::ops::NodeOwner;
use super::process::{self, ProcessId};
use super::sysfs::Sysfs;

/// Time limit of another process's work on a controller.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Records are small; a larger file is not ours.
const RECORD_MAX_BYTES: u64 = 64 << 10;

/// The progress of taking a controller or returning it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    Taking,
    Taken,
    /// The name that earlier versions wrote.
    #[serde(rename = "giving-back")]
    Returning,
}

/// The process that took a controller from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taker {
    /// Its process number.
    pub pid: u32,
    /// Whether that process runs.
    pub alive: bool,
    /// Whether it is taken until it is unbound, even if that process ends.
    pub persistent: bool,
    /// Whether it was interrupted: [`repair`](super::repair) is needed.
    pub unfinished: bool,
    /// The user who owns the device's node, by number.
    pub uid: Option<u32>,
}

/// The record of one controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub address: PciAddress,
    pub stage: Stage,
    /// The process that takes the controller or returns it.
    pub process: ProcessId,
    pub boot_id: String,
    pub persistent: bool,
    pub former_driver: Option<String>,
    pub former_override: Option<String>,
    /// The number of its block devices before it was taken.
    pub disks: u32,
    /// The node's new owner, and its former one.
    pub owner_uid: Option<u32>,
    pub node: Option<(PathBuf, NodeOwner)>,
    /// The former value of VFIO's parameter for devices without an IOMMU.
    pub no_iommu_was: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
}

impl Record {
    /// Whether no process will finish the work, or return a controller taken temporarily. The
    /// caller holds the [`Lock`]: work is also finished under it, so a process that left it
    /// unfinished has given up or died.
    pub(super) fn is_abandoned(&self, sysfs: &Sysfs) -> bool {
        match self.stage {
            Stage::Taking | Stage::Returning => true,
            Stage::Taken => !self.persistent && !self.process.is_alive(sysfs),
        }
    }

    /// Whether it is bound permanently.
    pub(super) fn is_permanent(&self) -> bool {
        self.persistent && self.stage == Stage::Taken
    }

    /// Whether it was written since the machine booted; at boot every device had its kernel driver.
    pub(super) fn is_of_this_boot(&self, sysfs: &Sysfs) -> bool {
        self.boot_id == process::boot_id(sysfs)
    }

    pub(super) fn taker(&self, sysfs: &Sysfs) -> Taker {
        let alive = self.process.is_alive(sysfs);
        let unfinished = !alive && self.is_abandoned(sysfs);
        Taker {
            pid: self.process.pid,
            persistent: self.persistent,
            alive,
            unfinished,
            uid: self.owner_uid,
        }
    }

    /// The record of `address`, if there is one.
    ///
    /// # Errors
    /// Fails if it cannot be read or parsed.
    pub(super) fn read(sysfs: &Sysfs, address: PciAddress) -> Result<Option<Self>, PciError> {
        let path = dir(sysfs).join(address.to_string());
        let damaged = |what: String| PciError::Record { path: path.clone(), what };
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(meta) if meta.len() > RECORD_MAX_BYTES => {
                return Err(damaged("it is too long".to_owned()));
            }
            _ => {}
        }
        let text = fs::read(&path).map_err(|error| damaged(error.to_string()))?;
        parse(address, &String::from_utf8_lossy(&text)).map(Some).map_err(damaged)
    }

    /// Replaces it atomically.
    pub(super) fn write(&self, sysfs: &Sysfs) -> Result<(), PciError> {
        let path = dir(sysfs).join(self.address.to_string());
        let beside = dir(sysfs).join(format!(".{}", self.address));
        let written = self.text().and_then(|text| sysfs.ops().create(&beside, &text));
        let written = written.and_then(|()| sysfs.ops().rename(&beside, &path));
        written.map_err(|error| {
            let _ = sysfs.ops().remove(&beside);
            PciError::Record { path, what: error.to_string() }
        })
    }

    /// Removes it.
    pub(super) fn remove(&self, sysfs: &Sysfs) -> Result<(), PciError> {
        remove(sysfs, self.address)
    }

    fn text(&self) -> io::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

fn parse(address: PciAddress, text: &str) -> Result<Record, String> {
    let record: Record = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if record.address != address {
        return Err("it is of another device".to_owned());
    }
    // Names of drivers are written to the kernel.
    let is_driver =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if ![&record.former_driver, &record.former_override].into_iter().flatten().all(is_driver) {
        return Err("it has a driver's name that is none".to_owned());
    }
    if record.node.as_ref().is_some_and(|(_, owner)| owner.mode > 0o7777) {
        return Err("its node's mode is none".to_owned());
    }
    Ok(record)
}

pub(super) fn dir(sysfs: &Sysfs) -> PathBuf {
    sysfs.run.join("meantime/pci")
}

/// The devices with a record, including damaged ones.
pub(super) fn addresses(sysfs: &Sysfs) -> Vec<PciAddress> {
    names(&dir(sysfs)).iter().filter_map(|name| name.parse().ok()).collect()
}

/// Removes the record of `address`, if there is one.
pub(super) fn remove(sysfs: &Sysfs, address: PciAddress) -> Result<(), PciError> {
    let path = dir(sysfs).join(address.to_string());
    match sysfs.ops().remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PciError::Record { path, what: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Keeps other processes of Meantime from taking or returning a controller until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code)] fs::File);

impl Lock {
    /// Waits for the lock.
    pub(super) fn acquire(sysfs: &Sysfs) -> Result<Self, PciError> {
        let path = dir(sysfs).join("lock");
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => PciError::NeedsRoot,
            _ => PciError::Record { path: path.clone(), what: error.to_string() },
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir(sysfs)).map_err(failed)?;
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if sysfs
            .wait(LOCK_TIMEOUT, || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
        {
            return Ok(Self(file));
        }
        Err(PciError::TimedOut {
            what: format!("for {}", path.display()),
            hint: "another `meantime` is taking a device or giving it back; has it stopped?"
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            address: "0000:01:00.0".parse().unwrap(),
            stage: Stage::Taken,
            process: ProcessId { pid: 42, start_ticks: 1234 },
            boot_id: "b".to_owned(),
            persistent: true,
            former_driver: Some("nvme".to_owned()),
            former_override: None,
            disks: 2,
            owner_uid: Some(1000),
            node: Some(("/dev/vfio/7".into(), NodeOwner { uid: 0, gid: 0, mode: 0o600 })),
            no_iommu_was: Some("N".to_owned()),
            model: Some("A = B".to_owned()),
            serial: None,
            firmware: Some("1.0".to_owned()),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let record = record();
        assert_eq!(parse(record.address, &record.text().unwrap()), Ok(record));
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let record = record();
        let text = record.text().unwrap();
        for (from, to, word) in [
            ("\"taken\"", "\"done\"", "`giving-back`"),
            ("42", "-1", "u32"),
            ("\"pid\": 42,", "", "`pid`"),
            ("\"bus\": 1", "\"bus\": 2", "another device"),
            ("\"nvme\"", "\"../nvme\"", "driver's name"),
            ("384", "38400", "mode"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = parse(record.address, &text.replace(from, to)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(parse(record.address, "").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[{](\"[a-z_]{1,14}\": ?[0-9a-z:./\" {}]{0,20},?\n){0,12}[}]") {
            let _ = parse("0000:01:00.0".parse().unwrap(), &text);
        }
    }
}
