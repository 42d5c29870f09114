//! `mount -o remount`: the kernel's part, and the part of the process that serves the mount.
//!
//! FUSE does not tell its server of a remount. So the helper of mount(8) asks the server over a
//! socket, first whether the options are possible. Once the kernel has changed them, the helper
//! asks the server to do its part. After `remount,ro` returns, everything is on the device, and
//! nothing is written any more.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use meantime_ext4::{AccessTimes, FileSystem};
use meantime_hw::mountinfo::MountEntry;
use meantime_mount::Words;
use rustix::mount::mount_remount;

use super::ending::{find, ours};
use crate::failure::{Context as _, Failure};

/// The maximum time that a client can keep the server waiting.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of a request.
const LONGEST: u64 = 8 << 10;
/// Asks whether the options are possible.
const CHECK: &str = "check";
/// Reports that the kernel has changed them.
const APPLY: &str = "apply";
const DONE: &str = "done";

/// Words that the kernel shows for any FUSE mount, which mount(8) passes on.
const KERNELS: [&str; 6] = ["user_id=", "group_id=", "rootmode=", "fd=", "blksize=", "max_read="];

fn address(mounted: &MountEntry) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("meantime-remount-{}", mounted.device))
}

/// Creates the socket for requests to the server of the mount at `dir`. `None` if that fails.
pub(super) fn listen(dir: &Path) -> Option<UnixListener> {
    let listener = UnixListener::bind_addr(&address(&find(dir)?).ok()?).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Serves one request at `listener`, if there is one.
pub(super) fn serve(listener: &UnixListener, fs: &FileSystem, words: &Words) {
    let Ok((stream, _)) = listener.accept() else { return };
    let Ok(user) = rustix::net::sockopt::socket_peercred(&stream) else { return };
    if !user.uid.is_root() && user.uid != rustix::process::geteuid() {
        return;
    }
    // A client that has stopped must not block the server.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut line = String::new();
    if BufReader::new((&stream).take(LONGEST)).read_line(&mut line).is_err() {
        return;
    }
    let (verb, options) = line.trim_end().split_once(' ').unwrap_or((&line, ""));
    let answer = changed(words, fs.is_writable(), options)
        .and_then(|new| if verb == APPLY { apply(fs, &new) } else { Ok(()) });
    let _ = (&stream).write_all(answer.err().as_deref().unwrap_or(DONE).as_bytes());
}

/// Does the server's part of a remount with `new`.
fn apply(fs: &FileSystem, new: &Words) -> Result<(), String> {
    let is_noted = new.file_system.access_times != AccessTimes::Never;
    fs.note_access_times(is_noted && !new.options.read_only);
    // Syncs the access times noted so far, too.
    if new.options.read_only { fs.sync().map_err(|error| error.to_string()) } else { Ok(()) }
}

/// Returns the options of a mount with `now` after a remount with `options`. Returns an error if
/// one cannot be changed. `is_writable` says whether the file system was mounted for writing.
fn changed(now: &Words, is_writable: bool, options: &str) -> Result<Words, String> {
    let mut new = now.clone();
    for word in options.split(',') {
        if word == "remount" || KERNELS.iter().any(|kernels| word.starts_with(kernels)) {
            continue;
        }
        let before = the_rest(&new);
        new.obey(word).map_err(|error| error.to_string())?;
        if the_rest(&new) != before {
            return Err(format!(
                "-o {word}: cannot be changed by a remount; unmount, and mount again"
            ));
        }
    }
    let times = new.file_system.access_times;
    if times != now.file_system.access_times && times != AccessTimes::Never {
        let why = "can only be switched off by a remount (noatime); unmount, and mount again";
        return Err(format!("times of reading: {why}"));
    }
    if !new.options.read_only && !is_writable {
        return Err("it was mounted for reading; unmount, and mount again with rw".to_owned());
    }
    Ok(new)
}

/// Returns, as text, the part of `words` that a remount cannot change.
fn the_rest(words: &Words) -> String {
    let mut words = words.clone();
    words.file_system.write = true;
    words.file_system.access_times = AccessTimes::Never;
    let options = &mut words.options;
    options.access_times = AccessTimes::Never;
    (options.read_only, options.nodev, options.nosuid, options.noexec) =
        (false, false, false, false);
    format!("{words:?}")
}

/// Remounts the mount at `dir` with `options`.
pub(super) fn remount(dir: &Path, options: &str) -> Result<(), Failure> {
    let shown = dir.display();
    let (place, mounted) = ours(dir)?;
    ask(&mounted, CHECK, options).context(&shown)?;
    let mut new = Words::default();
    for word in options.split(',').filter(|word| *word != "remount") {
        // This fails for the kernel's own words.
        let _ = new.obey(word);
    }
    mount_remount(&place, new.options.flags(), "").map_err(|error| {
        let advice = match error {
            rustix::io::Errno::BUSY => ": a file is open for writing, or deleted and open",
            _ => "",
        };
        Failure::new(format_args!("{shown}: remount: {error}{advice}"))
    })?;
    ask(&mounted, APPLY, options).context(&shown)
}

fn ask(mounted: &MountEntry, verb: &str, options: &str) -> Result<(), String> {
    let asked = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect_addr(&address(mounted)?)?;
        stream.write_all(format!("{verb} {options}\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match asked() {
        Ok(answer) if answer == DONE => Ok(()),
        Ok(answer) if !answer.is_empty() => Err(answer),
        Ok(_) => Err("its server does not answer this user; remount as who has mounted it".into()),
        Err(error) => Err(format!(
            "its server cannot be asked ({error}): only mounts of `meantime mount` can be remounted"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_remount_can_change_is_obeyed_and_the_rest_refused() {
        let mut now = Words::default();
        now.obey("allow_other,cache=16M,nosuid").unwrap();
        let after = |options: &str| changed(&now, true, options);
        let new = after("rw,remount,user_id=0,group_id=0,allow_other,ro,noatime,suid").unwrap();
        assert!(new.options.read_only && !new.options.nosuid && new.options.allow_other);
        assert_eq!(new.file_system.access_times, AccessTimes::Never);
        assert!(after("remount,cache=16M").is_ok(), "it has that");
        for (options, part) in [
            ("remount,cache=32M", "cache=32M"),
            ("remount,sync", "sync"),
            ("remount,strictatime", "reading"),
            ("remount,colour=red", "no such option"),
        ] {
            let why = after(options).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(changed(&now, false, "remount,rw").unwrap_err().contains("for reading"));
        assert!(changed(&now, false, "remount,ro").is_ok());
    }
}
