//! Images, loop mounts and their end.
//!
//! The calling thread gets a mount namespace of its own, and loop devices free themselves with
//! their last user: whatever ends this process, `SIGKILL` too, ends its mounts with it.

pub mod names;
pub mod shape;
pub mod writer;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most that a tool may take, in seconds: a mount that hangs should fail the test and not hang
/// it.
const TOOL_SECONDS: &str = "120";

/// Runs `program` with `arguments`; its output. The error has all that it printed.
pub fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command
        .arg(TOOL_SECONDS)
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .env("MKE2FS_SYNC", "0");
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!(
        "{program} failed ({}): {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Puts the calling thread, and what it starts, into a mount namespace of its own.
fn unshare() -> Result<(), String> {
    let error = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    // SAFETY: no memory is involved; the mount namespace and working directory of this thread
    // become its own.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(error("no mount namespace of one's own"));
    }
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings end with NUL; type and data are not looked at for a change of
    // propagation.
    if unsafe {
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
    } != 0
    {
        return Err(error("mounts cannot be made private"));
    }
    Ok(())
}

/// A place to make images and mount them.
pub struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    /// For the calling thread, in directory `parent`; else why there are no loop mounts here.
    pub fn new(parent: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount images".into());
        }
        for tool in ["mkfs.ext4", "debugfs", "mount", "umount"] {
            run("sh", ["-c", &format!("command -v {tool}")])
                .map_err(|_| format!("{tool} is missing"))?;
        }
        unshare()?;
        let directory = tempfile::tempdir_in(parent).map_err(|error| error.to_string())?;
        let lab = Self { directory };
        let image = lab.path("probe.img");
        make(&image, 2 << 20, &["-b", "1024", "-O", "^has_journal"])?;
        drop(lab.mount(&image, true, "")?);
        std::fs::remove_file(image).map_err(|error| error.to_string())?;
        Ok(lab)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Mounts `image` on a directory of its own. With `write` false the kernel cannot write to the
    /// image either.
    pub fn mount(&self, image: &Path, write: bool, options: &str) -> Result<Mounted, String> {
        let name = format!("{}.d", image.file_name().expect("an image's name").to_string_lossy());
        let at = self.path(&name);
        std::fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        let mut all = String::from(if write { "loop" } else { "loop,ro" });
        if !options.is_empty() {
            all = format!("{all},{options}");
        }
        let arguments: [&OsStr; 6] = [
            "-n".as_ref(),
            "-t".as_ref(),
            "ext4".as_ref(),
            "-o".as_ref(),
            all.as_ref(),
            image.as_ref(),
        ];
        let mut tries = 0;
        loop {
            match run("mount", arguments.into_iter().chain([at.as_os_str()])) {
                Ok(_) => return Ok(Mounted { at }),
                // Another process may have taken the same free loop device at the same moment.
                Err(_) if tries < 4 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// A mounted image; unmounted when dropped.
pub struct Mounted {
    at: PathBuf,
}

impl Mounted {
    pub fn root(&self) -> &Path {
        &self.at
    }

    /// Unmounts it, and says if that fails: with files open, for one.
    pub fn unmount(self) -> Result<(), String> {
        let mut result = Err(String::new());
        // Busy for a moment, if another thread is just starting a process, which has this one's
        // files until it runs its program.
        for _ in 0..200 {
            result = run("umount", ["-n".as_ref(), self.at.as_os_str()]).map(drop);
            if result.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if result.is_ok() {
            let at = self.at.clone();
            std::mem::forget(self);
            let _ = std::fs::remove_dir(at);
        }
        result
    }

    /// The file system stops here as if the machine did: nothing more reaches the image.
    /// `flush_log`: the running transaction is committed first.
    pub fn shut_down(&self, flush_log: bool) {
        // EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32), with EXT4_GOING_FLAGS_LOGFLUSH or _NOLOGFLUSH.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let flags: u32 = if flush_log { 1 } else { 2 };
        let root = File::open(&self.at).expect("the root of a mounted image");
        // SAFETY: the ioctl reads 4 bytes, which live on this stack.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const flags) };
        assert_eq!(result, 0, "EXT4_IOC_SHUTDOWN: {}", std::io::Error::last_os_error());
    }

    /// Commits what was done so far; only of this file system.
    pub fn sync(&self) {
        let root = File::open(&self.at).expect("the root of a mounted image");
        // SAFETY: no memory is involved.
        let result = unsafe { libc::syncfs(root.as_raw_fd()) };
        assert_eq!(result, 0, "syncfs: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a panic may have left files open, and the last of them frees the loop device.
        let _ = run("umount", ["-n".as_ref(), "-l".as_ref(), self.at.as_os_str()]);
        let _ = std::fs::remove_dir(&self.at);
    }
}

/// Makes a file of `bytes` bytes and a file system in it.
pub fn make(image: &Path, bytes: u64, arguments: &[&str]) -> Result<(), String> {
    let file = File::create(image).map_err(|error| format!("{}: {error}", image.display()))?;
    file.set_len(bytes).map_err(|error| error.to_string())?;
    drop(file);
    let fixed = ["-q", "-F"].into_iter().chain(arguments.iter().copied()).map(OsStr::new);
    run("mkfs.ext4", fixed.chain([image.as_os_str()])).map(drop)
}

/// A copy with the holes that `from` has.
pub fn copy(from: &Path, to: &Path) {
    run("cp", ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()])
        .expect("the image is copied");
}
