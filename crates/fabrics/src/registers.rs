//! The controller's registers, as the driver sees them over a network.
//!
//! CAP, VS, CC and CSTS are properties of the target's controller. The admin queue's sizes and
//! addresses (AQA, ASQ, ACQ) stay here.
//!
//! **Reset and loss.** An association (the connections of the admin queue and of its I/O queues) is
//! made when the driver sets CC.EN, and ends when it clears CC.EN. Two ways lead there:
//!
//! - *Controller reset.* The admin queue's connection works. Property Set clears CC.EN at the
//!   target, and CSTS.RDY = 0 read there says that the controller takes no more commands. The
//!   connection is kept until the next association is made: if it still works then, the target has
//!   not lost power meanwhile.
//! - *Loss.* The connection has ended. The target may still take commands, and the first copy of a
//!   write could come after the repeated one. So what the kernel has not yet sent is dropped, and
//!   no association is made before the target's Keep Alive Timer has expired for the old one, which
//!   ends it there (1.4 §7.12). The timer may expire after twice its value, if any command restarts
//!   it (CTRATT.TBKAS). The driver finds CC.EN clear and AQA empty, as after a loss of power: a
//!   volatile write cache may be lost. If the driver has set CC.EN already, CSTS.CFS tells it to
//!   begin again.
//!
//! Neither recalls what the target has already handed to its own disks. Linux's target confirms a
//! reset while those still work (Cross-Controller Reset of NVMe 2.1 is for that). A caller that
//! wants order sends a later write of the same blocks after the repeated one has ended, so the
//! first copy does harm only if it takes longer than both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meantime_nvme_spec::fabrics::CNTLID_DYNAMIC;
use meantime_nvme_spec::features::fid;
use meantime_nvme_spec::regs::{ACQ, AQA, ASQ, Aqa, CAP, CC, CSTS, Cap, Cc, Csts, GONE, VS, shst};
use meantime_nvme_spec::sqe::Sqe;

use crate::connection::{Connection, Rings};
use crate::dial::{ADMIN_ENTRIES, Dialer};
use crate::error::{FabricsError, Result};
use crate::identified::Identified;
use crate::memory::Memory;

/// The first pause between attempts to connect, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// The time that a target has for a controller reset.
const RESET_TIME: Duration = Duration::from_secs(10);

/// Added to the Keep Alive Timeout: the target may count in steps.
const EXPIRY_MARGIN: Duration = Duration::from_millis(200);

/// The longest time that a lost association may have to be waited out: CAP.TO ends at 127 s.
const EXPIRY_MAX: Duration = Duration::from_secs(120);

/// The time for connecting, in addition to that, unless the user has given another.
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// How long attempts to connect go on after a loss, unless the user has given another time.
const LOSS_TIME: Duration = Duration::from_secs(60);

/// The least time of a command of the connection's own.
const STEP_TIME: Duration = Duration::from_millis(500);

/// CSTS is read again after this time, while all is well.
const STATUS_AGE: Duration = Duration::from_secs(1);

/// The state of the association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is an association.
    Connected,
    /// There is no association: CC.EN is clear.
    Closed,
    /// There is no association, and the driver has set CC.EN: it is to be made.
    Wanted,
    /// There was no association for as long as permitted: the device is gone.
    GivenUp,
    /// The device was given up.
    Released,
}

/// A time without an association, which has not ended.
struct Outage {
    since: Instant,
    /// Why the association was lost.
    why: String,
    /// Why no other could be made, if that was tried.
    error: Option<String>,
}

/// The registers, and the association behind them.
pub(crate) struct Registers {
    pub(crate) phase: Phase,
    cap: u64,
    vs: u32,
    cc: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    pub(crate) cntlid: u16,
    /// The target's Keep Alive Timeout.
    pub(crate) kato: Duration,
    /// Whether the last association was reset, and its admin queue's connection is kept.
    is_kept: bool,
    /// Whether the association was lost, and the driver has not set CC.EN since.
    is_lost: bool,
    /// Before this, a former association may still exist.
    not_before: Option<Instant>,
    /// How long an outage may last.
    loss: Duration,
    outage: Option<Outage>,
    connected_at: Instant,
    /// When CSTS was last read as ready and well.
    well_at: Option<Instant>,
    /// Whether the driver is to be told that the association, or an I/O queue's connection, was
    /// lost.
    pub(crate) is_to_report: bool,
    try_at: Instant,
    pause: Duration,
}

