//! Finds the processes that see a mount, or have a file of it open.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use meantime_hw::mountinfo;
use meantime_process::locks::name_of;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::mount::KIND;

/// The most processes that a message lists.
const LISTED: usize = 16;

/// The mount that a program has in namespaces of its own.
pub(crate) struct Place {
    /// Its device number: as text, and as statx reports it for its files.
    device: String,
    number: (u32, u32),
}

/// A process that has the mount.
pub(super) struct Holder {
    pid: Pid,
    name: String,
    /// Whether the mount is among those that the process sees. If not, the process only has
    /// something open.
    sees: bool,
}

/// The processes that have the mount.
#[derive(Default)]
pub(crate) struct Holders(Vec<Holder>);

impl Place {
    /// Finds the mount of process `pid`, which has just mounted it.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
        let text = fs::read_to_string(dir.join("mountinfo")).ok()?;
        Self::of_mount(&mountinfo::parse(&text).rfind(|entry| entry.kind == KIND)?)
    }

    /// Returns the place of `mounted`, a mount of everybody's.
    pub(crate) fn of_mount(mounted: &mountinfo::MountEntry) -> Option<Self> {
        let (major, minor) = mounted.device.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { device: mounted.device.clone(), number })
    }

    /// Looks at all processes, but this one, for those that see the mount or use it.
    pub(crate) fn holders(&self) -> Holders {
        self.those(|dir| self.is_seen_by(dir) || self.is_used_by(dir))
    }

    /// The same for those that use it.
    pub(crate) fn users(&self) -> Holders {
        self.those(|dir| self.is_used_by(dir))
    }

    fn those(&self, has: impl Fn(&Path) -> bool) -> Holders {
        let Ok(entries) = fs::read_dir("/proc") else { return Holders(Vec::new()) };
        let pid = |name: OsString| Pid::from_raw(name.to_str()?.parse().ok()?);
        let pids = entries.filter_map(|entry| pid(entry.ok()?.file_name()));
        let mut all: Vec<_> =
            pids.filter(|pid| *pid != getpid()).filter_map(|pid| self.holder(pid, &has)).collect();
        all.sort_by_key(|holder| holder.pid.as_raw_pid());
        Holders(all)
    }

    fn holder(&self, pid: Pid, has: impl Fn(&Path) -> bool) -> Option<Holder> {
        let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
        if !has(&dir) {
            return None;
        }
        let sees = self.is_seen_by(&dir);
        let name = name_of(pid.as_raw_pid().cast_unsigned()).unwrap_or_default();
        Some(Holder { pid, name, sees })
    }

    /// Returns whether a process sees the mount. In a chroot its list has only what is below. This
    /// does not compare namespace numbers: the number of a namespace that has ended is reused at
    /// once, and processes of another one would be ended.
    fn is_seen_by(&self, dir: &Path) -> bool {
        let text = fs::read_to_string(dir.join("mountinfo")).unwrap_or_default();
        mountinfo::parse(&text).any(|entry| entry.device == self.device)
    }

    /// Returns whether a process has a directory or a file of the mount open or mapped. It may do
    /// so without seeing the mount, if that was unmounted there lazily, or if another process
    /// passed the file on.
    fn is_used_by(&self, dir: &Path) -> bool {
        let open = fs::read_dir(dir.join("fd")).into_iter().flatten().filter_map(Result::ok);
        let places = ["cwd", "root", "exe"].map(|name| dir.join(name)).into_iter();
        if places.chain(open.map(|entry| entry.path())).any(|path| self.has(&path)) {
            return true;
        }
        let (major, minor) = self.number;
        let device = format!("{major:02x}:{minor:02x}");
        let mapped = fs::read_to_string(dir.join("maps")).unwrap_or_default();
        mapped.lines().any(|line| line.split_ascii_whitespace().nth(3) == Some(&device))
    }

    /// Returns whether `path` leads to a file of the mount. This asks only for what the kernel
    /// knows, and not our own process, which serves the mount.
    fn has(&self, path: &Path) -> bool {
        let of = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
        of.is_ok_and(|of| (of.stx_dev_major, of.stx_dev_minor) == self.number)
    }
}

impl Holders {
    /// Sends SIGTERM to the processes that see the mount, since they descend from the program, and
    /// returns these. A process that only has a file of the mount may be any process to which the
    /// program has passed it.
    pub(super) fn end(self) -> Self {
        let ask = |one: &Holder| one.sees && kill_process(one.pid, Signal::TERM).is_ok();
        Self(self.0.into_iter().filter(ask).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no process is found that has it");
        }
        f.write_str(if self.0.len() == 1 { "process " } else { "processes " })?;
        for (at, holder) in self.0.iter().take(LISTED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} ({})", holder.pid.as_raw_pid(), holder.name)?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn who_has_a_file_is_found_by_the_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let dev = file.as_file().metadata().unwrap().dev();
        let number = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let place = Place { device: format!("{}:{}", number.0, number.1), number };
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").stdin(file.reopen().unwrap()).spawn().unwrap();
        let dir = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(place.has(&dir.join("fd/0")) && place.is_used_by(&dir));
        let none = Place { device: "511:7".into(), number: (511, 7) };
        assert!(!none.has(&dir.join("fd/0")) && !none.is_used_by(&dir) && !none.is_seen_by(&dir));
        assert!(none.holders().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn holders_are_named_and_few_of_many() {
        let holder =
            |pid| Holder { pid: Pid::from_raw(pid).unwrap(), name: "a".into(), sees: true };
        let text = |count| Holders((1..=count).map(holder).collect()).to_string();
        assert_eq!(text(0), "no process is found that has it");
        assert_eq!((&*text(1), &*text(2)), ("process 1 (a)", "processes 1 (a), 2 (a)"));
        assert!(text(20).ends_with("16 (a) and 4 more"));
    }
}
