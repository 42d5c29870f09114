//! `meantime fs df` and `info`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use meantime_ext4::{Mmp, MmpState, Timestamp, Usage, VolumeInfo};
use serde_json::{Value, json};

use super::mounted::mount;
use super::names;
use crate::cli::PlaceArgs;
use crate::facts::{Fact, facts, text};
use crate::failure::{Context as _, Failure};
use crate::figures;
use crate::output::end;

/// Runs `df`.
pub(super) fn df(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let usage = fs.usage().context(&location)?;
    end(text(&df_facts(&location.device, &usage), args.json).as_bytes())
}

fn df_facts(device: &str, usage: &Usage) -> Vec<Fact> {
    let size = |blocks: u64| figures::bytes(blocks.saturating_mul(u64::from(usage.block_bytes)));
    let of = |part: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        _ => format!("{} %", (u128::from(part) * 100).div_ceil(u128::from(whole))),
    };
    let used = usage.blocks.saturating_sub(usage.free_blocks);
    let used_of = of(used, used.saturating_add(usage.available_blocks));
    let used_inodes = of(usage.inodes.saturating_sub(usage.free_inodes), usage.inodes);
    facts! {
        "Device", "device": device;
        "Block size", "block_bytes": usage.block_bytes;
        "Size", "blocks": usage.blocks => size(usage.blocks);
        "Used", "used_blocks": used => format!("{} ({used_of})", size(used));
        "Free", "free_blocks": usage.free_blocks => size(usage.free_blocks);
        "Available", "available_blocks": usage.available_blocks => size(usage.available_blocks);
        "Inodes", "inodes": usage.inodes;
        "Free inodes", "free_inodes": usage.free_inodes
            => format!("{} ({used_inodes} used)", usage.free_inodes);
        "", "fsid": format!("{:016x}", usage.fsid);
    }
}

/// Runs `info`.
pub(super) fn info(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let info = fs.info();
    // An error here is shown as text, together with the rest.
    let protection = fs.multiple_mount_protection().map_err(|error| error.to_string()).transpose();
    end(text(&info_facts(&location.device, &info, protection.as_ref()), args.json).as_bytes())
}

fn harmless(bytes: &[u8]) -> String {
    names::harmless(OsStr::from_bytes(bytes))
}

/// Describes the kernel's use of the device.
fn in_use(device: &str) -> Option<String> {
    meantime_block::in_use(&device.parse().ok()?)
}

/// Returns when the protection block was last written.
fn seen(mmp: &Mmp) -> Timestamp {
    Timestamp { seconds: i64::try_from(mmp.seconds).unwrap_or(i64::MAX), nanoseconds: 0 }
}

/// Describes the host that uses it, by its multiple mount protection.
fn protection_text(found: &Result<Mmp, String>) -> String {
    let mmp = match found {
        Ok(mmp) => mmp,
        Err(error) => return error.clone(),
    };
    let [node, device] = [&mmp.node[..], &mmp.device].map(harmless);
    let time = names::time(seen(mmp));
    match mmp.state {
        MmpState::Clean => "nobody has mounted it for writing (mmp)".to_owned(),
        MmpState::Checking => {
            format!("e2fsck is running on it, on host {node} ({device}), since {time}")
        }
        MmpState::InUse(_) => {
            format!("in use by host {node} ({device}), last seen {time}, unless that crashed")
        }
    }
}

fn info_facts(
    device: &str,
    info: &VolumeInfo,
    protection: Option<&Result<Mmp, String>>,
) -> Vec<Fact> {
    let shown = |bytes: &[u8]| if bytes.is_empty() { "–".to_owned() } else { harmless(bytes) };
    let bytes = info.blocks.saturating_mul(u64::from(info.block_bytes));
    let has = |feature: &str| info.features.iter().any(|name| name == feature);
    let state = match (info.clean, info.errors) {
        (_, true) => "errors were seen: `meantime fs check` looks for them",
        (true, false) => "clean",
        (false, false) if has("needs_recovery") || info.recovered.is_some() => {
            "not unmounted cleanly: its journal has to be replayed"
        }
        (false, false) => "not unmounted cleanly",
    };
    let user = in_use(device).map(|who| format!("; {who}")).unwrap_or_default();
    let journal = match &info.recovered {
        None if has("has_journal") => "nothing to replay".to_owned(),
        None => "none".to_owned(),
        Some(found) => format!(
            "replayed into memory: {} transaction(s), {} fast commit(s), {} block(s); {} revoked",
            found.transactions, found.fast_commits, found.blocks, found.revoked
        ),
    };
    let recovered = info.recovered.as_ref().map(names::recovered);
    let mut facts = facts! {
        "Device", "device": device;
        "Label", "label": String::from_utf8_lossy(&info.label) => shown(&info.label);
        "UUID", "uuid": uuid(&info.uuid);
        "Last mounted on", "last_mounted": String::from_utf8_lossy(&info.last_mounted)
            => shown(&info.last_mounted);
        "Features", "features": info.features => info.features.join(" ");
        "Block size", "block_bytes": info.block_bytes;
        "Blocks", "blocks": info.blocks => format!("{} ({})", info.blocks, figures::bytes(bytes));
        "Groups", "groups": info.groups;
        "Inodes", "inodes": info.inodes;
        "Inode size", "inode_bytes": info.inode_bytes;
        "State", "clean": info.clean => format!("{state}{user}");
        "", "errors": info.errors;
        "", "mounted": in_use(device);
        "Journal", "recovered": recovered => journal;
        "Created", "created": names::time_json(info.created) => names::time(info.created);
        "Last written", "written": names::time_json(info.written) => names::time(info.written);
    };
    facts.push(match protection {
        Some(found) => Fact::new("Protection", "mmp", mmp(found), [protection_text(found)]),
        None => Fact::new("", "mmp", Value::Null, []),
    });
    facts
}

fn mmp(found: &Result<Mmp, String>) -> Value {
    match found {
        Ok(mmp) => json!({
            "state": match mmp.state {
                MmpState::Clean => "clean",
                MmpState::Checking => "checking",
                MmpState::InUse(_) => "in use",
            },
            "node": String::from_utf8_lossy(&mmp.node),
            "device": String::from_utf8_lossy(&mmp.device),
            "seen": names::time_json(seen(mmp)),
            "check_interval_s": mmp.check_interval_s,
        }),
        Err(error) => json!({ "error": error }),
    }
}

/// Formats a UUID in its usual form.
pub(super) fn uuid(bytes: &[u8; 16]) -> String {
    let hex = names::hex(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_usual_form() {
        let bytes = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(uuid(&bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn shares_are_rounded_up() {
        let usage = Usage {
            block_bytes: 4096,
            blocks: 1000,
            free_blocks: 899,
            available_blocks: 850,
            inodes: 0,
            free_inodes: 0,
            fsid: 0,
        };
        let text = text(&df_facts("mem:1G", &usage), false);
        assert!(text.contains("11 %") && text.contains('–'), "{text}");
    }
}