/// The connections that the registers act on: the admin queue's, and the others.
pub(crate) trait Queues {
    /// Replaces the admin queue's connection.
    fn set_admin(&self, connection: Connection);
    /// Runs `act` on the admin queue's connection, if there is one.
    fn with_admin<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> Option<T>;
    /// Ends every connection.
    fn end_all(&self, why: &str);
    /// Ends every connection but the admin queue's, which forgets the driver's memory.
    fn retire(&self, why: &str);
    /// Wakes the thread that reports losses.
    fn alarm(&self);
    /// Whether a connection has ended by itself.
    fn is_broken(&self) -> bool;
    /// Notes that no connection has ended by itself.
    fn mend(&self);
}

/// The parts of the transport that the registers use.
pub(crate) struct Parts<'a, Q> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) memory: &'a Memory,
    pub(crate) identified: &'a Arc<Identified>,
    pub(crate) queues: &'a Q,
}

impl<Q: Queues> Parts<'_, Q> {
    /// Executes a command of the connection's own on the admin queue, within `time`.
    fn execute(&self, sqe: Sqe, what: &'static str, time: Duration) -> Result<u64> {
        let executed = self
            .queues
            .with_admin(|admin| self.dialer.execute(admin, self.memory, sqe, 0, what, time));
        let ended = || FabricsError::Ended {
            address: self.dialer.address.authority(),
            why: "it is closed".into(),
        };
        let (cqe, _) = executed.ok_or_else(ended)??;
        Ok(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32)
    }

    fn get(&self, offset: u32, bytes: u8, time: Duration) -> Result<u64> {
        self.execute(Sqe::property_get(0, offset, bytes), "Property Get", time)
    }

    fn set(&self, offset: u32, bytes: u8, value: u64, time: Duration) -> Result<()> {
        self.execute(Sqe::property_set(0, offset, bytes, value), "Property Set", time).map(drop)
    }

    /// Makes the admin queue's connection, within `time`. Returns the controller's identifier and
    /// its Keep Alive Timeout. If the former connection `is_kept`, it must still work.
    fn dial(&self, is_kept: bool, time: Duration) -> Result<(u16, Duration)> {
        let Self { dialer, memory, identified, queues } = self;
        let until = Instant::now() + time;
        let left = || until.saturating_duration_since(Instant::now());
        let (connection, cntlid) =
            dialer.connect(memory, identified, 0, ADMIN_ENTRIES, CNTLID_DYNAMIC, time)?;
        if is_kept {
            self.get(CSTS, 4, left())?;
        }
        queues.set_admin(connection);
        queues.mend();
        // The target may have rounded it up.
        let sqe = Sqe::get_features(0, 0, fid::KEEP_ALIVE_TIMER, 0, 0);
        let told = self.execute(sqe, "Get Features (Keep Alive Timer)", left());
        let told_ms = told.unwrap_or(0);
        let kato_ms = told_ms.min(3_600_000).max(u64::from(dialer.kato_ms));
        Ok((cntlid, Duration::from_millis(kato_ms)))
    }
}

