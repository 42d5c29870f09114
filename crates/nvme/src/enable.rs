//! Enabling and disabling a controller, and identifying it (NVMe Base 1.4 §7.6).

use meantime_nvme_spec::features::{NumberOfQueues, fid};
use meantime_nvme_spec::identify::cns;
use meantime_nvme_spec::regs::{Aqa, Cap, Cc, Csts, GONE, VS, Vs};
use meantime_nvme_spec::sqe::Sqe;

use super::admin::{AdminContext, AdminQueue};
use super::error::{Error, Result};
use super::identified::{CONTROLLER, Identified, controller_data};
use super::identify::ControllerInfo;
use super::prp;
use super::registers::Registers;
use meantime_hw::{Clock, DmaHeap};

/// Checks the driver's requirements on CAP (NVMe Base 1.4 §3.1.1).
pub(super) fn check_capabilities(cap: Cap) -> Result<()> {
    let unsupported = |what: String| Err(Error::Unsupported(what));
    if cap.css() & 1 == 0 {
        return unsupported(format!(
            "it does not have the NVM command set (CAP.CSS {:#x})",
            cap.css()
        ));
    }
    if cap.mpsmin() != 0 {
        return unsupported(format!(
            "its smallest page is {} bytes; 4096 is needed",
            cap.min_page_size()
        ));
    }
    if cap.max_queue_entries() < 2 {
        return unsupported(format!("its queues have {} entries", cap.max_queue_entries()));
    }
    Ok(())
}

/// Waits for CSTS to satisfy `done`, at most `timeout_ms`.
pub(super) fn wait_for(
    registers: &Registers,
    clock: &Clock,
    what: &'static str,
    timeout_ms: u64,
    done: impl Fn(Csts) -> bool,
) -> Result<()> {
    let start_ns = clock.now_ns();
    loop {
        let csts = registers.csts();
        if csts == GONE {
            return Err(Error::Gone);
        }
        if done(Csts(csts)) {
            return Ok(());
        }
        if clock.now_ns().saturating_sub(start_ns) >= timeout_ms * 1_000_000 {
            return Err(Error::NotReady { what, timeout_ms, csts });
        }
        clock.sleep_ns(100_000);
    }
}

/// CAP.TO in ms, but at least one of its units: some controllers report 0.
pub(super) fn ready_timeout_ms(cap: Cap) -> u64 {
    u64::from(cap.timeout_ms()).max(500)
}

/// Clears CC.EN and waits until the controller has forgotten every queue (NVMe Base 1.4 §3.1.5).
pub(super) fn disable(registers: &Registers, clock: &Clock, cap: Cap) -> Result<()> {
    let timeout_ms = ready_timeout_ms(cap);
    let cc = Cc(registers.cc());
    if cc.0 == GONE {
        return Err(Error::Gone);
    }
    if cc.en() {
        // EN must not be cleared before RDY has followed it, unless the controller has failed, was
        // shut down (Linux's NVMe/TCP target then clears RDY), or exceeded its own time to become
        // ready.
        let ready = |csts: Csts| csts.rdy() || csts.cfs() || csts.shst() == 2;
        match wait_for(registers, clock, "become ready", timeout_ms, ready) {
            Ok(()) | Err(Error::NotReady { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    clear_enable(registers, clock, cap)
}

/// Clears CC.EN, also while the controller is still becoming ready, and waits until it has
/// forgotten every queue.
pub(super) fn clear_enable(registers: &Registers, clock: &Clock, cap: Cap) -> Result<()> {
    let cc = Cc(registers.cc());
    if cc.0 == GONE {
        return Err(Error::Gone);
    }
    if cc.en() {
        registers.clear_enable();
    }
    let timeout_ms = ready_timeout_ms(cap);
    wait_for(registers, clock, "become disabled (CSTS.RDY = 0)", timeout_ms, |csts| !csts.rdy())
}

/// The sizes of the admin queues.
pub(super) fn admin_attributes(admin: &AdminQueue) -> Aqa {
    let entries = u32::from(admin.queue().ring().entries());
    Aqa::new(entries, entries)
}

/// Programs the admin queue and sets CC.EN (NVMe Base 1.4 §7.6.1, steps 3 to 5).
pub(super) fn start(
    registers: &Registers,
    clock: &Clock,
    cap: Cap,
    arbitration: u8,
    admin: &AdminQueue,
) -> Result<()> {
    // 64-byte SQEs and 16-byte CQEs, 4 KiB pages, NVM command set.
    let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_ams(arbitration);
    registers.enable(admin.queue().ring(), admin_attributes(admin), cc);
    let ready = |csts: Csts| csts.rdy() || csts.cfs();
    wait_for(registers, clock, "become ready (CSTS.RDY = 1)", ready_timeout_ms(cap), ready)?;
    let csts = registers.csts();
    if Csts(csts).cfs() {
        return Err(Error::Fatal { csts, what: "being enabled" });
    }
    Ok(())
}

/// Requests `wanted` I/O queue pairs. Returns the number granted.
pub(super) fn set_queue_count(
    context: &AdminContext<'_>,
    admin: &mut AdminQueue,
    wanted: u16,
) -> Result<u16> {
    let value = NumberOfQueues::new(wanted, wanted);
    let sqe = Sqe::set_features(0, 0, fid::NUMBER_OF_QUEUES, false, value.0);
    let (dw0, _) = admin.execute(context, "Set Features (Number of Queues)", sqe, None)?;
    let granted = NumberOfQueues(dw0);
    Ok(granted.sq().min(granted.cq()).min(u32::from(wanted)) as u16)
}

/// Reads what the controller says of itself and its namespaces. Requests `io_queues` I/O queue
/// pairs.
pub(super) fn identify(
    context: &AdminContext<'_>,
    heap: &DmaHeap,
    cap: Cap,
    io_queues: u16,
    admin: &mut AdminQueue,
) -> Result<Identified> {
    let transport = context.registers.transport();
    let page = |admin: &mut AdminQueue, command, nsid, cns| -> Result<Vec<u8>> {
        let data = heap.alloc(4096)?;
        let sqe = Sqe::identify(0, nsid, cns, 0, data.iova().0, 0);
        let (_, data) = admin.execute(context, command, sqe, Some(data))?;
        Ok(data.map(|data| data.to_vec()).unwrap_or_default())
    };
    let raw = controller_data(&page(admin, CONTROLLER, 0, cns::CONTROLLER)?)?;
    let version = Vs(transport.read32(VS));
    let mut info = ControllerInfo::validate(&raw, Some(cap), version, prp::MAX_BYTES as u64)?;
    info.vectors = transport.vectors();
    info.io_queues = set_queue_count(context, admin, io_queues.max(1))?;
    Identified::of(info, &mut |command, nsid, cns| page(admin, command, nsid, cns))
}
