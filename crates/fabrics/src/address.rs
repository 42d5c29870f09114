//! Names of targets and hosts.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use meantime_nvme_spec::fabrics::{DISCOVERY_NQN, is_nqn};
use meantime_nvme_spec::tcp::PORT;

use crate::error::{FabricsError, Result};

/// A subsystem at a target: `//host[:port]/NQN` of a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpAddress {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem's NQN.
    pub nqn: String,
}

impl TcpAddress {
    /// Parses `//host[:port]/NQN`. Without `/NQN` the address is that of the discovery service.
    ///
    /// # Errors
    /// Returns a text that says what is wrong, and what is expected.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let example = "e.g. nvme+tcp://192.0.2.7:4420/nqn.2014-08.org.example:disk";
        let rest = text.strip_prefix("//").ok_or_else(|| format!("no //host; {example}"))?;
        let (authority, nqn) = match rest.split_once('/') {
            Some((authority, "")) => (authority, DISCOVERY_NQN),
            Some((authority, nqn)) => (authority, nqn),
            None => (rest, DISCOVERY_NQN),
        };
        if !is_nqn(nqn) {
            return Err(format!("{nqn:?} is no NQN (1 to 223 printable characters); {example}"));
        }
        // An IPv6 address stands in brackets.
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) =
                    rest.split_once(']').ok_or_else(|| format!("no ] after [; {example}"))?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let port = match port {
            Some("") if !authority.ends_with(':') => Some(PORT),
            Some(port) => port.parse().ok().filter(|port| *port > 0),
            None => None,
        };
        let port = port.ok_or_else(|| format!("{authority:?}: no port from 1 to 65535"))?;
        let is_wrong = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']');
        if host.is_empty() || host.contains(is_wrong) {
            return Err(format!("no host; {example}"));
        }
        Ok(Self { host: host.to_owned(), port, nqn: nqn.to_owned() })
    }

    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme+tcp://{}/{}", self.authority(), self.nqn)
    }
}

/// The identity of this host to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: String,
    /// HOSTID.
    pub id: [u8; 16],
}

/// A UUID as text.
fn uuid_text(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Parses a UUID.
///
/// # Errors
/// Returns a text that says what is expected.
pub fn parse_uuid(text: &str) -> std::result::Result<[u8; 16], String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let wrong = || format!("{text:?} is no UUID (32 hexadecimal digits)");
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(id)
}

impl Host {
    /// Finds the host's names: those given, or else those of the distribution's files in
    /// `/etc/nvme`, or else those made once and kept in `$XDG_STATE_HOME/meantime` (for root:
    /// `/var/lib/meantime`).
    ///
    /// A new name for each run would defeat the target's list of hosts, and reservations.
    ///
    /// # Errors
    /// Returns [`FabricsError::Identity`] if a file cannot be read or kept.
    pub fn find(nqn: Option<&str>, id: Option<[u8; 16]>) -> Result<Self> {
        Self::find_in(nqn, id, Path::new("/etc/nvme"), &state_directory())
    }

    fn find_in(nqn: Option<&str>, id: Option<[u8; 16]>, etc: &Path, state: &Path) -> Result<Self> {
        let id = match id {
            Some(id) => id,
            None => match read(&etc.join("hostid"), |text| parse_uuid(text).ok())? {
                Some(id) => id,
                None => kept(
                    &state.join("hostid"),
                    |text| parse_uuid(text).ok(),
                    || {
                        let id = random_uuid();
                        (id, uuid_text(&id))
                    },
                )?,
            },
        };
        let valid = |text: &str| is_nqn(text).then(|| text.to_owned());
        let nqn = match nqn {
            Some(nqn) => nqn.to_owned(),
            None => match read(&etc.join("hostnqn"), valid)? {
                Some(nqn) => nqn,
                None => format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid_text(&id)),
            },
        };
        Ok(Self { nqn, id })
    }

    /// The HOSTID as text.
    #[must_use]
    pub fn id_text(&self) -> String {
        uuid_text(&self.id)
    }
}

fn state_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/lib/meantime".into();
    }
    let from = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let state = from("XDG_STATE_HOME").map(PathBuf::from);
    let home = || from("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).unwrap_or_else(std::env::temp_dir).join("meantime")
}

