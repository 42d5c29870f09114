//! `meantime mount --repair`: removes a mount whose server has ended without unmounting it.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use meantime_hw::mountinfo::MountEntry;

use super::ending::{KIND, connect, find, place, unmount};
use crate::failure::Failure;

/// The time after which a server that does not answer counts as hung, not dead.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Removes the dead mounts at `dir`. If `may_be_none`, it is no error that none of ours is there.
pub(super) fn clear(dir: &Path, may_be_none: bool) -> Result<(), Failure> {
    let shown = dir.display();
    let mut is_done = may_be_none;
    loop {
        let place = place(dir)?;
        match find(&place) {
            Some(mounted) if mounted.kind == KIND => {
                // A `meantime mount` process holds its socket until it ends. Other programs that
                // use our library have none.
                if connect(&mounted).is_ok() || !is_dead(&place) {
                    return Err(Failure::new(format_args!(
                        "{shown}: its server has not ended; unmount it with `meantime umount`"
                    )));
                }
                unmount(dir, false, true)?;
                is_done = true;
            }
            _ if is_done => return Ok(()),
            Some(MountEntry { kind, .. }) => {
                let what = format_args!("what is mounted there is not ours, but {kind}");
                return Err(Failure::new(format_args!("{shown}: {what}")));
            }
            None => return Err(Failure::new(format_args!("{shown}: nothing is mounted there"))),
        }
    }
}

/// Returns whether the kernel has lost the connection with the server (ENOTCONN). With a hung
/// server the statfs call blocks, and its thread is left behind.
fn is_dead(dir: &Path) -> bool {
    let (told, answer) = mpsc::channel();
    let dir = dir.to_owned();
    let asking = std::thread::Builder::new().spawn(move || {
        let looked = rustix::fs::statfs(&dir);
        let _ = told.send(matches!(looked, Err(rustix::io::Errno::NOTCONN)));
    });
    asking.is_ok() && answer.recv_timeout(ANSWER_TIME).unwrap_or(false)
}
