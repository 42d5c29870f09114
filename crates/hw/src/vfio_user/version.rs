//! The handshake: the protocol's version and the server's limits.

use meantime_nvme_spec::vfio_user::{
    Command, DEFAULT_MAX_DATA_XFER_BYTES, DEFAULT_MAX_MSG_FDS, VERSION_MAJOR, VERSION_MINOR,
    Version,
};
use serde_json::{Map, Value, json};
use zerocopy::IntoBytes;

use super::connection::Connection;
use super::error::{Result, UserError};
use super::socket::MAX_FDS;
use crate::pages::HUGE_PAGE;

/// The longest text of capabilities that is parsed, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The number of mappings for a server that names no limit. libvfio-user names none, and accepts
/// fewer than the specification's 65,535.
const MODEST_MAX_DMA_MAPS: usize = 64;

/// The server's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most data in a message that reads or writes a region, in bytes; at least 4.
    pub(super) max_data_xfer_bytes: u64,
    /// The most DMA mappings at a time; at least 1.
    pub(super) max_dma_maps: usize,
}

/// Agrees on a version with the server. This comes first, and without delay: a server may do
/// nothing else meanwhile.
pub(super) fn negotiate(connection: &Connection) -> Result<Limits> {
    let version = Version { major: VERSION_MAJOR.into(), minor: VERSION_MINOR.into() };
    let capabilities = json!({ "capabilities": {
        "max_msg_fds": MAX_FDS,
        "max_data_xfer_size": DEFAULT_MAX_DATA_XFER_BYTES,
        // Tells our software SSD that its thread may park: this client checks for that and wakes it
        // (`pci::ParkingCapability`).
        "meantime_parking": true,
    }});
    let mut text = capabilities.to_string().into_bytes();
    text.push(0);
    let most = size_of::<Version>() + MAX_TEXT_BYTES;
    let reply = connection.request(Command::Version, &[version.as_bytes(), &text], None, most)?;
    let Some((theirs, text)) = reply.split::<Version>() else {
        return Err(connection.protocol("a reply to VERSION without a version"));
    };
    let (major, minor) = (theirs.major.get(), theirs.minor.get());
    if major != VERSION_MAJOR || minor > VERSION_MINOR {
        return Err(UserError::Version { server: connection.server().to_owned(), major, minor });
    }
    limits(text).map_err(|wrong| match wrong {
        Wrong::Text(what) => connection.protocol(what),
        Wrong::Limit(what) => connection.unusable(what),
    })
}

/// A problem with a server's capabilities.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// They cannot be parsed.
    Text(String),
    /// A limit is too low.
    Limit(String),
}

/// The limits in `text`: JSON that ends with a NUL, or nothing.
fn limits(text: &[u8]) -> std::result::Result<Limits, Wrong> {
    let capabilities = if text.is_empty() { Map::new() } else { capabilities(text)? };
    let number = |key: &str, default: u64| match capabilities.get(key) {
        None => Ok(default),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| Wrong::Text(format!("its capability {key} is {value}, no number"))),
    };
    let enough = |key: &str, default: u64, least: u64, why: &str| match number(key, default)? {
        value if value < least => {
            Err(Wrong::Limit(format!("its capability {key} is {value}; {why} needs {least}")))
        }
        value => Ok(value),
    };
    // At most one descriptor is sent at a time.
    enough("max_msg_fds", DEFAULT_MAX_MSG_FDS.into(), 1, "sharing memory")?;
    let max_data_xfer_bytes = enough(
        "max_data_xfer_size",
        DEFAULT_MAX_DATA_XFER_BYTES.into(),
        4,
        "access to a register",
    )?;
    let maps = enough("max_dma_maps", MODEST_MAX_DMA_MAPS as u64, 1, "sharing memory")?;
    // A bit set of page sizes: mappings are multiples of one of them, and ours are of 2 MiB.
    let page_sizes = number("pgsizes", HUGE_PAGE as u64)?;
    if page_sizes.trailing_zeros() > HUGE_PAGE.trailing_zeros() {
        return Err(Wrong::Limit(format!(
            "its capability pgsizes is {page_sizes:#x}; memory is mapped in units of {HUGE_PAGE:#x}"
        )));
    }
    Ok(Limits { max_data_xfer_bytes, max_dma_maps: usize::try_from(maps).unwrap_or(usize::MAX) })
}

fn capabilities(text: &[u8]) -> std::result::Result<Map<String, Value>, Wrong> {
    let wrong = |what: &str| Wrong::Text(format!("its capabilities {what}"));
    let Some((0, text)) = text.split_last() else {
        return Err(wrong("do not end with a NUL"));
    };
    let value: Value =
        serde_json::from_slice(text).map_err(|error| wrong(&format!("are no JSON: {error}")))?;
    let Value::Object(mut members) = value else {
        return Err(wrong("are no object"));
    };
    match members.remove("capabilities") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(capabilities)) => Ok(capabilities),
        Some(_) => Err(wrong("are no object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Limits = Limits { max_data_xfer_bytes: 1 << 20, max_dma_maps: 64 };

    #[test]
    fn what_is_not_said_has_a_default() {
        for text in [
            "",
            "{}\0",
            "{\"capabilities\":{}}\0",
            "{\"capabilities\":{\"migration\":{\"pgsize\":4096}}}\0",
        ] {
            assert_eq!(limits(text.as_bytes()), Ok(DEFAULT), "{text}");
        }
    }

    #[test]
    fn what_is_said_counts() {
        // SPDK's text, and one with more fields.
        let spdk = b"{ \"capabilities\": { \"max_msg_fds\": 8, \"max_data_xfer_size\": 1048576, \"migration\": { \"pgsize\": 4096 } } }\0";
        assert_eq!(limits(spdk), Ok(DEFAULT));
        let other = b"{\"capabilities\":{\"max_data_xfer_size\":4,\"max_dma_maps\":7,\"pgsizes\":2101248}}\0";
        assert_eq!(limits(other), Ok(Limits { max_data_xfer_bytes: 4, max_dma_maps: 7 }));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "{}",
            "\0",
            "{\0",
            "[]\0",
            "7\0",
            "{}\0\0",
            "{\"capabilities\":[]}\0",
            "{\"capabilities\":{\"max_msg_fds\":\"8\"}}\0",
            "{\"capabilities\":{\"max_msg_fds\":-1}}\0",
            "{\"capabilities\":{\"max_dma_maps\":1.5}}\0",
        ] {
            assert!(matches!(limits(text.as_bytes()), Err(Wrong::Text(_))), "{text:?}");
        }
        // Nested deeper than any parser's stack.
        let deep = [b"{\"capabilities\":".to_vec(), vec![b'['; 60_000], vec![0]].concat();
        assert!(matches!(limits(&deep), Err(Wrong::Text(_))));
        assert!(matches!(limits(b"\xff\xfe\0"), Err(Wrong::Text(_))));
    }

    #[test]
    fn too_little_is_refused() {
        for said in [
            "\"max_msg_fds\":0",
            "\"max_data_xfer_size\":3",
            "\"max_dma_maps\":0",
            "\"pgsizes\":4194304",
            "\"pgsizes\":0",
        ] {
            let text = format!("{{\"capabilities\":{{{said}}}}}\0");
            assert!(matches!(limits(text.as_bytes()), Err(Wrong::Limit(_))), "{said}");
        }
    }
}
