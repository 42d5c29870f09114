//! `meantime fs extents`.

use std::process::ExitCode;

use meantime_ext4::SegmentKind;
use serde_json::json;

use super::{failed, mount, names};
use crate::cli::PlaceArgs;
use crate::failure::Failure;
use crate::output::{end, json_text};

/// Runs the command.
pub(super) fn run(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let at = |error| failed(&location, &error);
    let file = fs.open(location.path()).map_err(at)?;
    let segments = file.segments().map_err(at)?;
    let kind = |kind: SegmentKind| match kind {
        SegmentKind::Data(on_device) => ("data", Some(on_device)),
        SegmentKind::Delayed => ("delayed", None),
        SegmentKind::Unwritten(on_device) => ("unwritten", Some(on_device)),
        SegmentKind::Hole => ("hole", None),
        SegmentKind::Inline => ("inline", None),
    };
    if args.json {
        let mut report = names::report(&location);
        report["size_bytes"] = json!(file.size());
        let extents = segments.iter().map(|segment| {
            let (kind, on_device) = kind(segment.kind);
            json!({
                "offset_bytes": segment.offset,
                "bytes": segment.bytes,
                "kind": kind,
                "device_offset_bytes": on_device,
            })
        });
        report["extents"] = extents.collect();
        return end(json_text(&report).as_bytes());
    }
    let mut text =
        format!("{:>16} {:>16} {:>18}  {}\n", "offset", "bytes", "on the device", "kind");
    for segment in &segments {
        let (kind, on_device) = kind(segment.kind);
        let on_device = on_device.map_or_else(|| "–".to_owned(), |at| at.to_string());
        text += &format!("{:>16} {:>16} {on_device:>18}  {kind}\n", segment.offset, segment.bytes);
    }
    end(text.as_bytes())
}