impl Registers {
    /// Makes the first association. `loss` is how long the driver is to wait for a later one.
    pub(crate) fn open(parts: &Parts<'_, impl Queues>, loss: Option<Duration>) -> Result<Self> {
        let time = parts.dialer.timeout;
        let (cntlid, kato) = parts.dial(false, time)?;
        let cap = Cap(parts.get(CAP, 8, time)?);
        let vs = parts.get(VS, 4, time)? as u32;
        let cc = parts.get(CC, 4, time)? as u32;
        // This assumes that any command restarts the timer, which is not yet known.
        let expiry = kato * 2 + EXPIRY_MARGIN;
        if expiry > EXPIRY_MAX {
            return Err(FabricsError::Unsupported {
                address: parts.dialer.address.authority(),
                what: format!(
                    "its Keep Alive Timeout is {} s, and a lost connection would have to wait that \
                     long: give a smaller kato_ms, or change it there",
                    kato.as_secs()
                ),
            });
        }
        if loss.is_some_and(|loss| loss < kato + EXPIRY_MARGIN) {
            tracing::warn!(
                device = %parts.dialer.address,
                "loss_ms is shorter than the target keeps a connection that was lost ({} ms): there \
                 is no time to connect again after it",
                kato.as_millis()
            );
        }
        let loss = loss.unwrap_or_else(|| LOSS_TIME.max(expiry + CONNECT_TIME));
        // Rings and doorbells are in this process, so pages of 4 KiB will do and doorbells are
        // packed. No other arbitration is offered. The driver waits at least as long as an outage
        // may last; the registers decide how long that is.
        let to = (loss.as_millis() / 500 + 1).clamp(2, 255) as u8;
        let cap = cap.with_dstrd(0).with_ams(0).with_cqr(true).with_to(to.max(cap.to()));
        let cap = cap.with_mpsmin(0).with_nssrs(false).with_cmbs(false).with_pmrs(false);
        Ok(Self {
            phase: Phase::Connected,
            cap: cap.0,
            vs,
            cc,
            aqa: 0,
            asq: 0,
            acq: 0,
            cntlid,
            kato,
            is_kept: false,
            is_lost: false,
            not_before: None,
            loss,
            outage: None,
            connected_at: Instant::now(),
            well_at: None,
            is_to_report: false,
            try_at: Instant::now(),
            pause: PAUSES[0],
        })
    }

    /// Whether the driver has enabled the controller.
    pub(crate) fn is_enabled(&self) -> bool {
        Cc(self.cc).en()
    }

    /// Loses the association. The driver finds a controller that is disabled, and has forgotten
    /// everything.
    pub(crate) fn lose(&mut self, parts: &Parts<'_, impl Queues>, why: &str) {
        // The target may still execute commands.
        self.not_before = Some(Instant::now() + expiry(self.kato, parts));
        self.forget(parts, why);
    }

    fn forget(&mut self, parts: &Parts<'_, impl Queues>, why: &str) {
        if self.connected_at.elapsed() >= self.kato {
            self.outage = None;
        }
        self.outage.get_or_insert_with(|| Outage {
            since: Instant::now(),
            why: why.to_owned(),
            error: None,
        });
        tracing::warn!(device = %parts.dialer.address, why, "the connection is lost");
        parts.queues.end_all(why);
        self.is_to_report |= self.is_enabled();
        parts.queues.alarm();
        (self.cc, self.aqa, self.well_at) = (0, 0, None);
        (self.phase, self.is_kept, self.is_lost) = (Phase::Closed, false, true);
    }

    /// Loses the association if the admin queue's connection has ended.
    pub(crate) fn check_admin(&mut self, parts: &Parts<'_, impl Queues>) {
        if self.phase == Phase::Connected {
            let ended = parts.queues.with_admin(|admin| admin.ended().map(str::to_owned));
            if let Some(Some(why)) = ended {
                self.lose(parts, &why);
            }
        }
    }

    pub(crate) fn read(&mut self, parts: &Parts<'_, impl Queues>, offset: u32) -> u64 {
        self.check_admin(parts);
        if let Phase::Released | Phase::GivenUp = self.phase {
            return u64::from(GONE) | u64::from(GONE) << 32;
        }
        match offset {
            CAP => self.cap,
            VS => self.vs.into(),
            CC => self.cc.into(),
            CSTS => self.csts(parts).into(),
            AQA => self.aqa.into(),
            ASQ => self.asq,
            ACQ => self.acq,
            _ => 0,
        }
    }

