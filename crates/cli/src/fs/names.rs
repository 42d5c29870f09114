//! Names, modes and times for the text output and for JSON.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

use meantime_ext4::{FileType, Recovered, Timestamp};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::location::Location;

/// Returns a name for standard output: without control characters on a terminal, otherwise its
/// bytes.
pub(super) fn shown(name: &OsStr) -> Vec<u8> {
    if std::io::stdout().is_terminal() {
        harmless(name).into_bytes()
    } else {
        name.as_bytes().to_vec()
    }
}

/// Replaces control characters in a name, including those that UTF-8 has beyond ASCII.
pub(super) fn harmless(name: impl AsRef<OsStr>) -> String {
    name.as_ref().to_string_lossy().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Adds a name to JSON as `key`, and if it is not UTF-8 its bytes as hexadecimal digits beside it.
pub(super) fn insert(object: &mut Value, key: &str, name: &OsStr) {
    object[key] = json!(name.to_string_lossy());
    if name.to_str().is_none() {
        object[format!("{key}_hex")] = json!(hex(name.as_bytes()));
    }
}

/// Returns a file's type, in JSON.
pub(super) fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Character => "character",
        FileType::Block => "block",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Begins a report with the device, and the path in it.
pub(super) fn report(location: &Location) -> Value {
    let mut report = json!({ "device": location.device });
    insert(&mut report, "path", location.path().as_os_str());
    report
}

/// Returns what was replayed of a journal, for JSON.
pub(super) fn recovered(found: &Recovered) -> Value {
    json!({
        "transactions": found.transactions,
        "blocks": found.blocks,
        "revoked": found.revoked,
        "fast_commits": found.fast_commits,
    })
}

/// Returns two hexadecimal digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns bytes as a string if they are UTF-8, otherwise hexadecimal, and which of the two it is.
pub(super) fn text_or_hex(bytes: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => ("text", text.to_owned()),
        _ => ("hex", hex(bytes)),
    }
}

/// Formats `drwxr-xr-x`, as `ls -l` does.
pub(super) fn mode(file_type: FileType, mode: u16) -> String {
    /// The letters, indexed by the number of the type in `st_mode`.
    const TYPES: &[u8; 13] = b"?pc?d?b?-?l?s";
    let mut text = String::from(char::from(TYPES[file_type as usize]));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Formats the flags of an inode, with `lsattr`'s letters.
pub(super) fn flags(flags: u32) -> String {
    const LETTERS: &str = "suSDiadAcEjItTePVNF";
    /// The bit of each.
    const BITS: [u32; 19] = [0, 1, 3, 16, 4, 5, 6, 7, 2, 11, 14, 12, 15, 17, 19, 29, 20, 28, 30];
    let set = LETTERS.chars().zip(BITS).filter(|(_, bit)| flags >> bit & 1 != 0);
    set.map(|(letter, _)| letter).collect()
}

/// Returns a time in UTC. A time outside the calendar, which a damaged superblock may hold, becomes
/// the beginning of 1970.
fn utc(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Formats `2026-11-21 10:44`.
pub(super) fn minute(time: Timestamp) -> String {
    let (date, (hour, minute, _)) = (utc(time).date(), utc(time).to_hms());
    format!("{date} {hour:02}:{minute:02}")
}

/// Formats `2026-11-21 10:44:30.000000000 UTC`.
pub(super) fn time(time: Timestamp) -> String {
    let second = utc(time).second();
    format!("{}:{second:02}.{:09} UTC", minute(time), time.nanoseconds)
}

/// Returns a time for JSON in seconds since 1970. The nanoseconds are in another field, since a
/// real number could not hold both.
pub(super) fn time_json(time: Timestamp) -> Value {
    json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        assert_eq!(mode(FileType::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(mode(FileType::Regular, 0o100_644), "-rw-r--r--");
        assert_eq!(mode(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o7000), "---S--S--T");
    }

    #[test]
    fn times() {
        // date -u -d @N '+%F %H:%M'
        for (seconds, want) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (-2_147_483_648, "1901-12-13 20:45"),
            (15_032_385_535, "2446-05-10 22:38"),
        ] {
            assert_eq!(minute(Timestamp { seconds, nanoseconds: 0 }), want);
        }
        let at = Timestamp { seconds: 1_795_257_870, nanoseconds: 5 };
        assert_eq!(time(at), "2026-11-21 10:44:30.000000005 UTC");
    }

    #[test]
    fn names_do_not_control_a_terminal() {
        assert_eq!(harmless(OsStr::new("a\u{1b}[31m\u{9b}b\nü")), "a?[31m?b?ü");
        let mut object = json!({});
        insert(&mut object, "name", OsStr::from_bytes(b"a\xff"));
        assert_eq!(object, json!({ "name": "a\u{fffd}", "name_hex": "61ff" }));
    }
}
