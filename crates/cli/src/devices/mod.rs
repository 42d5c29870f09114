//! `meantime devices`: the NVMe controllers of this machine, and what became of those that a crash
//! left.

mod json;
mod table;

use std::process::ExitCode;

use meantime_hw::pci::{self, GivenBack, PciError, Repaired, Sysfs};

use crate::cli::DevicesArgs;
use crate::failure::{FAILED, Failure};
use crate::output;

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> Result<ExitCode, Failure> {
    let sysfs = Sysfs::default();
    // A repair that was begun is finished.
    crate::signal::catch();
    let repaired = args.repair.then(|| pci::repair(&sysfs).map_err(Failure::new)).transpose()?;
    let functions = pci::scan(&sysfs);
    let is_root = rustix::process::geteuid().is_root();
    let text = if args.json {
        output::json_text(&json::report(&functions, repaired.as_deref()))
    } else {
        let mut text = repaired.as_deref().map(repaired_text).unwrap_or_default();
        text += &table::text(&functions, is_root, sysfs.sys.join("bus/pci").is_dir());
        text
    };
    output::print(&text)?;
    let mut failed = false;
    for one in repaired.iter().flatten() {
        if let Err(error) = &one.outcome {
            failed = true;
            Failure::new(format_args!("{}: {}: {error}", one.address, one.found)).show();
        }
    }
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// A line for each that was repaired. (What could not be repaired is an error, and goes to stderr.)
fn repaired_text(repaired: &[Repaired]) -> String {
    if repaired.is_empty() {
        return "Nothing to repair.\n\n".to_owned();
    }
    let mut text = String::new();
    for one in repaired {
        if let Ok(given) = &one.outcome {
            text += &format!("{}: {}; {}\n", one.address, one.found, given_back(given));
        }
    }
    text + "\n"
}

/// Where a device that was given back is now.
pub(crate) fn given_back(given: &GivenBack) -> String {
    let disks = if given.disks.is_empty() {
        String::new()
    } else {
        format!(" ({})", given.disks.join(", "))
    };
    match &given.driver {
        Some(driver) if given.was_back => format!("it is with {driver}{disks}"),
        Some(driver) => format!("it is back with {driver}{disks}"),
        None => "it has no driver, or is no longer there".to_owned(),
    }
}

/// An error about a device: a text that names none is the command line's fault.
pub(crate) fn failure(error: PciError) -> Failure {
    match error {
        PciError::BadName(_) => Failure::usage(error),
        _ => Failure::new(error),
    }
}

#[cfg(test)]
mod tests;
