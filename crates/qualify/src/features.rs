//! Features, and commands that a controller has to refuse.

use meantime_nvme::{AdminQueries as _, Controller, Error};
use meantime_nvme_spec::features::{fid, sel};
use meantime_nvme_spec::identify::{cns, oncs};
use meantime_nvme_spec::status::StatusCode;

use crate::notes::{Notes, Outcome, Stop};
use crate::subject::Subject;

const FEATURES: &str = "1.4 §5.21.1";

/// A feature: its identifier and name.
const MANDATORY: &[(u8, &str)] = &[
    (fid::ARBITRATION, "Arbitration"),
    (fid::POWER_MANAGEMENT, "Power Management"),
    (fid::TEMPERATURE_THRESHOLD, "Temperature Threshold"),
    (fid::ERROR_RECOVERY, "Error Recovery"),
    (fid::NUMBER_OF_QUEUES, "Number of Queues"),
    (fid::WRITE_ATOMICITY, "Write Atomicity Normal"),
    (fid::ASYNC_EVENT_CONFIG, "Asynchronous Event Configuration"),
];

/// Of controllers on PCIe only.
const WITH_INTERRUPTS: &[(u8, &str)] = &[
    (fid::INTERRUPT_COALESCING, "Interrupt Coalescing"),
    (fid::INTERRUPT_VECTOR_CONFIG, "Interrupt Vector Configuration"),
];

/// Features whose current value is set to another one, read, and put back. Neither value is saved.
/// The third is the change.
const CHANGED: &[(u8, &str, u32)] = &[
    (fid::ASYNC_EVENT_CONFIG, "Asynchronous Event Configuration", 1),
    (fid::WRITE_ATOMICITY, "Write Atomicity Normal", 1),
];

/// The namespace a feature is asked for: its own, for Error Recovery alone.
fn nsid_of(fid: u8, nsid: u32) -> u32 {
    if fid == fid::ERROR_RECOVERY { nsid } else { 0 }
}

/// Reads the mandatory features; changes some, and puts them back.
pub(crate) fn features(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let controller = subject.device()?.controller().clone();
    let nsid = subject.device()?.namespace().nsid;
    let cache = [(fid::VOLATILE_WRITE_CACHE, "Volatile Write Cache")];
    let cache = cache.iter().filter(|_| controller.info().volatile_write_cache);
    let interrupts = WITH_INTERRUPTS.iter().filter(|_| !subject.is_fabric);
    for &(fid, name) in MANDATORY.iter().chain(interrupts).chain(cache) {
        match controller.get_feature(fid, nsid_of(fid, nsid)) {
            Ok(value) => notes.fact(name, format!("{value:#x}")),
            Err(Error::Admin { status, .. }) => {
                notes.deviates(
                    FEATURES,
                    format!("{name}, which is mandatory, is refused: {status}"),
                );
            }
            Err(error) => return Err(error.into()),
        }
    }
    for &(fid, name, change) in CHANGED {
        change_and_put_back(&controller, fid, name, change, notes)?;
    }
    if controller.info().oncs & oncs::SAVE_SELECT != 0 {
        for sel in [sel::DEFAULT, sel::SAVED, sel::CAPABILITIES] {
            let fid = fid::ERROR_RECOVERY;
            if let Err(Error::Admin { status, .. }) = controller.get_feature_of(sel, fid, nsid) {
                notes.deviates(
                    "1.4 §5.13",
                    format!(
                        "ONCS has Select, and Get Features with Select {sel} is refused: {status}"
                    ),
                );
            }
        }
    }
    Ok(())
}

fn change_and_put_back(
    controller: &Controller,
    fid: u8,
    name: &str,
    change: u32,
    notes: &mut Notes,
) -> Outcome {
    // What is not there is a deviation already.
    let Ok(before) = controller.get_feature(fid, 0) else { return Ok(()) };
    let wanted = before ^ change;
    match controller.set_feature(fid, 0, wanted) {
        Ok(_) => {
            let seen = controller.get_feature(fid, 0)?;
            notes.require(seen == wanted, FEATURES, || {
                format!("{name} was set to {wanted:#x}, and reads as {seen:#x}")
            });
        }
        // A feature need not be changeable.
        Err(Error::Admin { status, .. }) => notes.fact(format!("{name}, set"), status.to_string()),
        Err(error) => return Err(error.into()),
    }
    controller.set_feature(fid, 0, before).ok();
    let seen = controller.get_feature(fid, 0)?;
    notes.require(seen == before, FEATURES, || {
        format!("{name} was put back to {before:#x}, and reads as {seen:#x}")
    });
    Ok(())
}

/// Sends what a controller has to refuse, and looks at the status.
pub(crate) fn refusals(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    use StatusCode::{InvalidFieldInCommand, InvalidLogPage, InvalidNamespaceOrFormat};
    let controller = subject.device()?.controller().clone();
    let nn = controller.info().namespace_count;
    let mut refused = |what: &str, section, expected: &[StatusCode], result: Result<(), Error>| {
        match result {
            Ok(()) => notes.deviates(section, format!("{what} is not refused")),
            Err(Error::Admin { status, .. }) => {
                notes.require(expected.iter().any(|&code| status.is(code)), section, || {
                    let words: Vec<String> =
                        expected.iter().map(|code| format!("{code:?}")).collect();
                    format!("{what} is refused by {status} instead of {}", words.join(" or "))
                });
            }
            Err(error) => return Err(Stop::from(error)),
        }
        Ok(())
    };
    // FFh is reserved in all versions.
    let result = controller.identify_data(0xff, 0).map(drop);
    refused("Identify of a reserved CNS", "1.4 §5.15", &[InvalidFieldInCommand], result)?;
    if nn < u32::MAX - 1 {
        let result = controller.identify_data(cns::NAMESPACE, nn + 1).map(drop);
        refused(
            "Identify of a namespace above NN",
            "1.4 §6.1.2",
            &[InvalidNamespaceOrFormat],
            result,
        )?;
    }
    let result = controller.get_feature(0x7f, 0).map(drop);
    refused("Get Features of a reserved feature", "1.4 §5.13", &[InvalidFieldInCommand], result)?;
    // From 2.0 on the status is Invalid Field in Command, too.
    let result = controller.get_log_page(0x7f, u32::MAX, 512).map(drop);
    refused(
        "Get Log Page of a reserved page",
        "1.4 §5.14",
        &[InvalidLogPage, InvalidFieldInCommand],
        result,
    )
}
