//! The controller: enabling, identifying, creating queues, resetting, giving up.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_spec::features::{NumberOfQueues, fid, sel};
use meantime_spec::identify::{ActiveNamespaceList, IdentifyController, IdentifyNamespace, cns, oncs};
use meantime_spec::log::{AsyncEvent, SmartLog, lid};
use meantime_spec::regs::{
    ACQ, AQA, ASQ, Aqa, CAP, CC, CSTS, Cap, Cc, Csts, GONE, VS, Vs, cq_head_doorbell, sq_tail_doorbell,
};
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::StatusCode;
use zerocopy::FromBytes;

use super::admin::{ADMIN_ENTRIES, AdminContext, AdminQueue, is_code};
use super::identify::{ControllerInfo, NamespaceInfo};
use super::queue::{MAX_SLOTS, QueuePair};
use super::ring::Ring;
use super::{Error, IoQueue, Result};
use crate::hw::{Clock, DeviceEvent, DmaBuf, DmaHeap, DmaMap, EventFd, Transport};

/// How long the driver waits for what.
#[derive(Debug, Clone, Copy)]
pub struct ControllerOptions {
    /// Deadline of an I/O command in ns, from the first look that found it outstanding; at most an hour.
    pub io_timeout_ns: u64,
    /// How long an aborted command may take to come back before its queue is deleted.
    pub abort_grace_ns: u64,
    /// Deadline of an admin command in ns.
    pub admin_timeout_ns: u64,
    /// I/O queue pairs to ask for.
    pub io_queues: u16,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            io_timeout_ns: 30_000_000_000,
            abort_grace_ns: 1_000_000_000,
            admin_timeout_ns: 10_000_000_000,
            io_queues: 64,
        }
    }
}

/// The longest deadline of an I/O command: an hour.
const LONGEST_TIMEOUT_NS: u64 = 3_600_000_000_000;

/// Asynchronous event requests to keep with a controller that takes so many.
const EVENT_REQUESTS: u16 = 4;

/// `epoch` of a controller that was given up.
const EPOCH_GONE: u32 = u32::MAX;

/// A controller that is enabled. Shared by the queues created on it; the last one to go shuts it down.
pub struct Controller {
    transport: Arc<dyn Transport>,
    clock: Clock,
    heap: DmaHeap,
    options: ControllerOptions,
    cap: Cap,
    info: ControllerInfo,
    namespaces: Vec<NamespaceInfo>,
    /// Namespaces that exist and cannot be used, with the reason.
    unusable: Vec<(u32, String)>,
    admin: Mutex<Admin>,
    /// Even: enabled, so many resets ago. Odd: being reset. [`EPOCH_GONE`]: given up.
    epoch: AtomicU32,
    /// Once gone: whether the device was cut off from our memory.
    memory_released: AtomicBool,
}

struct Admin {
    /// `None` once the controller was given up.
    queue: Option<AdminQueue>,
    /// Index qid − 1: in use.
    qids: Vec<bool>,
    /// By vector: the queue's event. Vector 0 is the admin queue's, which is polled.
    vectors: Vec<bool>,
}