/// A version 4 UUID.
fn random_uuid() -> [u8; 16] {
    // Keyed by the kernel's random numbers, and different for each call.
    let random = || RandomState::new().hash_one(std::process::id());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random().to_ne_bytes());
    id[8..].copy_from_slice(&random().to_ne_bytes());
    (id[6], id[8]) = (id[6] & 0xf | 0x40, id[8] & 0x3f | 0x80);
    id
}

/// Applies `parse` to a file; `None` if there is no file, or if `parse` returns none.
fn read<T>(path: &Path, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(parse(text.trim())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(source) => {
            let path = path.display().to_string();
            Err(FabricsError::Identity { path, what: "cannot be read", source })
        }
    }
}

/// Returns what is in the file at `path`, or what `make` returns, which is written there first.
fn kept<T>(
    path: &Path,
    parse: impl Fn(&str) -> Option<T>,
    make: impl FnOnce() -> (T, String),
) -> Result<T> {
    if let Some(there) = read(path, &parse)? {
        return Ok(there);
    }
    let (made, text) = make();
    let write = || {
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let new = path.with_extension(format!("{}", std::process::id()));
        fs::write(&new, text + "\n")?;
        // The first process to write the file has written it for all.
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    };
    match write() {
        Ok(()) => Ok(read(path, parse)?.unwrap_or(made)),
        Err(source) => {
            let path = path.display().to_string();
            Err(FabricsError::Identity { path, what: "cannot be written", source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> TcpAddress {
        TcpAddress::parse(text).unwrap()
    }

    #[test]
    fn addresses() {
        let nqn = "nqn.2014-08.org.example:disk";
        let address = parsed("//192.0.2.7/nqn.2014-08.org.example:disk");
        assert_eq!((address.host.as_str(), address.port), ("192.0.2.7", 4420));
        assert_eq!(address.nqn, nqn);
        assert_eq!(parsed("//box:8009/nqn.x").port, 8009);
        let six = parsed("//[2001:db8::1]:4421/nqn.x");
        assert_eq!((six.host.as_str(), six.port), ("2001:db8::1", 4421));
        assert_eq!(six.to_string(), "nvme+tcp://[2001:db8::1]:4421/nqn.x");
        assert_eq!(parsed("//[::1]/nqn.x").port, 4420);
        for text in ["//box", "//box/", "//box:4420"] {
            assert_eq!(parsed(text).nqn, DISCOVERY_NQN);
        }
        for text in [
            "//[[a]/nqn.x",
            "",
            "box",
            "//",
            "///nqn",
            "//:4420/x",
            "//b:/x",
            "//b:0/x",
            "//b:70000/x",
            "//[::1/x",
            "//[::1]4420/x",
            "//b c/x",
            "//b/x y",
        ] {
            assert!(TcpAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_made_once() {
        let dir = std::env::temp_dir().join(format!("meantime-host-{}", std::process::id()));
        let (etc, state) = (dir.join("etc"), dir.join("state"));
        let first = Host::find_in(None, None, &etc, &state).unwrap();
        assert_eq!(Host::find_in(None, None, &etc, &state).unwrap(), first);
        assert!(is_nqn(&first.nqn) && first.nqn.contains(&first.id_text()));
        // The distribution's files come first, but names that are given precede them.
        fs::create_dir_all(&etc).unwrap();
        let id = "12345678-9abc-4def-8123-456789abcdef";
        fs::write(etc.join("hostid"), format!("{id}\n")).unwrap();
        fs::write(etc.join("hostnqn"), "nqn.2014-08.org.example:this\n").unwrap();
        let named = Host::find_in(None, None, &etc, &state).unwrap();
        assert_eq!(
            (named.nqn.as_str(), named.id_text().as_str()),
            ("nqn.2014-08.org.example:this", id)
        );
        let given = Host::find_in(Some("nqn.y"), Some([7; 16]), &etc, &state).unwrap();
        assert_eq!((given.nqn.as_str(), given.id), ("nqn.y", [7; 16]));
        fs::remove_dir_all(&dir).unwrap();
        assert!(parse_uuid("1234").is_err() && parse_uuid(&"g".repeat(32)).is_err());
    }
}
