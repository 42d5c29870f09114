//! Images, loop mounts and their cleanup.
//!
//! The calling thread gets its own mount namespace, and loop devices free themselves with their
//! last user: however this process ends, including `SIGKILL`, its mounts end with it.

pub mod names;
pub mod shape;
pub mod writer;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The longest time of a tool, in seconds: a mount that hangs should fail the test, not block it.
const TOOL_SECONDS: &str = "120";

/// Runs `program` with `arguments`. Returns its output; the error has all of it.
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

/// Moves the calling thread, and its children, into a separate mount namespace.
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

/// A directory for images and mounts.
pub struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    /// Sets it up for the calling thread, in directory `parent`. The error says why loop mounts are
    /// impossible.
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

    /// Mounts `image` on a separate directory. With `write` false the kernel cannot write to the
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

    /// Unmounts it. Fails for example with open files.
    pub fn unmount(self) -> Result<(), String> {
        let mut result = Err(String::new());
        // Busy for a moment if another thread is starting a process, which holds this one's files
        // until its exec.
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

    /// Stops the file system as in a crash of the machine: nothing more reaches the image.
    /// `flush_log`: commits the running transaction first.
    pub fn shut_down(&self, flush_log: bool) {
        // EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32), with EXT4_GOING_FLAGS_LOGFLUSH or _NOLOGFLUSH.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let flags: u32 = if flush_log { 1 } else { 2 };
        let root = File::open(&self.at).expect("the root of a mounted image");
        // SAFETY: the ioctl reads 4 bytes, which live on this stack.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const flags) };
        assert_eq!(result, 0, "EXT4_IOC_SHUTDOWN: {}", std::io::Error::last_os_error());
    }

    /// Commits everything done so far on this file system.
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

/// A copy that preserves the holes of `from`.
pub fn copy(from: &Path, to: &Path) {
    run("cp", ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()])
        .expect("the image is copied");
}
