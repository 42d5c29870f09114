//! Taking a controller from the kernel's driver temporarily.

use std::path::{Path, PathBuf};

use super::address::PciAddress;
use super::attribute::attribute;
use super::driver::{DRIVER_TIMEOUT, VFIO_PCI, is_vfio, not_with, release};
use super::error::PciError;
use super::function::NvmeFunction;
use super::group::{IommuGroup, NO_IOMMU_PARAMETER};
use super::node::Nodes;
use super::ops::NodeOwner;
use super::process::{self, ProcessId};
use super::record::{Lock, Record, Stage};
use super::resolve::no_such;
use super::return_to_kernel::{self, Returned};
use super::sysfs::Sysfs;
use super::usage::{self, Snapshot};

/// Options for taking a controller.
#[derive(Debug, Clone, Default)]
pub struct TakeOptions {
    /// User and group that may use the device, by number.
    pub owner: Option<(u32, u32)>,
    /// Whether to take it even if a process has it open. A device that is mounted, swapped on or
    /// held is never taken.
    pub force: bool,
    /// Whether to take it without an IOMMU. **The device can then read and write all memory,
    /// including the kernel's**: a wrong address in a command corrupts the machine.
    pub unsafe_no_iommu: bool,
    /// Other devices of its IOMMU group to take with it.
    pub together: Vec<PciAddress>,
}

/// A controller that is with `vfio-pci`. If [`take`] took it, dropping this returns it to the
/// kernel's driver.
#[derive(Debug)]
pub struct Taken {
    sysfs: Sysfs,
    address: PciAddress,
    nodes: Nodes,
    /// The process that has to return it; `None` if it was with `vfio-pci` before.
    taker_pid: Option<u32>,
}

/// Takes the controller at `address` from the kernel's driver. A controller that is with `vfio-pci`
/// already stays there afterwards, and taking it only requires access to its node.
///
/// Every descriptor opened through [`node`](Taken::node) must be closed before the result is
/// dropped.
///
/// # Errors
/// Fails if the controller is in use or not alone in its IOMMU group, or if the kernel refuses. The
/// former state is then restored.
pub fn take(sysfs: &Sysfs, address: PciAddress, options: &TakeOptions) -> Result<Taken, PciError> {
    let taken = |nodes, taker_pid| Taken { sysfs: sysfs.clone(), address, nodes, taker_pid };
    if is_bound(sysfs, address)? {
        return Ok(taken(Nodes::wait(sysfs, address)?, None));
    }
    let _lock = Lock::acquire(sysfs)?;
    // The previous holder of the lock may have bound it.
    if is_bound(sysfs, address)? {
        return Ok(taken(Nodes::wait(sysfs, address)?, None));
    }
    let (record, nodes) = take_locked(sysfs, address, options, false)?;
    Ok(taken(nodes, Some(record.process.pid)))
}

/// Whether the controller is with `vfio-pci` permanently, by [`bind`](super::bind) or another
/// program.
fn is_bound(sysfs: &Sysfs, address: PciAddress) -> Result<bool, PciError> {
    let with_vfio = function(sysfs, address)?.driver.as_deref().is_some_and(is_vfio);
    Ok(with_vfio && Record::read(sysfs, address)?.is_none_or(|record| record.is_permanent()))
}

impl Taken {
    /// The device.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// The node of its VFIO group, `/dev/vfio/N`.
    pub fn node(&self) -> &Path {
        &self.nodes.group
    }

    /// Its own node, `/dev/vfio/devices/vfioN`, where there is iommufd.
    pub fn device_node(&self) -> Option<&Path> {
        self.nodes.device.as_deref()
    }

    /// Whether dropping this returns it to the kernel's driver.
    pub fn will_return_to_kernel(&self) -> bool {
        self.taker_pid.is_some()
    }

    /// Returns it to the kernel's driver, if it was taken; `None` if it was with `vfio-pci` before.
    ///
    /// # Errors
    /// Fails if the device is still open, or if its driver does not take it back.
    /// [`repair`](super::repair) tries again once this process has ended.
    pub fn return_to_kernel(mut self) -> Result<Option<Returned>, PciError> {
        self.end()
    }

    /// The former name of [`will_return_to_kernel`](Self::will_return_to_kernel).
    #[deprecated(note = "use `will_return_to_kernel`")]
    pub fn will_be_given_back(&self) -> bool {
        self.will_return_to_kernel()
    }

