//! `meantime fs df` and `info`.

use std::process::ExitCode;

use meantime_ext4::{Mmp, MmpState, Timestamp, Usage, VolumeInfo};
use serde_json::json;

use super::{failed, mount, names};
use crate::cli::PlaceArgs;
use crate::failure::Failure;
use crate::figures;
use crate::output::{end, json_text};

/// Runs `df`.
pub(super) fn df(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let usage = fs.usage().map_err(|error| failed(&location, &error))?;
    let used = usage.blocks.saturating_sub(usage.free_blocks);
    if args.json {
        let report = json!({
            "device": location.device,
            "block_bytes": usage.block_bytes,
            "blocks": usage.blocks,
            "used_blocks": used,
            "free_blocks": usage.free_blocks,
            "available_blocks": usage.available_blocks,
            "inodes": usage.inodes,
            "free_inodes": usage.free_inodes,
            "fsid": format!("{:016x}", usage.fsid),
        });
        return end(json_text(&report).as_bytes());
    }
    end(df_text(&location.device, &usage, used).as_bytes())
}

fn df_text(device: &str, usage: &Usage, used: u64) -> String {
    let size = |blocks: u64| figures::bytes(blocks.saturating_mul(u64::from(usage.block_bytes)));
    // As df rounds: up, relative to the blocks that users can have.
    let percent = |part: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        _ => format!("{} %", (u128::from(part) * 100).div_ceil(u128::from(whole))),
    };
    let used_inodes = usage.inodes.saturating_sub(usage.free_inodes);
    let rows = [
        ["".to_owned(), "size".into(), "used".into(), "available".into(), "used".into()],
        [
            "blocks".to_owned(),
            size(usage.blocks),
            size(used),
            size(usage.available_blocks),
            percent(used, used.saturating_add(usage.available_blocks)),
        ],
        [
            "inodes".to_owned(),
            usage.inodes.to_string(),
            used_inodes.to_string(),
            usage.free_inodes.to_string(),
            percent(used_inodes, usage.inodes),
        ],
    ];
    let mut text = format!("{device}\n");
    for [name, cells @ ..] in &rows {
        text += &format!("{name:>8}");
        for cell in cells {
            text += &format!("{cell:>14}");
        }
        text.push('\n');
    }
    text
}

/// Runs `info`.
pub(super) fn info(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let info = fs.info();
    // (An error here is shown as text, together with the rest.)
    let protection = fs.multiple_mount_protection().map_err(|error| error.to_string()).transpose();
    if args.json {
        let report = json!({
            "device": location.device,
            "uuid": uuid(&info.uuid),
            "label": String::from_utf8_lossy(&info.label),
            "last_mounted": String::from_utf8_lossy(&info.last_mounted),
            "features": info.features,
            "block_bytes": info.block_bytes,
            "inode_bytes": info.inode_bytes,
            "blocks": info.blocks,
            "inodes": info.inodes,
            "groups": info.groups,
            "clean": info.clean,
            "errors": info.errors,
            "mounted": in_use(&location.device),
            "mmp": protection.map(|found| match found {
                Ok(mmp) => json!({
                    "state": match mmp.state {
                        MmpState::Clean => "clean",
                        MmpState::Checking => "checking",
                        MmpState::InUse(_) => "in use",
                    },
                    "node": String::from_utf8_lossy(&mmp.node),
                    "device": String::from_utf8_lossy(&mmp.device),
                    "seen": names::time_json(seen(&mmp)),
                    "check_interval_s": mmp.check_interval_s,
                }),
                Err(error) => json!({ "error": error }),
            }),
            "recovered": info.recovered.as_ref().map(names::recovered),
            "created": names::time_json(info.created),
            "written": names::time_json(info.written),
        });
        return end(json_text(&report).as_bytes());
    }
    end(info_text(&location.device, &info, protection.as_ref()).as_bytes())
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
    let name =
        |bytes: &[u8]| names::harmless(std::ffi::OsStr::new(&*String::from_utf8_lossy(bytes)));
    let (node, device) = (name(&mmp.node), name(&mmp.device));
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

fn info_text(device: &str, info: &VolumeInfo, protection: Option<&Result<Mmp, String>>) -> String {
    let text = |bytes: &[u8]| match String::from_utf8_lossy(bytes) {
        text if text.is_empty() => "–".to_owned(),
        text => names::harmless(std::ffi::OsStr::new(&*text)),
    };
    let bytes = info.blocks.saturating_mul(u64::from(info.block_bytes));
    let needs_recovery =
        info.features.iter().any(|name| name == "needs_recovery") || info.recovered.is_some();
    let mut state = match (info.clean, info.errors) {
        (_, true) => "errors were seen: `meantime fs check` looks for them".to_owned(),
        (true, false) => "clean".to_owned(),
        (false, false) if needs_recovery => {
            "not unmounted cleanly: its journal has to be replayed".to_owned()
        }
        (false, false) => "not unmounted cleanly".to_owned(),
    };
    if let Some(who) = in_use(device) {
        state = format!("{state}; {who}");
    }
    let journal = match &info.recovered {
        None if info.features.iter().any(|name| name == "has_journal") => {
            "nothing to replay".to_owned()
        }
        None => "none".to_owned(),
        Some(found) => format!(
            "replayed into memory: {} transaction(s), {} fast commit(s), {} block(s); {} revoked",
            found.transactions, found.fast_commits, found.blocks, found.revoked
        ),
    };
    let rows = [
        ("Device", device.to_owned()),
        ("Label", text(&info.label)),
        ("UUID", uuid(&info.uuid)),
        ("Last mounted on", text(&info.last_mounted)),
        ("Features", info.features.join(" ")),
        (
            "Size",
            format!(
                "{} ({} blocks of {} bytes)",
                figures::bytes(bytes),
                info.blocks,
                info.block_bytes
            ),
        ),
        ("Groups", info.groups.to_string()),
        ("Inodes", format!("{} of {} bytes", info.inodes, info.inode_bytes)),
        ("State", state),
        ("Journal", journal),
        ("Created", names::time(info.created)),
        ("Last written", names::time(info.written)),
    ];
    let protection = protection.map(|found| ("Protection", protection_text(found)));
    let rows = rows.iter().chain(&protection);
    rows.map(|(name, value)| format!("{name:<16} {value}\n")).collect()
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
        let text = df_text("mem:1G", &usage, 101);
        assert!(text.contains("11 %") && text.contains('–'), "{text}");
    }
}
