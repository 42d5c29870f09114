//! `meantime devices`: the NVMe controllers of this machine, and the repair of those that a crash
//! left.

mod facts;
mod table;

use std::process::ExitCode;

use meantime_hw::pci::{self, PciError, Repaired, Returned, Sysfs};

use crate::cli::DevicesArgs;
use crate::failure::{FAILED, Failure};
use crate::output;

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> Result<ExitCode, Failure> {
    let sysfs = Sysfs::default();
    // A repair that has begun is finished.
    crate::signal::catch();
    let repaired = args.repair.then(|| pci::repair(&sysfs).map_err(Failure::new)).transpose()?;
    let functions = pci::scan(&sysfs);
    let is_root = rustix::process::geteuid().is_root();
    let text = if args.json {
        output::json_text(&facts::report(&functions, repaired.as_deref()))
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

/// Returns a line for each repaired device. Failed repairs are errors, and go to stderr.
fn repaired_text(repaired: &[Repaired]) -> String {
    if repaired.is_empty() {
        return "Nothing to repair.\n\n".to_owned();
    }
    let mut text = String::new();
    for one in repaired {
        if let Ok(returned) = &one.outcome {
            text += &format!("{}: {}; {}\n", one.address, one.found, describe(returned));
        }
    }
    text + "\n"
}

/// Describes where a device that was returned is now.
pub(crate) fn describe(returned: &Returned) -> String {
    let disks = if returned.disks.is_empty() {
        String::new()
    } else {
        format!(" ({})", returned.disks.join(", "))
    };
    match &returned.driver {
        Some(driver) if returned.was_back => format!("it is with {driver}{disks}"),
        Some(driver) => format!("it is back with {driver}{disks}"),
        None => "it has no driver, or is no longer there".to_owned(),
    }
}

/// Converts an error about a device: text that is not an address is an error of the command line.
pub(crate) fn failure(error: PciError) -> Failure {
    match error {
        PciError::BadName(_) => Failure::usage(error),
        _ => Failure::new(error),
    }
}

#[cfg(test)]
mod tests;
