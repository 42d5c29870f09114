//! Devices that cannot be waited for with a policy. Such a cell of the comparison is left out, and
//! the report says why. It is an error if no cell of the device remains.

use itertools::Itertools as _;
use meantime_completion::Policy;

use super::devices::Devices;
use super::error::RunError;
use super::group::{Cell, Group};

/// A cell that was not measured, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeftOut {
    /// The job.
    pub job: String,
    /// The device.
    pub device: String,
    /// The policy.
    pub policy: Policy,
    /// The reason, as text. It is the same for all jobs.
    pub why: String,
}

/// Removes from `group` the policies that its devices do not support.
pub fn leave_out(group: &mut Group, devices: &Devices) -> Result<Vec<LeftOut>, RunError> {
    let mut left_out = Vec::new();
    for cell in group.cells() {
        for plan in &group.plans {
            let (index, policy) = (plan.devices[cell.device], plan.policies[cell.policy]);
            if let Err(error) = devices.get(index).can_wait(policy) {
                let (job, device) = (plan.job.name.clone(), devices.uri(index).to_owned());
                left_out.push((cell, LeftOut { job, device, policy, why: error.to_string() }));
                break;
            }
        }
    }
    group.left_out = left_out.iter().map(|(cell, _)| *cell).collect();
    let cells = group.cells();
    let has_another = |cell: &Cell| cells.iter().any(|left| left.device == cell.device);
    match left_out.iter().find(|(cell, _)| !has_another(cell)) {
        Some((_, missing)) => Err(RunError::of_job(&missing.job, &missing.why)),
        // Each only once, even if several settings were to be measured.
        None => Ok(left_out.into_iter().map(|(_, one)| one).unique().collect()),
    }
}
