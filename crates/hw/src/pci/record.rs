//! Records of changes to a controller, written before the changes: `/run/meantime/pci/ADDRESS`,
//! lines of `key=value`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::address::PciAddress;
use super::error::PciError;
use super::function::NvmeFunction;
use super::node::NodeOwner;
use super::process::{self, ProcessId};
use super::sysfs::{Sysfs, names};

/// Time limit of another process's work on a controller.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Records are small; a larger file is not ours.
const RECORD_MAX_BYTES: u64 = 64 << 10;

/// The progress of taking or giving back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Taking,
    Taken,
    GivingBack,
}

const STAGES: [(Stage, &str); 3] =
    [(Stage::Taking, "taking"), (Stage::Taken, "taken"), (Stage::GivingBack, "giving-back")];

/// The process that took a controller from the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Its process number.
    pub pid: u32,
    /// Whether it is taken until it is unbound, even if that process ends.
    pub persistent: bool,
    /// Whether that process runs.
    pub alive: bool,
    /// Whether it was interrupted: [`repair`](super::repair) is needed.
    pub unfinished: bool,
    /// The user who owns the device's node, by number.
    pub uid: Option<u32>,
}

/// The record of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub address: PciAddress,
    pub stage: Stage,
    /// The process that takes it or gives it back.
    pub process: ProcessId,
    pub boot_id: String,
    pub persistent: bool,
    pub former_driver: Option<String>,
    pub former_override: Option<String>,
    /// The number of its block devices before.
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
    /// The record of a controller that is about to be taken.
    pub(super) fn before(sysfs: &Sysfs, function: &NvmeFunction, persistent: bool) -> Self {
        Self {
            address: function.address,
            stage: Stage::Taking,
            process: ProcessId::own(sysfs),
            boot_id: process::boot_id(sysfs),
            persistent,
            former_driver: function.driver.clone(),
            former_override: function.driver_override.clone(),
            disks: function.disks.len() as u32,
            owner_uid: None,
            node: None,
            no_iommu_was: None,
            model: function.model.clone(),
            serial: function.serial.clone(),
            firmware: function.firmware.clone(),
        }
    }

    /// Whether no process will finish the work, or give back a controller taken temporarily. Called
    /// under the [`Lock`]: since work is also finished under it, a process that left it unfinished
    /// has given up or died.
    pub(super) fn is_abandoned(&self, sysfs: &Sysfs) -> bool {
        match self.stage {
            Stage::Taking | Stage::GivingBack => true,
            Stage::Taken => !self.persistent && !self.process.is_alive(sysfs),
        }
    }

    /// Whether it is bound permanently.
    pub(super) fn is_settled(&self) -> bool {
        self.persistent && self.stage == Stage::Taken
    }

    /// Whether it was written since this boot, at which every device had its kernel driver.
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
    /// If it cannot be read or parsed.
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
        let written = sysfs.ops().create(&beside, &self.text());
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

    fn text(&self) -> String {
        let stage =
            STAGES.iter().find(|(stage, _)| *stage == self.stage).map_or("", |(_, name)| name);
        let mut text =
            String::from("# Written by meantime; `meantime devices --repair` goes by it.\n");
        let mut line = |key: &str, value: &str| {
            let value = value.replace(|c: char| c.is_control(), " ");
            text += &format!("{key}={value}\n");
        };
        line("address", &self.address.to_string());
        line("stage", stage);
        line("pid", &self.process.pid.to_string());
        line("start_ticks", &self.process.start_ticks.to_string());
        line("boot_id", &self.boot_id);
        line("persistent", if self.persistent { "1" } else { "0" });
        line("disks", &self.disks.to_string());
        if let Some(uid) = self.owner_uid {
            line("owner_uid", &uid.to_string());
        }
        if let Some((node, NodeOwner { uid, gid, mode })) = &self.node {
            line("node", &node.to_string_lossy());
            line("node_was", &format!("{uid}:{gid}:{mode:o}"));
        }
        for (key, value) in [
            ("former_driver", &self.former_driver),
            ("former_override", &self.former_override),
            ("no_iommu_was", &self.no_iommu_was),
            ("model", &self.model),
            ("serial", &self.serial),
            ("firmware", &self.firmware),
        ] {
            if let Some(value) = value {
                line(key, value);
            }
        }
        text
    }
}

fn parse(address: PciAddress, text: &str) -> Result<Record, String> {
    let get = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.split_once('='));
        values.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
    };
    let need = |key: &str| get(key).ok_or_else(|| format!("it has no {key}"));
    let number =
        |key: &str| need(key)?.parse::<u64>().map_err(|_| format!("its {key} is no number"));
    let small =
        |key: &str| u32::try_from(number(key)?).map_err(|_| format!("its {key} is too large"));
    if need("address")? != address.to_string() {
        return Err("it is of another device".to_owned());
    }
    let stage = need("stage")?;
    let stage = STAGES.iter().find(|(_, name)| *name == stage).ok_or("its stage is unknown")?.0;
    let node = match (get("node"), get("node_was")) {
        (Some(node), Some(was)) => {
            Some((node.into(), node_owner(&was).ok_or("its node_was is not uid:gid:mode")?))
        }
        _ => None,
    };
    // Checks driver names, which are written to the kernel.
    let driver = |key: &str| match get(key) {
        Some(name) if name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') => {
            Ok(Some(name))
        }
        Some(_) => Err(format!("its {key} is no driver's name")),
        None => Ok(None),
    };
    Ok(Record {
        address,
        stage,
        process: ProcessId { pid: small("pid")?, start_ticks: number("start_ticks")? },
        boot_id: need("boot_id")?,
        persistent: need("persistent")? == "1",
        former_driver: driver("former_driver")?,
        former_override: driver("former_override")?,
        disks: small("disks")?,
        owner_uid: get("owner_uid").map(|_| small("owner_uid")).transpose()?,
        node,
        no_iommu_was: get("no_iommu_was"),
        model: get("model"),
        serial: get("serial"),
        firmware: get("firmware"),
    })
}

fn node_owner(text: &str) -> Option<NodeOwner> {
    let mut parts = text.split(':');
    let owner = NodeOwner {
        uid: parts.next()?.parse().ok()?,
        gid: parts.next()?.parse().ok()?,
        mode: u32::from_str_radix(parts.next()?, 8).ok()?,
    };
    (parts.next().is_none() && owner.mode <= 0o7777).then_some(owner)
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

/// Keeps other processes of Meantime from taking or giving back at the same time, until it is
/// dropped.
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
        assert_eq!(parse(record.address, &record.text()), Ok(record));
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let record = record();
        let text = record.text();
        for (from, to, word) in [
            ("stage=taken", "stage=done", "stage"),
            ("pid=42", "pid=-1", "pid"),
            ("pid=42\n", "", "no pid"),
            ("0000:01:00.0", "0000:02:00.0", "another device"),
            ("former_driver=nvme", "former_driver=../nvme", "driver's name"),
            ("node_was=0:0:600", "node_was=0:0:99999", "uid:gid:mode"),
        ] {
            let error = parse(record.address, &text.replace(from, to)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(parse(record.address, "").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "(([a-z_]{1,14}=)?[0-9a-z:./= ]{0,20}\n){0,12}") {
            let _ = parse("0000:01:00.0".parse().unwrap(), &text);
        }
    }
}