impl Controller {
    /// Resets and enables the controller behind `transport`, and identifies it (NVMe Base 1.4 §7.6.1).
    ///
    /// # Errors
    /// Whatever a device can do wrong; the controller is left disabled then.
    pub fn enable(transport: Arc<dyn Transport>, mut options: ControllerOptions) -> Result<Arc<Self>> {
        // Deadlines are kept in 32 bits of µs.
        options.io_timeout_ns = options.io_timeout_ns.min(LONGEST_TIMEOUT_NS);
        let cap_bits = transport.read64(CAP);
        if cap_bits == u64::MAX || transport.read32(CSTS) == GONE {
            return Err(Error::Gone);
        }
        let cap = Cap(cap_bits);
        check_capabilities(cap)?;
        let heap = DmaHeap::new(Arc::clone(&transport) as Arc<dyn DmaMap>);
        let clock = transport.clock();

        disable(transport.as_ref(), &clock, cap)?;
        let ring = Ring::new(
            &heap,
            u32::from(ADMIN_ENTRIES).min(cap.max_queue_entries()) as u16,
            transport.doorbell(sq_tail_doorbell(0, cap.dstrd()))?,
            transport.doorbell(cq_head_doorbell(0, cap.dstrd()))?,
            true,
        )?;
        let mut admin = AdminQueue::new(QueuePair::new(0, ring, 0));
        let found = start(transport.as_ref(), &clock, cap, &admin)
            .and_then(|()| identify(transport.as_ref(), &clock, &heap, cap, &options, &mut admin));
        let (info, namespaces, unusable) = match found {
            Ok(found) => found,
            Err(error) => {
                // The device must not know our memory when it is freed. It has had its time to become ready.
                if clear_enable(transport.as_ref(), &clock, cap).is_err() && !heap.unmap_all() {
                    admin.quarantine();
                }
                return Err(error);
            }
        };
        admin.keep_event_requests(info.event_requests.min(EVENT_REQUESTS));
        let qids = vec![false; usize::from(info.io_queues)];
        let vectors = vec![false; usize::from(info.vectors)];
        let controller = Arc::new(Self {
            transport,
            clock,
            heap,
            options,
            cap,
            info,
            namespaces,
            unusable,
            admin: Mutex::new(Admin { queue: Some(admin), qids, vectors }),
            epoch: AtomicU32::new(0),
            memory_released: AtomicBool::new(false),
        });
        let told = Arc::downgrade(&controller);
        controller.transport.on_event(Box::new(move |event| {
            // One that is being dropped gives its device back anyhow.
            if let Some(controller) = told.upgrade() {
                controller.on_event(event);
            }
        }));
        Ok(controller)
    }

    /// Something happened to the device outside of any command.
    fn on_event(&self, event: DeviceEvent) {
        tracing::warn!(device = %self.describe(), ?event, "something happened to the device");
        match event {
            DeviceEvent::Release => self.give_up(),
            // Either it comes back from a reset, or it is gone.
            DeviceEvent::Error | DeviceEvent::Lost => self.reset_now(),
        }
    }

    /// What the controller says of itself.
    pub fn info(&self) -> &ControllerInfo {
        &self.info
    }

    /// The namespaces that can be used.
    pub fn namespaces(&self) -> &[NamespaceInfo] {
        &self.namespaces
    }

    /// The namespaces that cannot, with the reason.
    pub fn unusable_namespaces(&self) -> &[(u32, String)] {
        &self.unusable
    }

    /// The usable namespace `nsid`.
    ///
    /// # Errors
    /// [`Error::NoNamespace`], which lists those there are.
    pub fn namespace(&self, nsid: u32) -> Result<NamespaceInfo> {
        self.namespaces.iter().find(|ns| ns.nsid == nsid).copied().ok_or_else(|| {
            let mut have: Vec<String> = self.namespaces.iter().map(|ns| ns.nsid.to_string()).collect();
            have.extend(self.unusable.iter().map(|(nsid, why)| format!("{nsid} (not usable: {why})")));
            Error::NoNamespace { nsid, have: if have.is_empty() { "none".into() } else { have.join(", ") } }
        })
    }

    /// Memory that the controller can reach.
    pub fn heap(&self) -> &DmaHeap {
        &self.heap
    }

    /// The clock that this device's time is measured by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The waits in force.
    pub fn options(&self) -> &ControllerOptions {
        &self.options
    }

    /// Where the controller is.
    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// The most entries of an I/O queue.
    pub fn max_queue_entries(&self) -> u16 {
        // Slots, and the one entry that tells full from empty.
        self.cap.max_queue_entries().min(u32::from(MAX_SLOTS) + 1) as u16
    }