    /// The former name of [`return_to_kernel`](Self::return_to_kernel).
    ///
    /// # Errors
    /// Fails if the device is still open, or if its driver does not take it back.
    #[deprecated(note = "use `return_to_kernel`")]
    pub fn give_back(self) -> Result<Option<Returned>, PciError> {
        self.return_to_kernel()
    }

    fn end(&mut self) -> Result<Option<Returned>, PciError> {
        // A forked child has a copy of this, but the device belongs to its parent.
        if self.taker_pid.take() != Some(std::process::id()) {
            return Ok(None);
        }
        let _lock = Lock::acquire(&self.sysfs)?;
        match Record::read(&self.sysfs, self.address)? {
            Some(record) => {
                return_to_kernel::return_to_kernel(&self.sysfs, record, false).map(Some)
            }
            None => Ok(None),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(
                "{} could not be given back to the kernel's driver: {error}; when this process has \
                 ended, run `meantime devices --repair`",
                self.address
            );
        }
    }
}

/// The controller at `address`.
pub(super) fn function(sysfs: &Sysfs, address: PciAddress) -> Result<NvmeFunction, PciError> {
    NvmeFunction::of(sysfs, address).ok_or_else(|| no_such(sysfs, address))
}

/// Fails if this process may not choose the driver of the device at `address`.
pub(super) fn check_rights(sysfs: &Sysfs, address: PciAddress) -> Result<(), PciError> {
    let choice = sysfs.function(address).join("driver_override");
    if sysfs.ops().may_write(&choice) { Ok(()) } else { Err(PciError::NeedsRoot) }
}

/// Takes the controller, after undoing an earlier process's unfinished work.
pub(super) fn take_locked(
    sysfs: &Sysfs,
    address: PciAddress,
    options: &TakeOptions,
    persistent: bool,
) -> Result<(Record, Nodes), PciError> {
    check_rights(sysfs, address)?;
    if let Some(record) = Record::read(sysfs, address)? {
        if !record.is_of_this_boot(sysfs) {
            record.remove(sysfs)?;
        } else if record.is_abandoned(sysfs) || record.is_permanent() {
            // A permanent record here means that the controller is no longer with vfio-pci: someone
            // returned it by hand.
            return_to_kernel::return_to_kernel(sysfs, record, true)?;
        } else {
            let by = process::in_words(sysfs, record.process.pid);
            return Err(PciError::TakenBy { address, by });
        }
    }
    let function = function(sysfs, address)?;
    check_group(&function, options)?;
    check_uses(sysfs, &function, options)?;
    // From here until the kernel's driver releases it, no other program can begin to use a disk.
    let claims = match usage::claim(sysfs, &function.disks) {
        Ok(claims) => claims,
        Err((disk, source)) if source.raw_os_error() == Some(libc::EBUSY) => {
            let uses = vec![format!("{disk} is in exclusive use")];
            return Err(PciError::InUse { address, uses, force_helps: false });
        }
        Err((disk, source)) => return Err(PciError::CannotTell { address, disk, source }),
    };
    load_vfio(sysfs)?;

    let mut record = Record::before(sysfs, &function, persistent);
    record.write(sysfs)?;
    let done = move_to_vfio(sysfs, &mut record, &function, options);
    drop(claims);
    match done {
        Ok(nodes) => Ok((record, nodes)),
        Err(cause) => {
            let undone =
                return_to_kernel::return_to_kernel(sysfs, record, false).err().map(Box::new);
            Err(PciError::Failed { cause: Box::new(cause), undone })
        }
    }
}

/// The part that changes the device. At each step the record suffices to undo the previous steps.
fn move_to_vfio(
    sysfs: &Sysfs,
    record: &mut Record,
    function: &NvmeFunction,
    options: &TakeOptions,
) -> Result<Nodes, PciError> {
    let address = record.address;
    if function.group.is_none() {
        allow_no_iommu(sysfs, record)?;
    }
    let dir = sysfs.function(address);
    if function.driver_override.as_deref() != Some(VFIO_PCI) {
        sysfs.write(&dir.join("driver_override"), &format!("{VFIO_PCI}\n"))?;
    }
    if function.driver.is_some() {
        release(sysfs, address)?;
    }
    sysfs.write(&sysfs.bus().join("drivers_probe"), &format!("{address}\n"))?;
    let has_it = || sysfs.driver(address).as_deref() == Some(VFIO_PCI);
    sysfs.wait(DRIVER_TIMEOUT, || has_it() || !dir.exists());
    if !has_it() {
        return Err(not_with(sysfs, address, VFIO_PCI));
    }
    let nodes = Nodes::wait(sysfs, address)?;
    if let Some(owner) = options.owner {
        give_node(sysfs, record, &nodes, owner)?;
    }
    record.stage = Stage::Taken;
    record.write(sysfs)?;
    Ok(nodes)
}

