//! Runs this command as the helper of mount(8) and umount(8), which look in /sbin for the names
//! `mount.fuse.meantime` and `umount.fuse.meantime`.
//!
//! With it `mount -t fuse.meantime DEVICE DIR` and lines of /etc/fstab work, and `umount DIR`
//! returns when everything is written.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use meantime_mount::{Mount, Words};

use super::{ending, remount};
use crate::cli::{KernelMountArgs, MountHelperArgs, UmountHelperArgs, parse_as};
use crate::failure::Failure;

/// mount(8)'s exit code for a wrong command line, or no permission.
const WRONG_USAGE: u8 = 1;
/// mount(8)'s exit code if mounting or unmounting failed.
const MOUNT_FAILED: u8 = 32;

/// Acts as the helper that this command's name asks for. `None` if it is not called as one.
pub(crate) fn run() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let done = match Path::new(words.first()?).file_name()?.to_str()? {
        "mount.fuse.meantime" | "mount.meantime" => mount(&words),
        "umount.fuse.meantime" | "umount.meantime" => umount(&words),
        _ => return None,
    };
    Some(done.unwrap_or_else(|failure| {
        failure.show();
        ExitCode::from(if failure.is_usage() { WRONG_USAGE } else { MOUNT_FAILED })
    }))
}

fn mount(words: &[OsString]) -> Result<ExitCode, Failure> {
    let args: MountHelperArgs = parse_as(words)?;
    here(args.namespace.as_deref())?;
    let mut options = args.options.join(",");
    if args.sloppy {
        options = known(&options);
    }
    if options.split(',').any(|word| word == "remount") {
        remount::remount(&args.dir, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    // mount(8) mounts over non-empty directories with any type of file system.
    options.push_str(",nonempty");
    let source = args.source;
    if args.fake {
        let words = super::words(&source, &[options])?;
        Mount::check(&args.dir, &words.options).map_err(Failure::new)?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = super::mount(&KernelMountArgs {
        device: Some(source.clone()),
        dir: args.dir.clone(),
        options: vec![options],
        ..KernelMountArgs::default()
    })?;
    if args.verbose {
        println!("meantime: {source} mounted on {}", args.dir.display());
    }
    Ok(done)
}

fn umount(words: &[OsString]) -> Result<ExitCode, Failure> {
    let args: UmountHelperArgs = parse_as(words)?;
    here(args.namespace.as_deref())?;
    ending::unmount(&args.dir, args.force, args.lazy)?;
    if args.verbose {
        println!("meantime: {} unmounted", args.dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to mount in a namespace other than this process's.
fn here(namespace: Option<&OsStr>) -> Result<(), Failure> {
    match namespace {
        None => Ok(()),
        Some(other) => Err(Failure::usage(format_args!(
            "-N {0}: not possible with this type of file system; use nsenter --mount={0} mount …",
            other.display()
        ))),
    }
}

/// Returns the known words of `options`.
fn known(options: &str) -> String {
    let refused = |word: &str| Words::default().obey(word).err();
    let is_known = |word: &&str| refused(word).is_none_or(|error| !error.is_unknown);
    let words = options.split(',').filter(|word| *word == "remount" || is_known(word));
    words.collect::<Vec<_>>().join(",")
}