    /// Changes whenever the controller is reset; odd while it is.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        // Acquire: whoever sees the new epoch also sees that the device was disabled.
        self.epoch.load(Ordering::Acquire)
    }

    /// The epoch once no reset is under way.
    pub(crate) fn settled_epoch(&self) -> u32 {
        // Whoever resets holds the lock until the epoch is even again, or gone.
        let _admin = self.lock();
        self.epoch()
    }

    /// Whether the controller was given up, and if so whether it was cut off from our memory.
    pub(crate) fn gone(&self) -> Option<bool> {
        (self.epoch() == EPOCH_GONE).then(|| self.memory_released.load(Ordering::Relaxed))
    }

    /// Whether the device is gone, reports a fatal status, or is disabled (it lost power for a moment, say).
    pub(crate) fn is_fatal(&self) -> bool {
        !is_alive(self.transport.read32(CSTS))
    }

    fn lock(&self) -> MutexGuard<'_, Admin> {
        // Admin state is consistent between statements that can panic (asserts on our own bugs).
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> AdminContext<'_> {
        AdminContext {
            transport: self.transport.as_ref(),
            clock: &self.clock,
            timeout_ns: self.options.admin_timeout_ns,
        }
    }

    fn execute(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: Option<DmaBuf>,
    ) -> Result<(u32, Option<DmaBuf>)> {
        self.lock().execute(&self.context(), command, sqe, data)
    }

    /// Creates an I/O queue pair for up to `depth` commands in flight; with an interrupt vector or without. The caller assigns
    /// the first `assigned` slots itself.
    ///
    /// # Errors
    /// No queue or vector left, no memory, or the controller refused.
    pub(crate) fn create_io_queue(
        self: &Arc<Self>,
        depth: u16,
        assigned: u16,
        interrupt: bool,
    ) -> Result<IoQueue> {
        let entries = depth.saturating_add(1).clamp(2, self.max_queue_entries());
        let mut admin = self.lock();
        let qid = admin.take_qid()?;
        let vector = if interrupt { Some(admin.take_vector(qid)?) } else { None };
        drop(admin);
        match self.make_pair(qid, entries, assigned.min(entries - 1), vector) {
            Ok((pair, event)) => IoQueue::create(Arc::clone(self), pair, event, vector),
            Err(error) => {
                self.release_queue(qid, vector);
                Err(error)
            }
        }
    }

    fn make_pair(
        &self,
        qid: u16,
        entries: u16,
        assigned: u16,
        vector: Option<u16>,
    ) -> Result<(QueuePair, Option<EventFd>)> {
        let ring = Ring::new(
            &self.heap,
            entries,
            self.transport.doorbell(sq_tail_doorbell(qid, self.cap.dstrd()))?,
            self.transport.doorbell(cq_head_doorbell(qid, self.cap.dstrd()))?,
            vector.is_some(),
        )?;
        let event = match vector {
            None => None,
            Some(vector) => {
                let event = EventFd::new()?;
                self.transport.set_vector(vector, Some(&event))?;
                Some(event)
            }
        };
        Ok((QueuePair::new(qid, ring, assigned), event))
    }

    /// Makes the controller know the rings of `pair` (NVMe Base 1.4 §5.3, §5.4).
    pub(crate) fn register_queue(&self, pair: &QueuePair, vector: Option<u16>) -> Result<()> {
        let ring = pair.ring();
        let (qid, entries) = (pair.qid(), u32::from(ring.entries()));
        let cq = Sqe::create_io_cq(0, qid, entries, ring.cq_iova().0, vector);
        self.execute("Create I/O Completion Queue", cq, None)?;
        let sq = Sqe::create_io_sq(0, qid, entries, ring.sq_iova().0, qid, 0);
        if let Err(error) = self.execute("Create I/O Submission Queue", sq, None) {
            let _ = self.execute("Delete I/O Completion Queue", Sqe::delete_io_cq(0, qid), None);
            return Err(error);
        }
        Ok(())
    }

    /// Makes the controller forget the rings of queue `qid`: afterwards it touches neither them nor any buffer of theirs.
    pub(crate) fn unregister_queue(&self, qid: u16) -> Result<()> {
        // QEMU's controller calls a completion queue that it does not know invalid (1.4 §5.5 has another code for it).
        let codes = [StatusCode::InvalidQueueIdentifier, StatusCode::CompletionQueueInvalid];
        let unknown = |result: Result<_>| match result {
            Err(error) if codes.iter().any(|&code| is_code(&error, code)) => Ok(()),
            other => other.map(|_: (u32, Option<DmaBuf>)| ()),
        };
        unknown(self.execute("Delete I/O Submission Queue", Sqe::delete_io_sq(0, qid), None))?;
        unknown(self.execute("Delete I/O Completion Queue", Sqe::delete_io_cq(0, qid), None))
    }

    /// The identifier and vector may be used again.
    pub(crate) fn release_queue(&self, qid: u16, vector: Option<u16>) {
        if let Some(vector) = vector {
            let _ = self.transport.set_vector(vector, None);
        }
        self.lock().put_back(qid, vector);
    }

    /// Asks the controller to abort command `cid` of queue `qid`. `Ok` says only that it has answered.
    pub(crate) fn abort(&self, qid: u16, cid: u16) -> Result<()> {
        self.execute("Abort", Sqe::abort(0, qid, cid), None).map(|_| ())
    }

    /// Disables and enables the controller, unless somebody else has since `seen_epoch` (ARCHITECTURE.md §4, step 4).
    ///
    /// When it returns the device has given up every command and buffer of the old epoch, or is gone for good; see
    /// [`Controller::gone`].
    pub(crate) fn reset(&self, seen_epoch: u32) {
        let mut admin = self.lock();
        if self.epoch() != seen_epoch || seen_epoch == EPOCH_GONE {
            return;
        }
        tracing::warn!(device = %self.describe(), "resetting the controller");
        self.epoch.store(seen_epoch + 1, Ordering::Release);
        match self.restart(&mut admin) {
            Ok(()) => self.epoch.store(seen_epoch.wrapping_add(2) & !1 & 0x7fff_ffff, Ordering::Release),
            Err(error) => {
                tracing::error!(device = %self.describe(), %error, "the controller did not come back: given up");
                // Whatever state it is in: without EN it has no business with our memory.
                let _ = clear_enable(self.transport.as_ref(), &self.clock, self.cap);
                self.abandon(&mut admin);
            }
        }
    }

    /// Gives the device up for good, in good order: shut down, disabled, cut off from memory, and
    /// [released](Transport::release) so that others can take it. What is in flight fails with [`CommandError::Gone`], later commands
    /// too.
    ///
    /// [`CommandError::Gone`]: super::CommandError::Gone
    pub fn give_up(&self) {
        let mut admin = self.lock();
        let epoch = self.epoch();
        if epoch == EPOCH_GONE {
            return;
        }
        // Odd: from now on nobody sends anything.
        self.epoch.store(epoch | 1, Ordering::Release);
        let _ = self.shut_down();
        self.abandon(&mut admin);
    }

    /// The end of a controller that is disabled, or beyond reach.
    fn abandon(&self, admin: &mut Admin) {
        let released = self.heap.unmap_all();
        self.memory_released.store(released, Ordering::Relaxed);
        if let Some(queue) = admin.queue.take()
            && !released
        {
            queue.quarantine();
        }
        self.transport.release();
        // Release: `memory_released` before it.
        self.epoch.store(EPOCH_GONE, Ordering::Release);
    }

    /// A normal shutdown (NVMe Base 1.4 §7.6.2), so that the device saves what it caches; then disables it, so that it forgets our
    /// memory.
    fn shut_down(&self) -> Result<()> {
        let transport = self.transport.as_ref();
        let cc = Cc(transport.read32(CC));
        if cc.0 == GONE {
            return Err(Error::Gone);
        }
        transport.write32(CC, cc.with_shn(1).0);
        let _ = wait_for(transport, &self.clock, "complete a shutdown", 5_000, |csts| csts.shst() == 2);
        disable(transport, &self.clock, self.cap)
    }

    /// Disables and enables the controller now. Every command in flight fails with [`CommandError::Reset`]; queues recover
    /// by themselves.
    ///
    /// [`CommandError::Reset`]: super::CommandError::Reset
    pub fn reset_now(&self) {
        self.reset(self.settled_epoch());
    }

    fn restart(&self, admin: &mut Admin) -> Result<()> {
        let transport = self.transport.as_ref();
        disable(transport, &self.clock, self.cap)?;
        let queue = admin.queue.as_mut().ok_or(Error::Gone)?;
        queue.reset();
        start(transport, &self.clock, self.cap, queue)?;
        let context = self.context();
        set_queue_count(&context, queue, self.info.io_queues)?;
        queue.keep_event_requests(self.info.event_requests.min(EVENT_REQUESTS));
        Ok(())
    }

    /// Reads feature `fid` (NVMe Base 1.4 §5.21).
    ///
    /// # Errors
    /// What the controller answers, e.g. *Invalid Field in Command* for a feature it does not have.
    pub fn get_feature(&self, fid: u8, nsid: u32) -> Result<u32> {
        Ok(self.execute("Get Features", Sqe::get_features(0, nsid, fid, sel::CURRENT, 0), None)?.0)
    }

    /// Writes feature `fid`, not saved over a reset.
    ///
    /// # Errors
    /// What the controller answers.
    pub fn set_feature(&self, fid: u8, nsid: u32, value: u32) -> Result<u32> {
        Ok(self.execute("Set Features", Sqe::set_features(0, nsid, fid, false, value), None)?.0)
    }

    /// Reads the first `bytes` of log page `lid`, a page of memory at a time.
    ///
    /// # Errors
    /// What the controller answers; no memory; [`Error::Unsupported`] unless `bytes` is a positive multiple of 4.
    pub fn get_log_page(&self, lid: u8, nsid: u32, bytes: u32) -> Result<Vec<u8>> {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes of a log page (a positive multiple of 4 is possible)"
            )));
        }
        let mut log = Vec::new();
        while log.len() < bytes as usize {
            let (offset, len) = (log.len() as u64, (bytes as usize - log.len()).min(4096));
            let data = self.heap.alloc(len)?;
            // Events stay asserted (RAE) until the last part was read.
            let more = log.len() + len < bytes as usize;
            let sqe = Sqe::get_log_page(0, nsid, lid, 0, more, len as u32 / 4, offset, data.iova().0, 0);
            let (_, data) = self.execute("Get Log Page", sqe, Some(data))?;
            log.extend_from_slice(&data.ok_or(Error::Gone)?);
        }
        Ok(log)
    }

    /// The SMART / health log (NVMe Base 1.4 §5.14.1.2).
    ///
    /// # Errors
    /// What the controller answers.
    pub fn smart(&self) -> Result<SmartLog> {
        let bytes = self.get_log_page(lid::SMART, NSID_BROADCAST, size_of::<SmartLog>() as u32)?;
        SmartLog::read_from_bytes(&bytes)
            .map_err(|_| Error::Invalid { structure: "SMART log", what: format!("{} bytes", bytes.len()) })
    }

    /// Whether the controller has an optional I/O command, one of [`oncs`].
    pub fn supports(&self, command: u16) -> bool {
        self.info.oncs & command != 0
    }

    /// Whether write zeroes may be used.
    pub fn has_write_zeroes(&self) -> bool {
        self.supports(oncs::WRITE_ZEROES)
    }

    /// Whether blocks can be deallocated.
    pub fn has_deallocate(&self) -> bool {
        self.supports(oncs::DATASET_MANAGEMENT)
    }

    /// The asynchronous events that have come since the last call. One that does not decode is given as its raw CDW0.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn take_events(&self) -> Result<Vec<std::result::Result<AsyncEvent, u32>>> {
        let mut admin = self.lock();
        let queue = admin.queue.as_mut().ok_or(Error::Gone)?;
        queue.reap();
        let mut events = Vec::new();
        while let Some(dw0) = queue.take_event() {
            let event = AsyncEvent::try_from(dw0).map_err(|_| dw0);
            if let Ok(event) = event {
                // Reading the log page re-arms the event (1.4 §5.2).
                let data = self.heap.alloc(512)?;
                let sqe =
                    Sqe::get_log_page(0, NSID_BROADCAST, event.log_page, 0, false, 128, 0, data.iova().0, 0);
                let _ = queue.execute(&self.context(), "Get Log Page", sqe, Some(data));
            }
            events.push(event);
        }
        queue.keep_event_requests(self.info.event_requests.min(EVENT_REQUESTS));
        Ok(events)
    }

    /// Entries of the admin queue that were refused.
    pub fn admin_strays(&self) -> u64 {
        self.lock().queue.as_ref().map_or(0, |queue| queue.queue().counters().strays)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.gone().is_some() {
            return;
        }
        // Disabled before the heap frees the memory.
        if self.shut_down().is_err()
            && !self.heap.unmap_all()
            && let Some(queue) = self.lock().queue.take()
        {
            queue.quarantine();
        }
        // Buffers may outlive us, and with them the transport: the device need not wait for them.
        self.transport.release();
    }
}

