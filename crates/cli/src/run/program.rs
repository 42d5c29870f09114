//! The program: its path, and whether a library can be loaded into it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use meantime_posix::MountPoint;

use crate::failure::Failure;

/// The shells' exit code for a program that does not exist.
pub(super) const NOT_FOUND: u8 = 127;
/// The shells' exit code for a program that cannot be executed.
pub(super) const CANNOT_EXECUTE: u8 = 126;

/// Returns the program's file: `name` if it has a slash, else found in PATH.
pub(super) fn find(name: &OsStr, mount_point: &MountPoint) -> Result<PathBuf, Failure> {
    if mount_point.strip(name.as_bytes()).is_some() {
        let text =
            "programs on the file system cannot be executed; copy it out with `meantime fs get`";
        return Err(
            Failure::new(format_args!("{}: {text}", name.display())).with_code(CANNOT_EXECUTE)
        );
    }
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(_) if executable(&path) => Ok(path),
            Ok(_) => {
                let text = format!("{}: no program that can be executed", path.display());
                Err(Failure::new(text).with_code(CANNOT_EXECUTE))
            }
            Err(error) => {
                Err(Failure::new(format_args!("{}: {error}", path.display())).with_code(NOT_FOUND))
            }
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found =
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| executable(path));
    found.ok_or_else(|| {
        Failure::new(format_args!("{}: there is no such program in PATH", name.display()))
            .with_code(NOT_FOUND)
    })
}

/// Returns why LD_PRELOAD has no effect on the program at `path`, if known.
pub(super) fn not_reached(path: &Path) -> Option<&'static str> {
    let mut file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if meta.mode() & 0o6000 != 0 && meta.uid() != rustix::process::getuid().as_raw() {
        return Some("it is set-user-ID or set-group-ID, and the loader leaves our library out");
    }
    let mut head = [0; 64];
    let read = file.read(&mut head).ok()?;
    let head = &head[..read];
    if let Some(line) = head.strip_prefix(b"#!") {
        // For a script its interpreter counts; an interpreter that is a script is not examined.
        let line = line.trim_ascii_start();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let interpreter = Path::new(OsStr::from_bytes(&line[..end]));
        let mut head = [0; 2];
        let is_script = File::open(interpreter)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok_and(|()| head == *b"#!");
        return if is_script { None } else { not_reached(interpreter) };
    }
    not_reached_elf(&file, head)
}

/// Checks the program headers (elf(5)): without an interpreter the dynamic loader is not used.
fn not_reached_elf(file: &File, head: &[u8]) -> Option<&'static str> {
    const PT_INTERP: u32 = 3;
    const CLASS_64: u8 = 2;
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return None;
    }
    if head[4] != CLASS_64 {
        return Some("it is no 64-bit program");
    }
    let u16_at = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let offset = u64::from_ne_bytes(head[32..40].try_into().ok()?);
    let (size, count) = (u16_at(54), u16_at(56));
    for index in 0..u64::from(count) {
        let at = index.checked_mul(size.into()).and_then(|at| at.checked_add(offset))?;
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_ne_bytes(kind) == PT_INTERP {
            return None;
        }
    }
    Some("it is linked statically, so that no library can be loaded into it")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a minimal ELF file: a header, and program headers of these kinds.
    fn elf(class: u8, kinds: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        file[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        file[56..58].copy_from_slice(&(kinds.len() as u16).to_ne_bytes());
        for kind in kinds {
            file.extend_from_slice(&kind.to_ne_bytes());
            file.extend_from_slice(&[0; 52]);
        }
        file
    }

    #[test]
    fn who_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let reason = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            not_reached(&path)
        };
        assert_eq!(reason("dynamic", &elf(2, &[6, 3, 1])), None);
        assert!(reason("static", &elf(2, &[1, 1])).unwrap().contains("statically"));
        assert!(reason("short", &elf(1, &[3])).unwrap().contains("64-bit"));
        assert_eq!(reason("text", b"echo"), None);
        let script = |of: &str| format!("#! {} -e\n", dir.path().join(of).display()).into_bytes();
        assert_eq!(reason("script", &script("dynamic")), None);
        assert!(reason("other", &script("static")).unwrap().contains("statically"));
        assert_eq!(reason("loop", &script("loop")), None);
        assert_eq!(reason("cut", &elf(2, &[1, 1])[..100]), None);
    }

    #[test]
    fn where_it_is() {
        let mount = MountPoint::new(b"/mnt/x").unwrap();
        let code = |name: &str| find(OsStr::new(name), &mount).unwrap_err().exit_code();
        assert!(find(OsStr::new("sh"), &mount).unwrap().is_absolute());
        assert_eq!(code("/mnt/x/program"), CANNOT_EXECUTE.into());
        assert_eq!(code("/dev/null"), CANNOT_EXECUTE.into());
        assert_eq!(code("/not/there"), NOT_FOUND.into());
        assert_eq!(code("meantime-no-such-program"), NOT_FOUND.into());
    }
}