    fn csts(&mut self, parts: &Parts<'_, impl Queues>) -> u32 {
        if self.phase == Phase::Wanted {
            self.connect(parts);
        }
        match self.phase {
            Phase::Connected => {}
            Phase::GivenUp => return GONE,
            // The controller that was to be shut down is gone.
            Phase::Closed if Cc(self.cc).shn() != 0 => return Csts(0).with_shst(shst::COMPLETE).0,
            _ => return Csts(0).with_cfs(self.is_lost).0,
        }
        let is_broken = parts.queues.is_broken();
        // A thread that polls must not cause a round trip with each look.
        if self.well_at.is_some_and(|at| at.elapsed() < STATUS_AGE) {
            return Csts(0).with_rdy(true).with_cfs(is_broken).0;
        }
        match parts.get(CSTS, 4, self.step_time(parts)) {
            Ok(csts) => {
                let csts = Csts(csts as u32);
                let is_well = csts.0 == Csts(0).with_rdy(true).0 && self.is_enabled();
                self.well_at = is_well.then(Instant::now);
                // For an I/O queue without its connection, only a reset helps.
                csts.with_cfs(csts.cfs() || is_broken).0
            }
            Err(error) => {
                self.lose(parts, &error.to_string());
                Csts(0).with_cfs(true).0
            }
        }
    }

    /// The time of a command of the connection's own. No Keep Alive is sent meanwhile, so if it
    /// took longer, the association would be lost anyway.
    fn step_time(&self, parts: &Parts<'_, impl Queues>) -> Duration {
        parts.dialer.timeout.min(self.kato.max(STEP_TIME))
    }

    /// Called when an I/O queue has been connected: the outage, if there was one, is over.
    pub(crate) fn is_in_use(&mut self) {
        self.outage = None;
    }

    /// Describes for users what is wrong.
    pub(crate) fn trouble(&self, parts: &Parts<'_, impl Queues>) -> String {
        let address = parts.dialer.address.authority();
        let Some(Outage { since, why, error }) =
            self.outage.as_ref().filter(|_| self.phase != Phase::Connected)
        else {
            return match self.phase {
                Phase::Released => {
                    format!("the connection to {address} was closed: open the device again")
                }
                _ => format!(
                    "the target at {address} answers, but its controller does not do what it was \
                     told: look at the target's log, or restart it"
                ),
            };
        };
        let lost = format!("the connection to {address} was lost ({why})");
        if let Phase::Closed | Phase::Wanted = self.phase {
            let passed_ms = since.elapsed().as_millis();
            return format!("{lost} {passed_ms} ms ago, and is not yet there again");
        }
        let loss_ms = self.loss.as_millis();
        let error = error.as_deref().unwrap_or(
            "the target had not yet given up the old one, which takes as long as its Keep Alive \
             Timeout, or twice that",
        );
        format!(
            "{lost}, and could not be made again within {loss_ms} ms ({error}): is the target \
             running, and does the network reach it? Then open the device again; loss_ms= is how \
             long to try"
        )
    }