impl Admin {
    fn execute(
        &mut self,
        context: &AdminContext<'_>,
        command: &'static str,
        sqe: Sqe,
        data: Option<DmaBuf>,
    ) -> Result<(u32, Option<DmaBuf>)> {
        self.queue.as_mut().ok_or(Error::Gone)?.execute(context, command, sqe, data)
    }

    fn take_qid(&mut self) -> Result<u16> {
        let limit = self.qids.len() as u16;
        let index = self.qids.iter().position(|&used| !used).ok_or(Error::NoQueue { limit })?;
        self.qids[index] = true;
        Ok(index as u16 + 1)
    }

    /// A vector for queue `qid`, whose identifier is given back if there is none.
    fn take_vector(&mut self, qid: u16) -> Result<u16> {
        let Some(vector) = (1..self.vectors.len()).find(|&vector| !self.vectors[vector]) else {
            self.put_back(qid, None);
            return Err(Error::NoVector { vectors: self.vectors.len() as u16 });
        };
        self.vectors[vector] = true;
        Ok(vector as u16)
    }

    fn put_back(&mut self, qid: u16, vector: Option<u16>) {
        self.qids[usize::from(qid) - 1] = false;
        if let Some(vector) = vector {
            self.vectors[usize::from(vector)] = false;
        }
    }
}

