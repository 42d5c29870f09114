//! `meantime fs extents`.

use std::process::ExitCode;

use meantime_ext4::SegmentKind;
use serde_json::json;

use super::mounted::mount;
use super::names;
use crate::cli::PlaceArgs;
use crate::facts::{Fact, facts, objects, table};
use crate::failure::{Context as _, Failure};
use crate::output::{end, json_text};

/// Runs the command.
pub(super) fn run(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let file = fs.open(location.path()).context(&location)?;
    let segments = file.segments().context(&location)?;
    let kind = |kind: SegmentKind| match kind {
        SegmentKind::Data(on_device) => ("data", Some(on_device)),
        SegmentKind::Delayed => ("delayed", None),
        SegmentKind::Unwritten(on_device) => ("unwritten", Some(on_device)),
        SegmentKind::Hole => ("hole", None),
        SegmentKind::Inline => ("inline", None),
    };
    let extents: Vec<Vec<Fact>> = segments
        .iter()
        .map(|segment| {
            let (kind, on_device) = kind(segment.kind);
            facts! {
                "offset", "offset_bytes": segment.offset;
                "bytes", "bytes": segment.bytes;
                "on the device", "device_offset_bytes": on_device;
                "kind", "kind": kind;
            }
        })
        .collect();
    if !args.json {
        return end(table(&extents).as_bytes());
    }
    let mut report = names::report(&location);
    report["size_bytes"] = json!(file.size());
    report["extents"] = objects(&extents);
    end(json_text(&report).as_bytes())
}
