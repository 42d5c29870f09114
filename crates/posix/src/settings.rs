//! The settings of a program under `run --private`: passed by its environment, so that its child
//! programs inherit them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::{DEFAULT_MOUNT_POINT, MountPoint};
use meantime_block::{self as block, Access, OpenOptions};
use meantime_completion::Policy;
use meantime_ext4::{FileSystem, MountOptions};

/// The environment variables.
mod variables {
    /// The device's URI. Without it the library is inactive.
    pub(super) const DEVICE: &str = "MEANTIME_RUN_DEVICE";
    /// The mount point.
    pub(super) const AT: &str = "MEANTIME_RUN_AT";
    /// The size of the page cache, in bytes.
    pub(super) const CACHE: &str = "MEANTIME_RUN_CACHE";
    /// The policy.
    pub(super) const COMPLETION: &str = "MEANTIME_RUN_COMPLETION";
}

/// The settings of a program's mount.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The device's URI.
    pub device: String,
    /// The mount point.
    pub mount_point: MountPoint,
    /// Size of the page cache, in bytes; `None`: the default of mounts.
    pub cache_bytes: Option<usize>,
    /// The policy; `None`: the default of mounts.
    pub policy: Option<Policy>,
}

impl Settings {
    /// Parses the variables of an environment; `None` if there is no device, or a value is invalid
    /// (`run --private` checks them before).
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let at = variable(variables::AT).unwrap_or_else(|| DEFAULT_MOUNT_POINT.into());
        Some(Self {
            device: text(variables::DEVICE)?,
            mount_point: MountPoint::new(at.as_bytes()).ok()?,
            cache_bytes: text(variables::CACHE).and_then(|bytes| bytes.parse().ok()),
            policy: text(variables::COMPLETION).and_then(|policy| policy.parse().ok()),
        })
    }

    /// The variables for an environment.
    pub fn to_environment(&self) -> Vec<(&'static str, OsString)> {
        let mut all = vec![
            (variables::DEVICE, self.device.clone().into()),
            (variables::AT, OsString::from_vec(self.mount_point.as_bytes().to_vec())),
        ];
        all.extend(self.cache_bytes.map(|bytes| (variables::CACHE, bytes.to_string().into())));
        all.extend(self.policy.map(|policy| (variables::COMPLETION, policy.to_string().into())));
        all
    }

    /// Opens the device and mounts its file system.
    ///
    /// # Errors
    /// As a text, with the device's name.
    pub fn mount(&self) -> Result<FileSystem, Box<dyn std::error::Error + Send + Sync>> {
        let mut options = MountOptions { policy: self.policy, ..MountOptions::default() };
        options.cache_bytes = self.cache_bytes.unwrap_or(options.cache_bytes);
        let access = OpenOptions { access: Access::Read, ..OpenOptions::default() };
        Ok(FileSystem::mount(block::open(&self.device, &access)?, &options)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let settings = Settings {
            device: "file:/x.img?ro=1".into(),
            mount_point: MountPoint::new(b"/mnt/y").unwrap(),
            cache_bytes: Some(1 << 20),
            policy: Some(Policy::Interrupt),
        };
        let told = settings.to_environment();
        let find = |name: &str| {
            told.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let again = Settings::from_environment(find).unwrap();
        assert_eq!(format!("{again:?}"), format!("{settings:?}"));
        assert!(Settings::from_environment(|_| None).is_none());
        let only_device =
            |name: &str| (name == variables::DEVICE).then(|| OsString::from("mem:64M"));
        let settings = Settings::from_environment(only_device).unwrap();
        assert_eq!(settings.mount_point.as_bytes(), DEFAULT_MOUNT_POINT.as_bytes());
    }
}
