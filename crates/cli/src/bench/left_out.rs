//! Devices that cannot be waited for by a policy: that cell of the comparison is left out, and the
//! report says why. It is an error if nothing is left of the device, or if the policy was asked for
//! and no device of the job has it.

use meantime_completion::Policy;
use serde_json::{Value, json};

use super::checks::wrong;
use super::devices::Devices;
use super::group::{Cell, Group};
use crate::failure::Failure;

/// What was not measured, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftOut {
    job: String,
    device: String,
    policy: Policy,
    why: String,
}

impl LeftOut {
    /// For people: the jobs' names are left to the programs, since the reason is the same for all
    /// of them.
    pub(crate) fn line(&self) -> String {
        format!("Not measured: {}", self.why)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "jobname": self.job,
            "device": self.device,
            "completion": self.policy.to_string(),
            "why": self.why,
        })
    }
}

/// Leaves out of `group` what its devices cannot do.
pub(crate) fn leave_out(group: &mut Group, devices: &Devices) -> Result<Vec<LeftOut>, Failure> {
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
    let explicit = group.plans.iter().any(|plan| plan.job.completion.is_some());
    let needed = |cell: &Cell| {
        let device = cells.iter().any(|left| left.device == cell.device);
        let policy = !explicit || cells.iter().any(|left| left.policy == cell.policy);
        device && policy
    };
    match left_out.iter().find(|(cell, _)| !needed(cell)) {
        Some((_, missing)) => Err(wrong(&missing.job, format_args!("{}", missing.why))),
        None => {
            let mut said: Vec<LeftOut> = Vec::new();
            for (_, one) in left_out {
                // Once, under however many settings it was to be measured.
                if !said.contains(&one) {
                    said.push(one);
                }
            }
            Ok(said)
        }
    }
}
