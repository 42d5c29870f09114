//! Mounts as root, by mount(2).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{SessionError, UNMOUNTED};
use crate::options::Options;

/// The type of our mounts in /proc/mounts, which is a subtype of FUSE.
pub(super) const TYPE: &str = "fuse.meantime";

pub(super) fn mount(dir: &Path, options: &Options) -> Result<OwnedFd, SessionError> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| SessionError::NoFuse(why_no_fuse(error)))?;
    let allow_other = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{allow_other}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let refused = |why: String| SessionError::Refused { dir: dir.to_owned(), why };
    let data = CString::new(data).map_err(|error| refused(error.to_string()))?;
    rustix::mount::mount(&*options.source, dir, TYPE, options.flags(), &*data).map_err(
        |error| {
            refused(match error {
                Errno::PERM => format!(
                    "the kernel does not permit it; in a container it has to be started with \
                 CAP_SYS_ADMIN and the device /dev/fuse; {UNMOUNTED}"
                ),
                Errno::NODEV => format!("the kernel has no FUSE (modprobe fuse); {UNMOUNTED}"),
                error => error.to_string(),
            })
        },
    )?;
    Ok(device)
}

fn why_no_fuse(error: Errno) -> String {
    let advice = match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "the kernel has no FUSE (modprobe fuse), or \
             this is a container that was started without the device (--device /dev/fuse)"
        }
        Errno::ACCESS | Errno::PERM => {
            "only root may use it here; root can open it to users (chmod 666 /dev/fuse, which \
             package fuse3 does for good)"
        }
        _ => "the kernel's FUSE cannot be used",
    };
    format!("/dev/fuse: {error}: {advice}; {UNMOUNTED}")
}

pub(super) fn unmount(dir: &Path, by_force: bool) -> io::Result<()> {
    let flags =
        if by_force { UnmountFlags::FORCE | UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}
