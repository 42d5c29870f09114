//! A simulated machine: a tree of files in place of `/sys`, `/proc`, `/dev` and `/run`, and a
//! kernel that changes it on writes as the real one does.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::super::loops::LoopFile;
use super::super::ops::{Claim, NodeOwner, SysfsOps};
use super::super::{NvmeFunction, PciAddress, Sysfs, scan};

/// Faults of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// The driver takes no device.
    ProbeFails(&'static str),
    /// The driver releases no device.
    Keeps(&'static str),
    /// Writing to this file fails.
    Refuses(&'static str),
    /// No node appears in `/dev/vfio`.
    NoNode,
    /// The kernel's driver comes back without its last block device.
    DiskMissing,
    /// The device is removed at that step.
    VanishesAt(u32),
}

#[derive(Debug, Default)]
struct State {
    /// Changes made so far, each a point at which a process can be killed.
    steps: u32,
    log: Vec<String>,
    die_at: Option<u32>,
    dead: bool,
    now: Duration,
    faults: HashSet<Fault>,
    owners: HashMap<PathBuf, NodeOwner>,
    claimed: HashSet<String>,
    open: HashSet<PathBuf>,
    /// Until when a process has a node open.
    open_until: HashMap<PathBuf, Duration>,
    /// Modules that can be loaded, whose drivers then appear.
    modules: HashSet<String>,
    /// Namespaces by controller: (disk, partitions).
    disks: HashMap<PciAddress, Vec<(String, u32)>>,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Sim {
    dir: tempfile::TempDir,
    state: Mutex<State>,
}

pub(super) const ADDRESS: &str = "0000:01:00.0";
const ROOT_ONLY: NodeOwner = NodeOwner { uid: 0, gid: 0, mode: 0o600 };

pub(super) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

impl Sim {
    /// A machine without NVMe, whose drivers nvme and vfio-pci are modules.
    pub(super) fn new() -> Arc<Self> {
        let sim = Self { dir: tempfile::tempdir().unwrap(), state: Mutex::default() };
        for dir in
            ["sys/bus/pci/devices", "sys/bus/pci/drivers/nvme", "sys/class/block", "dev", "run"]
        {
            fs::create_dir_all(sim.root().join(dir)).unwrap();
        }
        for (file, text) in [
            ("sys/bus/pci/drivers_probe", ""),
            ("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("proc/sys/kernel/random/boot_id", "this-boot\n"),
        ] {
            sim.put(file, text);
        }
        sim.process(std::process::id(), "tests", 100);
        sim.state().modules.insert("vfio-pci".to_owned());
        Arc::new(sim)
    }

    /// A machine with one controller in IOMMU group 7 that has the namespace `nvme0n1` with two
    /// partitions, and `nvme0n2`.
    pub(super) fn with_ssd() -> (Arc<Self>, Sysfs) {
        let sim = Self::new();
        sim.add(ADDRESS, Some(7), &[("nvme0n1", 2), ("nvme0n2", 0)]);
        let sysfs = sim.sysfs();
        (sim, sysfs)
    }

    pub(super) fn sysfs(self: &Arc<Self>) -> Sysfs {
        Sysfs::at(self.root(), self.clone())
    }

    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Creates a file with its directories.
    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(super) fn process(&self, pid: u32, name: &str, start_ticks: u64) {
        let fields = vec!["0"; 18].join(" ");
        self.put(
            &format!("proc/{pid}/stat"),
            &format!("{pid} ({name} (x)) S {fields} {start_ticks} 0\n"),
        );
        self.put(&format!("proc/{pid}/comm"), &format!("{name}\n"));
    }

    /// Adds a controller with the kernel's driver.
    pub(super) fn add(&self, at: &str, group: Option<u32>, disks: &[(&str, u32)]) {
        self.add_other(at, group, 0x0001_0802, None);
        let disks = disks.iter().map(|(name, parts)| ((*name).to_owned(), *parts)).collect();
        self.state().disks.insert(address(at), disks);
        self.attach(address(at), "nvme");
    }

    /// Adds a PCI function.
    pub(super) fn add_other(&self, at: &str, group: Option<u32>, class: u32, driver: Option<&str>) {
        let dir = format!("sys/bus/pci/devices/{at}");
        for (name, text) in [
            ("class", format!("{class:#08x}\n")),
            ("vendor", "0x1b36\n".to_owned()),
            ("device", "0x0010\n".to_owned()),
            ("driver_override", "(null)\n".to_owned()),
            ("numa_node", "-1\n".to_owned()),
            ("modalias", "pci:v00001B36d00000010\n".to_owned()),
            ("current_link_speed", "8.0 GT/s PCIe\n".to_owned()),
            ("current_link_width", "4\n".to_owned()),
            ("max_link_speed", "16.0 GT/s PCIe\n".to_owned()),
            ("max_link_width", "4\n".to_owned()),
        ] {
            self.put(&format!("{dir}/{name}"), &text);
        }
        if let Some(group) = group {
            self.join_group(at, group);
        }
        if let Some(driver) = driver {
            self.attach(address(at), driver);
        }
    }

    fn join_group(&self, at: &str, group: u32) {
        self.put(&format!("sys/kernel/iommu_groups/{group}/devices/{at}"), "");
        let target = format!("../../../../kernel/iommu_groups/{group}");
        self.link(&format!("sys/bus/pci/devices/{at}/iommu_group"), &target);
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.state().faults.insert(fault);
    }

    pub(super) fn no_faults(&self) {
        self.state().faults.clear();
    }

    /// Removes a module.
    pub(super) fn forget_module(&self, name: &str) {
        self.state().modules.remove(name);
    }

    /// Another program holds the disk exclusively.
    pub(super) fn claim_for_other(&self, disk: &str) {
        self.state().claimed.insert(disk.to_owned());
    }

    /// A process has a node of `/dev/vfio` open for a short time.
    pub(super) fn hold_node_for(&self, name: &str, time: Duration) {
        let node = self.root().join("dev/vfio").join(name);
        let mut state = self.state();
        let end = state.now + time;
        state.open_until.insert(node, end);
    }

    /// A process opens a node of `/dev/vfio`, or closes it.
    pub(super) fn hold_node(&self, name: &str, open: bool) {
        let node = self.root().join("dev/vfio").join(name);
        let mut state = self.state();
        if open {
            state.open.insert(node);
        } else {
            state.open.remove(&node);
        }
    }

    /// From now on, kills the process just before its change number `step`.
    pub(super) fn die_at(&self, step: u32) {
        let mut state = self.state();
        (state.steps, state.die_at) = (0, Some(step));
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Another process continues, with the number of the dead one.
    pub(super) fn live_on(&self) {
        let mut state = self.state();
        (state.dead, state.die_at) = (false, None);
        drop(state);
        self.process(std::process::id(), "repair", 999);
    }

    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    pub(super) fn owner_of(&self, node: &str) -> Option<NodeOwner> {
        self.state().owners.get(&self.root().join(node)).copied()
    }

    pub(super) fn only(self: &Arc<Self>) -> NvmeFunction {
        scan(&self.sysfs()).pop().unwrap()
    }

    /// Checks that the machine looks as if no device was ever taken.
    pub(super) fn assert_untouched(self: &Arc<Self>) {
        let function = self.only();
        assert_eq!(function.driver.as_deref(), Some("nvme"));
        assert_eq!(function.driver_override, None);
        assert_eq!(function.taker, None);
        assert_eq!(
            function.disks.iter().map(|disk| disk.partitions.len()).collect::<Vec<_>>(),
            [2, 0]
        );
        let left = super::super::attribute::names(&self.root().join("run/meantime/pci"));
        assert!(left.iter().all(|name| name == "lock"), "{left:?}");
        let parameter = self.root().join("sys").join(super::super::group::NO_IOMMU_PARAMETER);
        assert!(
            fs::read_to_string(parameter).is_ok_and(|text| text == "N\n")
                || function.group.is_some()
        );
    }

    /// One change: the process may be killed before it, or the device removed.
    fn step(&self, what: String) -> io::Result<()> {
        let mut state = self.state();
        if !state.dead && state.die_at == Some(state.steps) {
            state.dead = true;
            fs::remove_dir_all(self.root().join("proc").join(std::process::id().to_string()))
                .unwrap();
        }
        if state.dead {
            return Err(io::Error::other("killed"));
        }
        if state.faults.contains(&Fault::VanishesAt(state.steps)) {
            drop(state);
            let at = address(ADDRESS);
            self.detach(at);
            let _ = fs::remove_dir_all(self.root().join("sys/bus/pci/devices").join(ADDRESS));
            state = self.state();
        }
        state.steps += 1;
        state.log.push(what);
        Ok(())
    }

    fn has(&self, fault: &Fault) -> bool {
        self.state().faults.contains(fault)
    }

    fn function(&self, at: PciAddress) -> PathBuf {
        self.root().join("sys/bus/pci/devices").join(at.to_string())
    }

    /// A successful probe by a driver.
    fn attach(&self, at: PciAddress, driver: &str) {
        let dir = self.function(at);
        symlink(format!("../../drivers/{driver}"), dir.join("driver")).unwrap();
        fs::create_dir_all(self.root().join("sys/bus/pci/drivers").join(driver)).unwrap();
        fs::write(self.root().join("sys/bus/pci/drivers").join(driver).join("unbind"), "").unwrap();
        match driver {
            "nvme" => self.make_disks(at),
            "vfio-pci" => self.make_node(at),
            _ => {}
        }
    }

    fn make_disks(&self, at: PciAddress) {
        let mut disks = self.state().disks.get(&at).cloned().unwrap_or_default();
        if self.has(&Fault::DiskMissing) {
            disks.pop();
        }
        let name = disks.first().map_or("nvme0".to_owned(), |(disk, _)| disk[..5].to_owned());
        let controller = format!("sys/bus/pci/devices/{at}/nvme/{name}");
        for (file, text) in [
            ("model", "Made-up SSD      \n"),
            ("serial", "S0\n"),
            ("firmware_rev", "1.0\n"),
            ("state", "live\n"),
        ] {
            self.put(&format!("{controller}/{file}"), text);
        }
        self.put(&format!("sys/class/nvme/{name}/address"), &format!("{at}\n"));
        for (index, (disk, parts)) in disks.iter().enumerate() {
            let minor = |part: u32| 16 * index as u32 + part;
            fs::create_dir_all(self.root().join(&controller).join(disk)).unwrap();
            self.disk(disk, (259, minor(0)));
            for part in 1..=*parts {
                let dir = format!("sys/class/block/{disk}/{disk}p{part}");
                self.put(&format!("{dir}/partition"), &part.to_string());
                self.put(&format!("{dir}/size"), "2048\n");
                self.put(&format!("{dir}/dev"), &format!("259:{}\n", minor(part)));
                self.put(&format!("dev/{disk}p{part}"), "");
            }
        }
    }

    /// A block device of 1 MiB.
    pub(super) fn disk(&self, name: &str, (major, minor): (u32, u32)) {
        self.put(&format!("sys/class/block/{name}/size"), "2048\n");
        self.put(&format!("sys/class/block/{name}/dev"), &format!("{major}:{minor}\n"));
        self.put(&format!("dev/{name}"), "");
    }

    fn make_node(&self, at: PciAddress) {
        let link = self.function(at).join("iommu_group");
        let unsafe_mode = self.root().join("sys").join(super::super::group::NO_IOMMU_PARAMETER);
        let allowed = fs::read_to_string(unsafe_mode).is_ok_and(|text| text.trim() == "Y");
        if !link.exists() && allowed {
            self.join_group(&at.to_string(), 0);
            self.put("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
        }
        let Some(group) = super::super::attribute::link_name(&link) else { return };
        let prefix = if link.join("name").exists() { "noiommu-" } else { "" };
        if !self.has(&Fault::NoNode) {
            let node = format!("dev/vfio/{prefix}{group}");
            self.put(&node, "");
            self.state().owners.insert(self.root().join(node), ROOT_ONLY);
        }
    }

    /// A removal by a driver.
    fn detach(&self, at: PciAddress) {
        let dir = self.function(at);
        if super::super::attribute::link_name(&dir.join("driver")).as_deref() == Some("vfio-pci") {
            let link = dir.join("iommu_group");
            let no_iommu = link.join("name").exists();
            let group = super::super::attribute::link_name(&link).unwrap();
            let node = self.root().join("dev/vfio").join(if no_iommu {
                format!("noiommu-{group}")
            } else {
                group
            });
            assert!(
                !self.state().open.contains(&node),
                "this would block until the node is closed"
            );
            let others = super::super::attribute::names(&link.join("devices"));
            let others = others.into_iter().filter(|other| *other != at.to_string());
            let with_vfio = |other: String| {
                super::super::attribute::link_name(&self.function(address(&other)).join("driver"))
                    .as_deref()
                    == Some("vfio-pci")
            };
            if !others.into_iter().any(with_vfio) {
                let _ = fs::remove_file(&node);
                self.state().owners.remove(&node);
            }
            if no_iommu {
                fs::remove_file(link).unwrap();
            }
        }
        let _ = fs::remove_file(dir.join("driver"));
        for name in super::super::attribute::names(&dir.join("nvme")) {
            let _ = fs::remove_dir_all(self.root().join("sys/class/nvme").join(name));
        }
        let _ = fs::remove_dir_all(dir.join("nvme"));
        let disks = self.state().disks.get(&at).cloned().unwrap_or_default();
        for (disk, parts) in disks {
            let _ = fs::remove_dir_all(self.root().join("sys/class/block").join(&disk));
            let _ = fs::remove_file(self.root().join("dev").join(&disk));
            for part in 1..=parts {
                let _ = fs::remove_file(self.root().join("dev").join(format!("{disk}p{part}")));
            }
        }
    }

    fn probe(&self, at: PciAddress) -> io::Result<()> {
        let dir = self.function(at);
        if !dir.exists() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if dir.join("driver").exists() {
            return Ok(());
        }
        let wanted = fs::read_to_string(dir.join("driver_override")).unwrap();
        let driver = match wanted.trim() {
            "(null)" => "nvme",
            "vfio-pci" => "vfio-pci",
            other => panic!("override {other:?}"),
        };
        let there = self.root().join("sys/bus/pci/drivers").join(driver).exists();
        let fails = self.state().faults.iter().any(|fault| {
            *fault == Fault::ProbeFails(if driver == "nvme" { "nvme" } else { "vfio-pci" })
        });
        if there && !fails {
            self.attach(at, driver);
        }
        Ok(())
    }
}

impl SysfsOps for Sim {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        self.step(format!("write {name} {}", text.trim_end()))?;
        if self
            .state()
            .faults
            .iter()
            .any(|fault| matches!(fault, Fault::Refuses(file) if *file == name))
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !path.exists() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        match name {
            "driver_override" => {
                let text = if text == "\n" { "(null)\n" } else { text };
                fs::write(path, text)
            }
            "unbind" => {
                let at = address(text.trim());
                let driver =
                    super::super::attribute::link_name(&self.function(at).join("driver")).unwrap();
                if !self
                    .state()
                    .faults
                    .iter()
                    .any(|fault| matches!(fault, Fault::Keeps(name) if *name == driver))
                {
                    self.detach(at);
                }
                Ok(())
            }
            "drivers_probe" => self.probe(address(text.trim())),
            "enable_unsafe_noiommu_mode" => fs::write(path, text),
            other => panic!("nobody should write to {other}"),
        }
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        self.step(format!("load {name}"))?;
        if !self.state().modules.contains(name) {
            return Err(io::Error::other("modprobe: exit status: 1"));
        }
        fs::create_dir_all(self.root().join("sys/bus/pci/drivers").join(name))
    }

    fn claim(&self, node: &Path) -> io::Result<Claim> {
        if !node.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = node.file_name().unwrap().to_str().unwrap();
        match self.state().claimed.contains(name) {
            true => Err(io::Error::from_raw_os_error(libc::EBUSY)),
            false => Ok(Claim::default()),
        }
    }

    /// As for a user without permission to open it.
    fn loop_file(&self, _: &Path) -> io::Result<LoopFile> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn is_open(&self, node: &Path) -> bool {
        let state = self.state();
        state.open.contains(node) || state.open_until.get(node).is_some_and(|&end| state.now < end)
    }

    fn owner(&self, node: &Path) -> io::Result<NodeOwner> {
        self.state().owners.get(node).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_owner(&self, node: &Path, owner: NodeOwner) -> io::Result<()> {
        self.step(format!("chown {}", owner.uid))?;
        self.state().owners.insert(node.to_owned(), owner);
        Ok(())
    }

    fn may_write(&self, _: &Path) -> bool {
        !self.has(&Fault::Refuses("everything"))
    }

    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        self.step("create record".to_owned())?;
        fs::write(path, text)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let text = fs::read_to_string(from).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let stage = record["stage"].as_str().unwrap_or("?");
        self.step(format!("record {stage}"))?;
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove record".to_owned())?;
        fs::remove_file(path)
    }

    fn now(&self) -> Duration {
        self.state().now
    }

    fn pause(&self, time: Duration) {
        self.state().now += time;
    }
}