/// Gives the nodes to a user, and records the former owner first.
pub(super) fn give_node(
    sysfs: &Sysfs,
    record: &mut Record,
    nodes: &Nodes,
    (uid, gid): (u32, u32),
) -> Result<(), PciError> {
    if record.node.is_none() {
        let was = sysfs.ops().owner(&nodes.group).map_err(|source| PciError::Kernel {
            what: format!("does not say whose {} is", nodes.group.display()),
            source,
        })?;
        record.node = Some((nodes.group.clone(), was));
    }
    record.owner_uid = Some(uid);
    record.write(sysfs)?;
    nodes.give_to(sysfs, NodeOwner { uid, gid, mode: 0o600 })
}

fn check_group(function: &NvmeFunction, options: &TakeOptions) -> Result<(), PciError> {
    let address = function.address;
    let group = match &function.group {
        Some(group) => group,
        None if options.unsafe_no_iommu => return Ok(()),
        None => return Err(PciError::NoIommu { address }),
    };
    let others: Vec<_> =
        group.in_the_way().filter(|other| !options.together.contains(&other.address)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let hint = if others.iter().all(|other| other.is_nvme()) {
        let addresses =
            others.iter().map(|other| other.address).chain(options.together.iter().copied());
        let addresses: Vec<String> =
            addresses.filter(|other| *other != address).map(|other| other.to_string()).collect();
        format!("bind them together: `meantime bind {address} {}`", addresses.join(" "))
    } else {
        "unbind those, or put the SSD in another slot".to_owned()
    };
    let others = others.into_iter().map(|other| {
        let what = if other.is_nvme() { "another NVMe controller, " } else { "" };
        format!("{} ({what}driver {})", other.address, other.driver.as_deref().unwrap_or("none"))
    });
    Err(PciError::GroupShared { address, group: group.number, others: others.collect(), hint })
}

fn check_uses(
    sysfs: &Sysfs,
    function: &NvmeFunction,
    options: &TakeOptions,
) -> Result<(), PciError> {
    let uses = Snapshot::take(sysfs).uses(sysfs, function.controller.as_deref(), &function.disks);
    let forbidden = uses.iter().any(|one| one.forbids());
    if uses.is_empty() || (!forbidden && options.force) {
        return Ok(());
    }
    let uses =
        uses.iter().filter(|one| one.forbids() == forbidden).map(ToString::to_string).collect();
    Err(PciError::InUse { address: function.address, uses, force_helps: !forbidden })
}

fn load_vfio(sysfs: &Sysfs) -> Result<(), PciError> {
    if !sysfs.has_driver(VFIO_PCI) {
        let loaded = sysfs.ops().load_module(VFIO_PCI);
        if !sysfs.has_driver(VFIO_PCI) {
            let why = loaded
                .err()
                .map_or_else(|| "there is no such driver".to_owned(), |error| error.to_string());
            return Err(PciError::NoVfio { why });
        }
    }
    // This is the module of containers. The kernel requests it itself when a container is opened,
    // unless it only has iommufd; opening the device will show whether that works.
    if !sysfs.sys.join("module/vfio_iommu_type1").exists() {
        let _ = sysfs.ops().load_module("vfio_iommu_type1");
    }
    Ok(())
}

fn allow_no_iommu(sysfs: &Sysfs, record: &mut Record) -> Result<(), PciError> {
    let parameter: PathBuf = sysfs.sys.join(NO_IOMMU_PARAMETER);
    let was = attribute(&parameter).ok_or_else(|| PciError::NoUnsafeMode {
        why: "it was built without CONFIG_VFIO_NOIOMMU".to_owned(),
    })?;
    if matches!(was.as_str(), "Y" | "1") {
        return Ok(());
    }
    record.no_iommu_was = Some(was);
    record.write(sysfs)?;
    sysfs.write(&parameter, "Y\n")
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
}

impl IommuGroup {
    /// The other functions, for display: `0000:01:00.1 (snd_hda_intel)`.
    pub fn others_in_words(&self) -> Vec<String> {
        self.others.iter().map(ToString::to_string).collect()
    }
}