    /// Makes an association, if it is time to try, and enables the controller. Gives the device up
    /// if the outage has lasted too long.
    fn connect(&mut self, parts: &Parts<'_, impl Queues>) {
        let now = Instant::now();
        let mut time = parts.dialer.timeout;
        if let Some(outage) = &self.outage {
            let left = (outage.since + self.loss).saturating_duration_since(now);
            if left.is_zero() {
                parts.queues.end_all("the device was given up");
                self.phase = Phase::GivenUp;
                return;
            }
            time = time.min(left);
        } else if self.is_kept {
            // The former connection is not kept alive meanwhile.
            time = self.step_time(parts);
        }
        if now < self.try_at || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        match parts.dial(self.is_kept, time) {
            Ok((cntlid, kato)) => {
                self.connected_at = Instant::now();
                (self.cntlid, self.kato) = (cntlid, kato);
                (self.not_before, self.pause) = (None, PAUSES[0]);
                (self.phase, self.is_kept) = (Phase::Connected, false);
                match self.enable(parts) {
                    Ok(()) => tracing::info!(device = %parts.dialer.address, "connected again"),
                    Err(error) => self.lose(parts, &error.to_string()),
                }
                parts.queues.alarm();
            }
            // The target has confirmed the reset, but may lose power while it is out of reach.
            Err(error) if self.is_kept => self.forget(parts, &error.to_string()),
            Err(error) => {
                tracing::warn!(device = %parts.dialer.address, %error, "cannot connect again");
                if let Some(outage) = &mut self.outage {
                    outage.error = Some(error.to_string());
                }
                parts.queues.end_all("not connected");
                self.try_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSES[1]);
            }
        }
    }

    /// Gives the admin queue its rings, and sets CC.EN at the target.
    fn enable(&mut self, parts: &Parts<'_, impl Queues>) -> Result<()> {
        let aqa = Aqa(self.aqa);
        let rings = Rings {
            sq_iova: self.asq,
            cq_iova: self.acq,
            entries: aqa.asqs() as u16,
            cq_entries: aqa.acqs() as u16,
        };
        parts.queues.with_admin(|admin| admin.set_rings(rings));
        parts.set(CC, 4, self.cc.into(), self.step_time(parts))
    }

    pub(crate) fn write(&mut self, parts: &Parts<'_, impl Queues>, offset: u32, value: u64) {
        self.check_admin(parts);
        match offset {
            AQA => self.aqa = value as u32,
            ASQ => self.asq = value,
            ACQ => self.acq = value,
            CC => self.write_cc(parts, value as u32),
            _ => {}
        }
    }

    fn write_cc(&mut self, parts: &Parts<'_, impl Queues>, value: u32) {
        let (before, after) = (Cc(self.cc), Cc(value));
        self.cc = value;
        self.well_at = None;
        if after.en() && !before.en() {
            (self.is_to_report, self.is_lost) = (false, false);
        }
        match (self.phase, before.en(), after.en()) {
            (Phase::Closed, _, true) => {
                (self.phase, self.try_at) = (Phase::Wanted, Instant::now());
                self.connect(parts);
            }
            (Phase::Wanted, _, false) => self.phase = Phase::Closed,
            (Phase::Connected, false, true) => {
                if let Err(error) = self.enable(parts) {
                    self.lose(parts, &error.to_string());
                }
            }
            (Phase::Connected, true, false) => self.disable(parts),
            // This is a shutdown notification, for example.
            (Phase::Connected, _, _) => {
                if let Err(error) = parts.set(CC, 4, value.into(), self.step_time(parts)) {
                    self.lose(parts, &error.to_string());
                }
            }
            _ => {}
        }
    }

    /// Performs a controller reset, and ends the association.
    fn disable(&mut self, parts: &Parts<'_, impl Queues>) {
        let time = self.step_time(parts);
        let until = Instant::now() + RESET_TIME.min(self.loss.max(STEP_TIME));
        let mut result = parts.set(CC, 4, self.cc.into(), time);
        while result.is_ok() {
            match parts.get(CSTS, 4, time) {
                Ok(csts) if !Csts(csts as u32).rdy() => {
                    parts.queues.retire("the controller was reset");
                    (self.phase, self.is_kept) = (Phase::Closed, true);
                    return;
                }
                Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_micros(100)),
                Ok(_) => break,
                Err(error) => result = Err(error),
            }
        }
        let why = result.err().map_or("CSTS.RDY stays set".into(), |error| error.to_string());
        self.lose(parts, &why);
    }

    /// Gives the device up: the connections end.
    pub(crate) fn release(&mut self, parts: &Parts<'_, impl Queues>) {
        parts.queues.end_all("the device was released");
        self.phase = Phase::Released;
    }
}

/// The time after which a lost association is surely over at the target. If any command restarts
/// its timer, the timer may expire after one to two times its value.
fn expiry(kato: Duration, parts: &Parts<'_, impl Queues>) -> Duration {
    let times = if parts.identified.is_traffic_based() { 2 } else { 1 };
    kato * times + EXPIRY_MARGIN
}
