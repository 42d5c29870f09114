//! Features that the driver sets, and sets again after each reset (NVMe Base 1.4 §5.21). None of
//! them is saved in the device.

use meantime_nvme_spec::features::{
    Arbitration, AutonomousPowerStateTransition, HostBehaviorSupport, PowerManagement, fid, sel,
};
use meantime_nvme_spec::sqe::Sqe;
use zerocopy::IntoBytes;

use super::admin::{AdminContext, AdminQueue};
use super::arbitration::default_weights;
use super::error::{Error, Result};
use super::identify::ControllerInfo;
use meantime_hw::DmaHeap;

/// Size of the data of Autonomous Power State Transition, in bytes.
const APST_BYTES: usize = 256;

/// The features in force.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Whether queues have classes, and their weights.
    arbitration: Option<Arbitration>,
    /// The former power management setting, if we changed it.
    power: Option<FormerPower>,
    /// The features set by the caller: identifier, namespace, and last value.
    set: Vec<(u8, u32, u32)>,
}

/// The former power management setting.
#[derive(Debug)]
struct FormerPower {
    state: PowerManagement,
    apst: AutonomousPowerStateTransition,
    table: Vec<u8>,
}

/// The context for sending feature commands.
pub(super) struct Sender<'a> {
    pub(super) context: AdminContext<'a>,
    pub(super) queue: &'a mut AdminQueue,
    pub(super) heap: &'a DmaHeap,
}

impl Sender<'_> {
    fn get(&mut self, fid: u8) -> Result<u32> {
        let sqe = Sqe::get_features(0, 0, fid, sel::CURRENT, 0);
        Ok(self.queue.execute(&self.context, "Get Features", sqe, None)?.0)
    }

    fn get_data(&mut self, fid: u8, bytes: usize) -> Result<(u32, Vec<u8>)> {
        let data = self.heap.alloc(bytes)?;
        let sqe = Sqe::get_features(0, 0, fid, sel::CURRENT, 0).with_prps(data.iova().0, 0);
        let (dw0, data) = self.queue.execute(&self.context, "Get Features", sqe, Some(data))?;
        Ok((dw0, data.ok_or(Error::Gone)?.to_vec()))
    }

    /// Whether autonomous power state transitions are on, and their table.
    pub(super) fn apst(&mut self) -> Result<(AutonomousPowerStateTransition, Vec<u8>)> {
        let (dw0, table) = self.get_data(fid::AUTONOMOUS_POWER_STATE_TRANSITION, APST_BYTES)?;
        Ok((AutonomousPowerStateTransition(dw0), table))
    }

    fn set(&mut self, fid: u8, nsid: u32, value: u32) -> Result<u32> {
        let sqe = Sqe::set_features(0, nsid, fid, false, value);
        Ok(self.queue.execute(&self.context, "Set Features", sqe, None)?.0)
    }

    fn set_data(&mut self, fid: u8, value: u32, bytes: &[u8]) -> Result<()> {
        let mut data = self.heap.alloc(bytes.len())?;
        data.copy_from_slice(bytes);
        let sqe = Sqe::set_features(0, 0, fid, false, value).with_prps(data.iova().0, 0);
        self.queue.execute(&self.context, "Set Features", sqe, Some(data)).map(drop)
    }
}

/// Tolerates the refusal of a non-essential feature. A controller that is gone or does not answer
/// is still an error.
fn optional(what: &str, result: Result<()>) -> Result<()> {
    match result {
        Err(error @ Error::Admin { .. }) => {
            tracing::warn!(%error, "{what}: refused by the controller");
            Ok(())
        }
        other => other,
    }
}

impl Features {
    /// Sets all features on a newly enabled controller. `weighted` says that weighted round robin
    /// arbitration is enabled.
    pub(super) fn apply(
        &mut self,
        to: &mut Sender<'_>,
        info: &ControllerInfo,
        weighted: Option<Option<Arbitration>>,
        low_latency: bool,
    ) -> Result<()> {
        // Without this feature, a controller neither gives retry delays nor interrupts commands
        // that may be repeated (1.4 §5.21.1.22).
        if info.crdt != [0; 3] {
            let support = HostBehaviorSupport::new(true);
            let result = to.set_data(fid::HOST_BEHAVIOR_SUPPORT, 0, support.as_bytes());
            optional("retry delays", result)?;
        }
        if let Some(weights) = weighted {
            let weights = *self.arbitration.get_or_insert(weights.unwrap_or_else(default_weights));
            optional("weights of queue classes", to.set(fid::ARBITRATION, 0, weights.0).map(drop))?;
        }
        if low_latency && info.apst {
            let result = self.stay_awake(to);
            optional("autonomous power state transitions off", result)?;
        }
        for &(id, nsid, value) in &self.set {
            let result = to.set(id, nsid, value).map(drop);
            // A caller that switched the cache off relies on it. For other features a working
            // device is more important.
            if id == fid::VOLATILE_WRITE_CACHE {
                result?;
            } else {
                optional("a feature that was set before the reset", result)?;
            }
        }
        Ok(())
    }

    /// Sets feature `fid`, now and after each reset.
    pub(super) fn set(
        &mut self,
        to: &mut Sender<'_>,
        fid: u8,
        nsid: u32,
        value: u32,
    ) -> Result<u32> {
        let dw0 = to.set(fid, nsid, value)?;
        self.set.retain(|&(other, at, _)| (other, at) != (fid, nsid));
        self.set.push((fid, nsid, value));
        Ok(dw0)
    }

    /// Selects power state 0 and turns autonomous transitions off: leaving a deeper state takes
    /// milliseconds.
    fn stay_awake(&mut self, to: &mut Sender<'_>) -> Result<()> {
        let state = PowerManagement(to.get(fid::POWER_MANAGEMENT)?);
        let (apst, table) = to.apst()?;
        let changes = apst.apste() || state.ps() != 0;
        if apst.apste() {
            to.set_data(fid::AUTONOMOUS_POWER_STATE_TRANSITION, apst.with_apste(false).0, &table)?;
        }
        if changes {
            // The former setting is recorded before the next command, which may be refused, because
            // the first change has to be undone in any case. After a reset, the values found are
            // the defaults, which are not recorded.
            self.power.get_or_insert(FormerPower { state, apst, table });
        }
        if state.ps() != 0 {
            to.set(fid::POWER_MANAGEMENT, 0, state.with_ps(0).0)?;
        }
        Ok(())
    }

    /// Restores the former power management setting, if the controller still responds.
    pub(super) fn restore(&mut self, to: &mut Sender<'_>) {
        let Some(power) = self.power.take() else { return };
        let apst = to.set_data(fid::AUTONOMOUS_POWER_STATE_TRANSITION, power.apst.0, &power.table);
        if let Err(error) = apst.and_then(|()| to.set(fid::POWER_MANAGEMENT, 0, power.state.0)) {
            tracing::warn!(%error, "power management could not be set back to what it was");
        }
    }
}