/// Whether CSTS is that of a controller that takes commands.
pub(crate) fn is_alive(csts: u32) -> bool {
    csts != GONE && Csts(csts).rdy() && !Csts(csts).cfs()
}

/// What of CAP the driver cannot do without (NVMe Base 1.4 §3.1.1).
fn check_capabilities(cap: Cap) -> Result<()> {
    let unsupported = |what: String| Err(Error::Unsupported(what));
    if cap.css() & 1 == 0 {
        return unsupported(format!("it does not have the NVM command set (CAP.CSS {:#x})", cap.css()));
    }
    if cap.mpsmin() != 0 {
        return unsupported(format!("its smallest page is {} bytes; 4096 is needed", cap.min_page_size()));
    }
    if cap.max_queue_entries() < 2 {
        return unsupported(format!("its queues have {} entries", cap.max_queue_entries()));
    }
    Ok(())
}

/// Waits for CSTS to satisfy `done`, at most `timeout_ms`.
fn wait_for(
    transport: &dyn Transport,
    clock: &Clock,
    what: &'static str,
    timeout_ms: u64,
    done: impl Fn(Csts) -> bool,
) -> Result<()> {
    let start_ns = clock.now_ns();
    loop {
        let csts = transport.read32(CSTS);
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

/// CAP.TO, never less than one of its units: some controllers say 0.
fn ready_timeout_ms(cap: Cap) -> u64 {
    u64::from(cap.timeout_ms()).max(500)
}

/// Clears CC.EN and waits until the controller has forgotten every queue (NVMe Base 1.4 §3.1.5).
fn disable(transport: &dyn Transport, clock: &Clock, cap: Cap) -> Result<()> {
    let timeout_ms = ready_timeout_ms(cap);
    let cc = Cc(transport.read32(CC));
    if cc.0 == GONE {
        return Err(Error::Gone);
    }
    if cc.en() {
        // EN must not be cleared before RDY has followed it, unless the controller has failed; or does not come up in
        // its own time, which is to be ended somehow.
        let ready = |csts: Csts| csts.rdy() || csts.cfs();
        match wait_for(transport, clock, "become ready", timeout_ms, ready) {
            Ok(()) | Err(Error::NotReady { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    clear_enable(transport, clock, cap)
}

/// As [`disable`], without waiting for a controller that is on its way up.
fn clear_enable(transport: &dyn Transport, clock: &Clock, cap: Cap) -> Result<()> {
    let cc = Cc(transport.read32(CC));
    if cc.0 == GONE {
        return Err(Error::Gone);
    }
    if cc.en() {
        transport.write32(CC, cc.with_en(false).with_shn(0).0);
    }
    let timeout_ms = ready_timeout_ms(cap);
    wait_for(transport, clock, "become disabled (CSTS.RDY = 0)", timeout_ms, |csts| !csts.rdy())
}

/// Programs the admin queue and sets CC.EN (NVMe Base 1.4 §7.6.1, steps 3 to 5).
fn start(transport: &dyn Transport, clock: &Clock, cap: Cap, admin: &AdminQueue) -> Result<()> {
    let ring = admin.queue().ring();
    let entries = u32::from(ring.entries());
    transport.write32(AQA, Aqa::new(entries, entries).0);
    transport.write64(ASQ, ring.sq_iova().0);
    transport.write64(ACQ, ring.cq_iova().0);
    // 64-byte SQEs and 16-byte CQEs, 4 KiB pages, round robin, NVM command set.
    transport.write32(CC, Cc(0).with_iosqes(6).with_iocqes(4).with_en(true).0);
    let ready = |csts: Csts| csts.rdy() || csts.cfs();
    wait_for(transport, clock, "become ready (CSTS.RDY = 1)", ready_timeout_ms(cap), ready)?;
    let csts = transport.read32(CSTS);
    if Csts(csts).cfs() {
        return Err(Error::Fatal { csts, what: "being enabled" });
    }
    Ok(())
}

/// Asks for `wanted` I/O queue pairs; how many were granted.
fn set_queue_count(context: &AdminContext<'_>, admin: &mut AdminQueue, wanted: u16) -> Result<u16> {
    let value = NumberOfQueues::new(wanted, wanted);
    let sqe = Sqe::set_features(0, 0, fid::NUMBER_OF_QUEUES, false, value.0);
    let (dw0, _) = admin.execute(context, "Set Features (Number of Queues)", sqe, None)?;
    let granted = NumberOfQueues(dw0);
    Ok(granted.sq().min(granted.cq()).min(u32::from(wanted)) as u16)
}

type Identified = (ControllerInfo, Vec<NamespaceInfo>, Vec<(u32, String)>);

fn identify(
    transport: &dyn Transport,
    clock: &Clock,
    heap: &DmaHeap,
    cap: Cap,
    options: &ControllerOptions,
    admin: &mut AdminQueue,
) -> Result<Identified> {
    let context = AdminContext { transport, clock, timeout_ns: options.admin_timeout_ns };
    let page = |nsid: u32, cns: u8, what: &'static str, admin: &mut AdminQueue| -> Result<Vec<u8>> {
        let data = heap.alloc(4096)?;
        let sqe = Sqe::identify(0, nsid, cns, 0, data.iova().0, 0);
        let (_, data) = admin.execute(&context, what, sqe, Some(data))?;
        Ok(data.map(|data| data.to_vec()).unwrap_or_default())
    };
    let short = |structure: &'static str| Error::Invalid { structure, what: "too short".into() };

    let bytes = page(0, cns::CONTROLLER, "Identify (controller)", admin)?;
    let raw = IdentifyController::read_from_bytes(&bytes).map_err(|_| short("Identify Controller data"))?;
    let mut info = ControllerInfo::validate(&raw, cap, Vs(transport.read32(VS)))?;
    info.vectors = transport.vectors();
    info.io_queues = set_queue_count(&context, admin, options.io_queues.max(1))?;

    // Controllers before 1.1 have no active list; every identifier is tried then (1.4 §5.15.2.2).
    let ids: Vec<u32> = match page(0, cns::ACTIVE_NAMESPACE_LIST, "Identify (active namespaces)", admin) {
        Ok(bytes) => {
            let list =
                ActiveNamespaceList::read_from_bytes(&bytes).map_err(|_| short("active namespace list"))?;
            list.iter().collect()
        }
        Err(error) if is_code(&error, StatusCode::InvalidFieldInCommand) => {
            (1..=info.namespace_count.min(1024)).collect()
        }
        Err(error) => return Err(error),
    };
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for nsid in ids {
        let bytes = match page(nsid, cns::NAMESPACE, "Identify (namespace)", admin) {
            Ok(bytes) => bytes,
            Err(error @ Error::Admin { .. }) => {
                unusable.push((nsid, error.to_string()));
                continue;
            }
            Err(error) => return Err(error),
        };
        let raw = IdentifyNamespace::read_from_bytes(&bytes).map_err(|_| short("Identify Namespace data"))?;
        if raw.nsze.get() == 0 {
            continue; // Inactive: all zeroes (1.4 §5.15.2.1).
        }
        match NamespaceInfo::validate(nsid, &raw, info.max_transfer_bytes) {
            Ok(ns) => usable.push(ns),
            Err(error) => unusable.push((nsid, error.to_string())),
        }
    }
    Ok((info, usable, unusable))
}
