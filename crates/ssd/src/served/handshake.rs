//! The first message, VERSION, and its limits.

use meantime_nvme_spec::vfio_user::{
    DEFAULT_MAX_DATA_XFER_BYTES, DEFAULT_MAX_MSG_FDS, VERSION_MAJOR, VERSION_MINOR, Version,
};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::dma::MAX_DMA_MAPS;
use super::mapping::PAGE_BYTES;
use super::message::{
    Answer, MAX_DATA_XFER_BYTES, MAX_MSG_FDS, Refused, invalid, parse, refuse_if, refused,
};

/// The longest JSON text that is parsed, in bytes.
const JSON_BYTES_MAX: usize = 4096;

/// The client's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The maximum number of descriptors that it accepts in one message.
    pub(super) max_msg_fds: u64,
    /// The maximum of data in a message in either direction, in bytes.
    pub(super) max_data_xfer_bytes: u32,
    /// Whether it checks if the SSD's thread has parked, and wakes it.
    pub(super) wakes: bool,
}

/// Parses the VERSION in `body`, and builds the answer.
pub(super) fn agree(body: &[u8]) -> Result<(Agreed, Answer), Refused> {
    let (version, text) = parse::<Version>(body)?;
    if version.major.get() != VERSION_MAJOR {
        let why = "a version of the protocol that is not spoken here: major 0 is";
        return Err(refused(Errno::NOTSUP, why));
    }
    let agreed = capabilities(text)?;
    let reply = Version {
        major: VERSION_MAJOR.into(),
        minor: version.minor.get().min(VERSION_MINOR).into(),
    };
    let mut limits = json!({
        "capabilities": {
            "max_msg_fds": MAX_MSG_FDS,
            "max_data_xfer_size": MAX_DATA_XFER_BYTES,
            "max_dma_maps": MAX_DMA_MAPS,
            "pgsizes": PAGE_BYTES,
            "write_multiple": false,
        }
    });
    // This is sent only to clients that know it, because others warn (QEMU: "spurious
    // capabilities").
    if agreed.wakes {
        limits["capabilities"]["meantime_parking"] = true.into();
    }
    let mut answer = Answer::of(&reply);
    answer.body.extend_from_slice(limits.to_string().as_bytes());
    answer.body.push(0);
    Ok((agreed, answer))
}

fn capabilities(text: &[u8]) -> Result<Agreed, Refused> {
    let mut agreed = Agreed {
        max_msg_fds: DEFAULT_MAX_MSG_FDS.into(),
        max_data_xfer_bytes: DEFAULT_MAX_DATA_XFER_BYTES.min(MAX_DATA_XFER_BYTES),
        wakes: false,
    };
    // SPDK's host sends none.
    if text.is_empty() {
        return Ok(agreed);
    }
    refuse_if(text.len() > JSON_BYTES_MAX, "VERSION: more than 4 KiB of JSON")?;
    let text = match text {
        [json @ .., 0] if !json.contains(&0) => json,
        _ => return Err(invalid("VERSION: its JSON does not end with a NUL, or has one within")),
    };
    let value: Value =
        serde_json::from_slice(text).map_err(|_| invalid("VERSION: its text is no JSON"))?;
    let whole = value.as_object().ok_or_else(|| invalid("VERSION: its JSON is no object"))?;
    let Some(capabilities) = whole.get("capabilities") else { return Ok(agreed) };
    let capabilities =
        capabilities.as_object().ok_or_else(|| invalid("VERSION: capabilities is no object"))?;
    let number = |key: &str, why| match capabilities.get(key) {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| invalid(why)),
    };
    if let Some(n) = number("max_msg_fds", "VERSION: max_msg_fds is no number")? {
        agreed.max_msg_fds = n;
    }
    if let Some(n) = number("max_data_xfer_size", "VERSION: max_data_xfer_size is no number")? {
        agreed.max_data_xfer_bytes = n.min(agreed.max_data_xfer_bytes.into()) as u32;
    }
    agreed.wakes = match capabilities.get("meantime_parking") {
        None => false,
        Some(value) => value
            .as_bool()
            .ok_or_else(|| invalid("VERSION: meantime_parking is neither true nor false"))?,
    };
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree_on(json: &str) -> Result<Agreed, Refused> {
        let body = [&[0, 0, 1, 0], json.as_bytes(), &[0]].concat();
        agree(&body).map(|(agreed, _)| agreed)
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let default = Agreed { max_msg_fds: 1, max_data_xfer_bytes: 1 << 20, wakes: false };
        assert_eq!(agree(&[0, 0, 0, 0]).unwrap().0, default);
        assert_eq!(agree_on("{}").unwrap(), default);
        assert_eq!(agree_on(r#"{"capabilities":{"unheard":[1]},"of":2}"#).unwrap(), default);
    }

    #[test]
    fn what_is_said_counts() {
        let json = r#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096,"meantime_parking":true}}"#;
        let agreed = Agreed { max_msg_fds: 8, max_data_xfer_bytes: 4096, wakes: true };
        assert_eq!(agree_on(json).unwrap(), agreed);
        let huge =
            r#"{"capabilities":{"max_msg_fds":0,"max_data_xfer_size":18446744073709551615}}"#;
        let agreed = Agreed { max_msg_fds: 0, max_data_xfer_bytes: 1 << 20, wakes: false };
        assert_eq!(agree_on(huge).unwrap(), agreed);
    }

    #[test]
    fn the_lower_minor_version_is_spoken() {
        for (theirs, spoken) in [(0, 0), (1, 1), (9, 1)] {
            let (_, answer) = agree(&[0, 0, theirs, 0]).unwrap();
            assert_eq!(answer.body[..4], [0, 0, spoken, 0]);
            assert_eq!(answer.body.last(), Some(&0));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for json in [
            "",
            "x",
            "[]",
            "3",
            r#"{"capabilities":1}"#,
            r#"{"capabilities":{"max_msg_fds":-1}}"#,
            r#"{"capabilities":{"max_data_xfer_size":"1"}}"#,
            r#"{"capabilities":{"meantime_parking":1}}"#,
            "{}\0{}",
        ] {
            assert!(agree_on(json).is_err(), "{json}");
        }
        assert!(agree_on(&"[".repeat(4000)).is_err());
        assert!(agree_on(&format!("{{\"x\":\"{}\"}}", "y".repeat(5000))).is_err());
        assert!(agree(&[0, 0, 1]).is_err() && agree(&[]).is_err());
        assert!(agree(&[0, 0, 1, 0, b'{', b'}']).is_err(), "no NUL");
        assert_eq!(agree(&[1, 0, 0, 0]).unwrap_err().errno, Errno::NOTSUP);
    }
}
