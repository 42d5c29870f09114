//! The zones of a run's devices.

use std::collections::BTreeMap;

use super::devices::Devices;
use super::error::{RunError, refuse};
use super::group::Group;
use crate::job::ZoneMode;
use crate::zoned::SharedZones;

/// Gives the devices of `groups` the zones of their jobs, each shared by all jobs.
pub fn share_zones(groups: &mut [Group], devices: &Devices) -> Result<(), RunError> {
    let mut all: BTreeMap<usize, (SharedZones, String)> = BTreeMap::new();
    for group in groups {
        for plan in group.plans.iter().filter(|plan| plan.job.zones.mode() == ZoneMode::Zbd) {
            let keys = &plan.job.zones;
            for index in &plan.devices {
                let info = devices.get(*index).info();
                let new = || (SharedZones::new(keys, info.bytes()), plan.job.name.clone());
                let (zones, other) = all.entry(*index).or_insert_with(new);
                if !zones.are_of(keys) {
                    refuse!(
                        plan.job,
                        "zonesize, zonecapacity or max_open_zones differs from that of job \
                         {other}, and a device has one division; give one"
                    );
                }
                group.zones.insert(*index, zones.clone());
            }
        }
    }
    Ok(())
}
