//! Finds the processes that hold a lock on a file (`/proc/locks`), and their names.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns the processes that hold a `flock` on the file at `path`, in words: `process 12 (name)`.
/// Returns `None` if there is none; the system shows only processes of the same PID namespace.
pub fn holders_of(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let text = fs::read_to_string("/proc/locks").ok()?;
    let mut pids: Vec<u32> =
        text.lines().filter_map(|line| holder(line, device, meta.ino())).collect();
    pids.sort_unstable();
    pids.dedup();
    let name = |pid: &u32| Some(format!("{pid} ({})", name_of(*pid)?));
    let names: Vec<String> = pids.iter().filter_map(name).collect();
    let process = if names.len() == 1 { "process" } else { "processes" };
    (!names.is_empty()).then(|| format!("{process} {}", names.join(", ")))
}

/// Returns the name of a process, fit for a terminal; `None` if there is no such process.
pub fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().replace(char::is_control, "?"))
}

/// Returns the process of a line of `/proc/locks`, if that is a `flock` on inode `ino` of `device`.
fn holder(line: &str, device: (u32, u32), ino: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // "->" marks one that waits.
    let (kind, _, _, pid, file) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let mut parts = file.split(':');
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let of = (number(parts.next()?)?, number(parts.next()?)?);
    let inode: u64 = parts.next()?.parse().ok()?;
    (kind == "FLOCK" && of == device && inode == ino).then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let lines = [
            "1: FLOCK  ADVISORY  WRITE 1234 fe:0a:5678 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 99 fe:0a:5678 0 EOF",
            "2: POSIX  ADVISORY  READ  55 fe:0a:5678 0 EOF",
            "3: FLOCK  ADVISORY  READ  1235 fe:0a:5679 0 EOF",
            "4: FLOCK  ADVISORY  READ  -1 fe:0a:5678 0 EOF",
            "",
        ];
        let found: Vec<_> =
            lines.iter().filter_map(|line| holder(line, (0xfe, 0x0a), 5678)).collect();
        assert_eq!(found, [1234]);
    }

    #[test]
    fn this_process_is_found() {
        let path = std::env::temp_dir().join(format!("meantime-locks-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        assert_eq!(holders_of(&path), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        let found = holders_of(&path).unwrap();
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
        fs::remove_file(&path).unwrap();
    }
}
