//! The controller: enabling, identifying, creating queues, resetting, giving up.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use meantime_nvme_spec::features::Arbitration;
use meantime_nvme_spec::identify::{oacs, oncs};
use meantime_nvme_spec::regs::{CAP, CAP_AMS_WEIGHTED_ROUND_ROBIN, Cap, Cc, GONE, ams};
use meantime_nvme_spec::sgl::sgls;
use meantime_nvme_spec::soft_port::Heartbeat;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;

use super::admin::{ADMIN_ENTRIES, AdminContext, AdminQueue, is_code};
use super::arbitration::QueueClass;
use super::enable::{
    admin_attributes, check_capabilities, clear_enable, disable, identify, ready_timeout_ms,
    set_queue_count, start, wait_for,
};
use super::error::{Error, Result};
use super::features::{Features, Sender};
use super::identified::Identified;
use super::identify::{ControllerInfo, NamespaceInfo};
use super::queue::{MAX_SLOTS, QueuePair};
use super::registers::{Registers, is_alive};
use super::ring::Ring;
use super::shadow::Shadows;
use meantime_hw::{
    Clock, DeviceEvent, DmaBuf, DmaHeap, DmaMap, Doorbell, EventFd, Progress, Transport,
};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// The driver's timeouts, retries and optional features.
#[derive(Debug, Clone, Copy)]
pub struct ControllerOptions {
    /// Deadline of an I/O command in ns, from the first look that found it outstanding; at most an
    /// hour.
    pub io_timeout_ns: u64,
    /// Time for an aborted command to complete before its queue is deleted, in ns.
    pub abort_grace_ns: u64,
    /// Deadline of an admin command in ns.
    pub admin_timeout_ns: u64,
    /// Number of I/O queue pairs to request.
    pub io_queues: u16,
    /// The most times that an I/O command is repeated if the device permits it, or if it was lost
    /// with its queue; see [`retry`](super::retry). 0 disables repetition.
    pub retries: u8,
    /// Whether to enable weighted round robin arbitration if the controller supports it, so that
    /// queues have classes.
    pub weighted_round_robin: bool,
    /// The weights and the burst; `None` selects 16 to 4 to 1, and two commands at a time.
    pub arbitration: Option<Arbitration>,
    /// Whether to keep the device in power state 0 while it is open if it would leave that state by
    /// itself (APST). The former setting is restored at the end.
    pub low_latency: bool,
    /// Whether data on more than two pages uses an SGL descriptor instead of a PRP list, if the
    /// controller supports SGLs.
    pub sgl: bool,
    /// Whether doorbells are shadowed by memory, if the controller supports it. `None` shadows them
    /// if the transport's doorbells are slow.
    pub shadow_doorbells: Option<bool>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            io_timeout_ns: 30_000_000_000,
            abort_grace_ns: 1_000_000_000,
            admin_timeout_ns: 10_000_000_000,
            io_queues: 64,
            retries: 4,
            weighted_round_robin: true,
            arbitration: None,
            low_latency: true,
            sgl: false,
            shadow_doorbells: None,
        }
    }
}

/// The longest deadline of an I/O command: an hour.
const LONGEST_TIMEOUT_NS: u64 = 3_600_000_000_000;

/// The epoch of a controller that is permanently gone.
const EPOCH_GONE: u32 = u32::MAX;

/// An enabled controller. The queues created on it share it; the last one dropped shuts it down.
pub struct Controller {
    clock: Clock,
    heap: DmaHeap,
    /// Its shadow doorbells, if enabled.
    shadows: Option<Shadows>,
    options: ControllerOptions,
    cap: Cap,
    pub(super) identified: Identified,
    admin: Mutex<Admin>,
    /// Reset epoch: even while enabled, odd while being reset, [`EPOCH_GONE`] once permanently
    /// gone. Each reset adds 2.
    epoch: AtomicU32,
    /// Valid once the controller is gone: whether the device was cut off from our memory.
    memory_released: AtomicBool,
    /// Held while the device is released. Taken after `admin`, if both are.
    releasing: Mutex<()>,
    /// Number of resets because CSTS.CFS was set, or RDY was not.
    fatal_resets: AtomicU32,
    /// Number of times that a controller with a volatile cache was found disabled although this
    /// driver had not disabled it.
    cache_losses: AtomicU32,
    /// The number of losses that a failed flush, on any channel, has already reported.
    losses_reported: AtomicU32,
    /// Dropped last: the next driver may claim the device only when all uses of it here have ended.
    registers: Registers,
}

struct Admin {
    /// `None` once the controller was given up.
    queue: Option<AdminQueue>,
    /// Whether each queue identifier is in use; the index is qid − 1.
    qids: Vec<bool>,
    /// Whether each vector is in use. Vector 0 is the admin queue's, which is polled.
    vectors: Vec<bool>,
    features: Features,
}

impl Controller {
    /// Resets and enables the controller behind `transport`, and identifies it (NVMe Base 1.4
    /// §7.6.1).
    ///
    /// # Errors
    /// Returns [`Error::Driven`] while another controller is enabled on the transport. Returns any
    /// fault of the device, after which the controller is left disabled.
    pub fn enable(
        transport: Arc<dyn Transport>,
        mut options: ControllerOptions,
    ) -> Result<Arc<Self>> {
        // Deadlines are stored in 32 bits of µs.
        options.io_timeout_ns = options.io_timeout_ns.min(LONGEST_TIMEOUT_NS);
        let registers = Registers::claim(Arc::clone(&transport))?;
        let cap_bits = transport.read64(CAP);
        if cap_bits == u64::MAX || registers.csts() == GONE {
            return Err(registers.explain(Error::Gone));
        }
        let cap = Cap(cap_bits);
        check_capabilities(cap)?;
        let heap = DmaHeap::new(transport as Arc<dyn DmaMap>);
        let clock = registers.transport().clock();

        disable(&registers, &clock, cap).map_err(|error| registers.explain(error))?;
        let entries = u32::from(ADMIN_ENTRIES).min(cap.max_queue_entries()) as u16;
        let (tail, head) = registers.doorbells(0, cap)?;
        let ring = Ring::new(&heap, entries, tail, head, true)?;
        let progress = registers.transport().progress(0);
        let mut admin = AdminQueue::new(QueuePair::new(0, ring, 0), progress);
        let arbitration = arbitration(cap, &options);
        let mut features = Features::default();
        let mut shadows = None::<Shadows>;
        let context = AdminContext {
            registers: &registers,
            clock: &clock,
            timeout_ns: options.admin_timeout_ns,
        };
        let found = start(&registers, &clock, cap, arbitration, &admin)
            .and_then(|()| identify(&context, &heap, cap, options.io_queues, &mut admin))
            .and_then(|found| {
                let mut sender = Sender { context, queue: &mut admin, heap: &heap };
                apply(&mut features, &mut sender, cap, &options, &found.info)?;
                if options.sgl && !has_sgls(&found.info) {
                    tracing::warn!("the controller has no SGLs: PRPs are used");
                }
                if wants_shadows(&found.info, registers.transport(), &options) {
                    shadows.insert(Shadows::new(&heap, cap.dstrd())?).configure(&mut sender)?;
                }
                Ok(found)
            });
        let identified = match found {
            Ok(found) => found,
            Err(error) => {
                let error = registers.explain(error);
                // The device must not access the heap's memory after it is freed. Its time to
                // become ready is over.
                if clear_enable(&registers, &clock, cap).is_err() && !registers.unmap_all(&heap) {
                    shadows.iter().for_each(Shadows::quarantine);
                    admin.quarantine();
                }
                return Err(error);
            }
        };
        let qids = vec![false; usize::from(identified.info.io_queues)];
        let vectors = vec![false; usize::from(identified.info.vectors)];
        let controller = Arc::new(Self {
            registers,
            clock,
            heap,
            shadows,
            options,
            cap,
            identified,
            admin: Mutex::new(Rank::Admin, Admin { queue: Some(admin), qids, vectors, features }),
            epoch: AtomicU32::new(0),
            memory_released: AtomicBool::new(false),
            releasing: Mutex::new(Rank::Releasing, ()),
            cache_losses: AtomicU32::new(0),
            losses_reported: AtomicU32::new(0),
            fatal_resets: AtomicU32::new(0),
        });
        let listener = Arc::downgrade(&controller);
        controller.registers.transport().on_event(Box::new(move |event| {
            // A controller that is being dropped releases its device anyway.
            if let Some(controller) = listener.upgrade() {
                controller.on_event(event);
            }
        }));
        Ok(controller)
    }

    /// Handles an event of the device that concerns no single command.
    fn on_event(&self, event: DeviceEvent) {
        tracing::warn!(device = %self.describe(), ?event, "something happened to the device");
        match event {
            DeviceEvent::Release => self.give_up(),
            // The device comes back from a reset, or it is gone.
            DeviceEvent::Error | DeviceEvent::Lost => self.reset_now(),
        }
    }

    /// The controller's own description.
    pub fn info(&self) -> &ControllerInfo {
        &self.identified.info
    }

    /// The usable namespaces.
    pub fn namespaces(&self) -> &[NamespaceInfo] {
        &self.identified.namespaces
    }

    /// The unusable namespaces, with the reason.
    pub fn unusable_namespaces(&self) -> &[(u32, String)] {
        &self.identified.unusable
    }

    /// The usable namespace `nsid`.
    ///
    /// # Errors
    /// Returns [`Error::NoNamespace`], which lists the existing ones.
    pub fn namespace(&self, nsid: u32) -> Result<NamespaceInfo> {
        let Identified { namespaces, unusable, .. } = &self.identified;
        namespaces.iter().find(|ns| ns.nsid == nsid).copied().ok_or_else(|| {
            let mut have: Vec<String> = namespaces.iter().map(|ns| ns.nsid.to_string()).collect();
            have.extend(unusable.iter().map(|(nsid, why)| format!("{nsid} (not usable: {why})")));
            Error::NoNamespace {
                nsid,
                have: if have.is_empty() { "none".into() } else { have.join(", ") },
            }
        })
    }

    /// The heap of memory that the controller can reach.
    pub fn heap(&self) -> &DmaHeap {
        &self.heap
    }

    /// The state of the device's thread, as [`Transport::heartbeat`] reports it.
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        self.registers.transport().heartbeat()
    }

    /// Asks the device's thread to yield its CPU for a while; see [`Transport::share_cpu`].
    pub fn share_cpu(&self) {
        self.registers.transport().share_cpu();
    }

    /// What moves the entries of queue `qid`, as [`Transport::progress`] reports it.
    pub(crate) fn progress_of(&self, qid: u16) -> Option<Arc<dyn Progress>> {
        self.registers.transport().progress(qid)
    }

    /// The clock of this device's times.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The options in force.
    pub fn options(&self) -> &ControllerOptions {
        &self.options
    }

    /// A description of the controller's address.
    pub fn describe(&self) -> String {
        self.registers.transport().describe()
    }

    /// Whether long transfers are described by SGLs.
    pub fn uses_sgls(&self) -> bool {
        self.options.sgl && has_sgls(self.info())
    }

    /// Whether the doorbells of I/O queues are shadowed by memory.
    pub fn has_shadow_doorbells(&self) -> bool {
        self.shadows.is_some()
    }

    /// The shadow doorbells of queue `qid`, if enabled, both set to 0. The controller must not know
    /// the queue at present.
    pub(crate) fn shadow_doorbells(&self, qid: u16) -> Result<Option<(Doorbell, Doorbell)>> {
        let Some(shadows) = &self.shadows else { return Ok(None) };
        let (tail, head) = self.registers.doorbells(qid, self.cap)?;
        Ok(Some(shadows.shade(qid, tail, head)))
    }

    /// Whether the controller uses queue classes: weighted round robin arbitration is supported and
    /// enabled.
    pub fn has_queue_classes(&self) -> bool {
        arbitration(self.cap, &self.options) == ams::WEIGHTED_ROUND_ROBIN
    }

    /// The most entries of an I/O queue.
    pub fn max_queue_entries(&self) -> u16 {
        // Slots, and the one entry that tells full from empty.
        self.cap.max_queue_entries().min(u32::from(MAX_SLOTS) + 1) as u16
    }

    /// The current epoch, which changes with each reset; odd during one.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        // Acquire: a thread that sees the new epoch also sees that the device was disabled.
        self.epoch.load(Ordering::Acquire)
    }

    /// The epoch when no reset is in progress.
    pub(crate) fn stable_epoch(&self) -> u32 {
        // The resetting thread holds the lock until the epoch is even again, or gone.
        let _admin = self.lock();
        self.epoch()
    }

    /// Whether the device was cut off from this process's memory, once the controller is gone;
    /// `None` while the controller works.
    pub fn gone(&self) -> Option<bool> {
        (self.epoch() == EPOCH_GONE).then(|| self.memory_released.load(Ordering::Relaxed))
    }

    /// What is wrong between this process and the controller, as [`Transport::trouble`] reports it.
    pub fn trouble(&self) -> Option<String> {
        self.registers.transport().trouble()
    }

    /// Restates `error` in the words of the transport.
    pub(crate) fn explain(&self, error: Error) -> Error {
        self.registers.explain(error)
    }

    /// How often completed but unflushed writes may have been lost. A channel that last read
    /// another number fails its next flush.
    ///
    /// This concerns every channel, including those that wrote nothing: a flush covers the whole
    /// namespace, and may be sent on behalf of other channels.
    pub fn cache_losses(&self) -> u32 {
        self.cache_losses.load(Ordering::Acquire)
    }

    /// The value of [`Controller::cache_losses`] from which a new channel starts: a loss that no
    /// flush has reported yet concerns it as well.
    pub fn cache_losses_reported(&self) -> u32 {
        self.losses_reported.load(Ordering::Acquire)
    }

    /// Records that a failed flush has reported the first `losses` losses.
    pub fn report_losses(&self, losses: u32) {
        // Losses detected since then stay unreported.
        self.losses_reported.fetch_max(losses, Ordering::AcqRel);
    }

    /// Whether the device is gone, reports a fatal status, or is disabled (for example after a
    /// short power loss).
    pub(crate) fn is_fatal(&self) -> bool {
        !is_alive(self.registers.csts())
    }

    fn lock(&self) -> MutexGuard<'_, Admin> {
        // Only asserts on our own bugs can panic here, and the admin state is consistent at each.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> AdminContext<'_> {
        AdminContext {
            registers: &self.registers,
            clock: &self.clock,
            timeout_ns: self.options.admin_timeout_ns,
        }
    }

    pub(super) fn execute(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: Option<DmaBuf>,
    ) -> Result<(u32, Option<DmaBuf>)> {
        let executed = self.lock().execute(&self.context(), command, sqe, data);
        executed.map_err(|error| self.explain(error))
    }

    /// Makes a queue pair for up to `depth` commands in flight, with its interrupt's event and its
    /// vector. The caller assigns the first `assigned` slots itself. The controller does not know
    /// the queues yet.
    ///
    /// # Errors
    /// Fails if no queue or vector is left, or if there is no memory.
    pub(crate) fn take_pair(
        &self,
        depth: u16,
        assigned: u16,
        interrupt: bool,
    ) -> Result<(QueuePair, Option<EventFd>, Option<u16>)> {
        let entries = depth.saturating_add(1).clamp(2, self.max_queue_entries());
        let mut admin = self.lock();
        let qid = admin.take_qid()?;
        let vector = if interrupt { Some(admin.take_vector(qid)?) } else { None };
        drop(admin);
        match self.make_pair(qid, entries, assigned.min(entries - 1), vector) {
            Ok((pair, event)) => Ok((pair, event, vector)),
            Err(error) => {
                self.release_queue(qid, vector);
                Err(error)
            }
        }
    }

    /// How often the controller was reset because it had failed (CSTS.CFS) or was disabled.
    pub fn fatal_resets(&self) -> u32 {
        self.fatal_resets.load(Ordering::Relaxed)
    }

    /// Whether more than half of the queue pairs and of the interrupt vectors are free. In that
    /// case a caller may take one that it could do without.
    pub fn has_queues_to_spare(&self) -> bool {
        let half_free = |used: &[bool]| 2 * used.iter().filter(|used| !**used).count() > used.len();
        let admin = self.lock();
        // The first vector is the admin queue's.
        half_free(&admin.qids) && admin.vectors.get(1..).is_some_and(half_free)
    }

    fn make_pair(
        &self,
        qid: u16,
        entries: u16,
        assigned: u16,
        vector: Option<u16>,
    ) -> Result<(QueuePair, Option<EventFd>)> {
        let (tail, head) = self.registers.doorbells(qid, self.cap)?;
        let ring = Ring::new(&self.heap, entries, tail, head, vector.is_some())?
            .handing_over(self.registers.transport().is_read_by_core());
        let event = match vector {
            None => None,
            Some(vector) => {
                let event = self.registers.transport().new_event()?;
                self.registers.transport().set_vector(vector, Some(&event))?;
                Some(event)
            }
        };
        Ok((QueuePair::new(qid, ring, assigned), event))
    }

    /// Creates the queues of `pair` on the controller (NVMe Base 1.4 §5.3, §5.4).
    pub(crate) fn register_queue(
        &self,
        pair: &QueuePair,
        vector: Option<u16>,
        class: QueueClass,
    ) -> Result<()> {
        let ring = pair.ring();
        let (qid, entries) = (pair.qid(), u32::from(ring.entries()));
        let cq = Sqe::create_io_cq(0, qid, entries, ring.cq_iova().0, vector);
        self.execute("Create I/O Completion Queue", cq, None)?;
        // Without weighted round robin the controller ignores the field.
        let qprio = if self.has_queue_classes() { class as u8 } else { 0 };
        let sq = Sqe::create_io_sq(0, qid, entries, ring.sq_iova().0, qid, qprio);
        if let Err(error) = self.execute("Create I/O Submission Queue", sq, None) {
            let _ = self.execute("Delete I/O Completion Queue", Sqe::delete_io_cq(0, qid), None);
            return Err(error);
        }
        Ok(())
    }

    /// Deletes queue `qid` on the controller, which afterwards accesses neither its rings nor its
    /// buffers.
    pub(crate) fn unregister_queue(&self, qid: u16) -> Result<()> {
        // QEMU's controller answers Completion Queue Invalid for an unknown completion queue; 1.4
        // §5.5 has the other code.
        let codes = [StatusCode::InvalidQueueIdentifier, StatusCode::CompletionQueueInvalid];
        let unknown = |result: Result<_>| match result {
            Err(error) if codes.iter().any(|&code| is_code(&error, code)) => Ok(()),
            other => other.map(|_: (u32, Option<DmaBuf>)| ()),
        };
        unknown(self.execute("Delete I/O Submission Queue", Sqe::delete_io_sq(0, qid), None))?;
        unknown(self.execute("Delete I/O Completion Queue", Sqe::delete_io_cq(0, qid), None))
    }

    /// Releases the identifier and the vector.
    pub(crate) fn release_queue(&self, qid: u16, vector: Option<u16>) {
        if let Some(vector) = vector {
            let _ = self.registers.transport().set_vector(vector, None);
        }
        self.lock().put_back(qid, vector);
    }

    /// Asks the controller to abort command `cid` of queue `qid`. `Ok` only says that the
    /// controller has answered.
    pub(crate) fn abort(&self, qid: u16, cid: u16) -> Result<()> {
        self.execute("Abort", Sqe::abort(0, qid, cid), None).map(|_| ())
    }

    /// Disables and enables the controller, unless another thread has reset it since `seen_epoch`
    /// (ARCHITECTURE.md §4, step 4).
    ///
    /// On return the device has given up every command and buffer of the old epoch, or is
    /// permanently gone; see [`Controller::gone`].
    pub(crate) fn reset(&self, seen_epoch: u32) {
        let mut admin = self.lock();
        if self.epoch() != seen_epoch || seen_epoch == EPOCH_GONE {
            return;
        }
        tracing::warn!(device = %self.describe(), "resetting the controller");
        if self.is_fatal() {
            self.fatal_resets.fetch_add(1, Ordering::Relaxed);
        }
        self.epoch.store(seen_epoch + 1, Ordering::Release);
        let start_ns = self.clock.now_ns();
        let mut restarted = self.restart(&mut admin);
        // Something else cleared EN: power, or the connection, was lost again meanwhile.
        while let Err(error) = &restarted
            && !Cc(self.registers.cc()).en()
            && self.clock.now_ns().saturating_sub(start_ns) < ready_timeout_ms(self.cap) * 1_000_000
        {
            tracing::warn!(device = %self.describe(), %error, "resetting the controller again");
            restarted = self.restart(&mut admin);
        }
        match restarted {
            Ok(()) => {
                self.epoch.store(seen_epoch.wrapping_add(2) & !1 & 0x7fff_ffff, Ordering::Release)
            }
            Err(error) => {
                let (device, error) = (self.describe(), self.registers.explain(error));
                tracing::error!(device, %error, "the controller did not come back: given up");
                // EN is cleared whatever the state is: without EN the controller must not access
                // our memory.
                let _ = clear_enable(&self.registers, &self.clock, self.cap);
                self.abandon(admin);
            }
        }
    }

    /// Gives the device up permanently, in order: shut down, disabled, cut off from memory, and
    /// [released](Transport::release) for other users. Commands in flight and later ones fail with
    /// [`CommandError::Gone`].
    ///
    /// [`CommandError::Gone`]: super::CommandError::Gone
    pub fn give_up(&self) {
        let mut admin = self.lock();
        let epoch = self.epoch();
        if epoch == EPOCH_GONE {
            return;
        }
        // With an odd epoch, no queue sends commands from now on.
        self.epoch.store(epoch | 1, Ordering::Release);
        self.restore_features(&mut admin);
        let _ = self.shut_down();
        self.abandon(admin);
    }

    /// Marks a controller that is disabled or unreachable as gone.
    fn abandon(&self, mut admin: MutexGuard<'_, Admin>) {
        let released = self.registers.unmap_all(&self.heap);
        self.memory_released.store(released, Ordering::Relaxed);
        if !released {
            self.shadows.iter().for_each(Shadows::quarantine);
        }
        if let Some(queue) = admin.queue.take()
            && !released
        {
            queue.quarantine();
        }
        // This is locked before any thread can see that the device is gone; see
        // `wait_until_released`.
        let releasing = self.releasing();
        // Release: `memory_released` is visible before the epoch.
        self.epoch.store(EPOCH_GONE, Ordering::Release);
        // Returning the device to the kernel's driver may take minutes, while a thread that waits
        // for an I/O has a deadline.
        drop(admin);
        self.registers.transport().release();
        drop(releasing);
    }

    fn releasing(&self) -> MutexGuard<'_, ()> {
        self.releasing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the release of a gone device is complete, so that the process does not end in
    /// the middle.
    pub(crate) fn wait_until_released(&self) {
        drop(self.releasing());
    }

    /// Restores features to their former values.
    fn restore_features(&self, admin: &mut Admin) {
        let Admin { queue: Some(queue), features, .. } = admin else { return };
        features.restore(&mut Sender { context: self.context(), queue, heap: &self.heap });
    }

    /// A normal shutdown (NVMe Base 1.4 §7.6.2), in which the device saves its cache; then disables
    /// it, so that it forgets our memory.
    fn shut_down(&self) -> Result<()> {
        let registers = &self.registers;
        if registers.cc() == GONE {
            return Err(Error::Gone);
        }
        registers.shut_down();
        let _ =
            wait_for(registers, &self.clock, "complete a shutdown", 5_000, |csts| csts.shst() == 2);
        disable(registers, &self.clock, self.cap)
    }

    /// Disables and enables the controller now. Queues recover by themselves. Commands in flight
    /// are repeated, or fail with [`CommandError::Reset`] if they were repeated too often.
    ///
    /// [`CommandError::Reset`]: super::CommandError::Reset
    pub fn reset_now(&self) {
        self.reset(self.stable_epoch());
    }

    fn restart(&self, admin: &mut Admin) -> Result<()> {
        let registers = &self.registers;
        let Admin { queue, features, .. } = admin;
        let queue = queue.as_mut().ok_or(Error::Gone)?;
        let was_enabled = Cc(registers.cc()).en();
        disable(registers, &self.clock, self.cap)?;
        // Our Controller Reset keeps completed writes and the admin queue's attributes (1.4
        // §3.1.5). A controller that was disabled by other means, or has lost these attributes, has
        // lost power.
        if !(was_enabled && registers.admin_attributes() == admin_attributes(queue).0) {
            let why = self.trouble();
            let why = why.as_deref().unwrap_or("something else disabled it: power may have failed");
            tracing::warn!(device = %self.describe(), why, "the controller has to begin anew");
            if self.info().volatile_write_cache {
                self.cache_losses.fetch_add(1, Ordering::AcqRel);
            }
        }
        queue.reset();
        start(registers, &self.clock, self.cap, arbitration(self.cap, &self.options), queue)?;
        let context = self.context();
        set_queue_count(&context, queue, self.info().io_queues)?;
        let mut sender = Sender { context, queue: &mut *queue, heap: &self.heap };
        apply(features, &mut sender, self.cap, &self.options, self.info())?;
        if let Some(shadows) = &self.shadows {
            shadows.configure(&mut sender)?;
        }
        Ok(())
    }

    /// Runs `action` with a sender of features.
    pub(super) fn with_features<T>(
        &self,
        action: impl FnOnce(&mut Features, &mut Sender<'_>) -> Result<T>,
    ) -> Result<T> {
        let Admin { queue, features, .. } = &mut *self.lock();
        let queue = queue.as_mut().ok_or(Error::Gone)?;
        action(features, &mut Sender { context: self.context(), queue, heap: &self.heap })
    }

    /// Whether the controller has an optional I/O command, one of [`oncs`].
    pub fn supports(&self, command: u16) -> bool {
        self.info().oncs & command != 0
    }

    /// Whether blocks can be deallocated.
    pub fn has_deallocate(&self) -> bool {
        self.supports(oncs::DATASET_MANAGEMENT)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.gone().is_some() {
            return;
        }
        self.restore_features(&mut self.lock());
        // Disabled before the heap frees the memory.
        if self.shut_down().is_err()
            && !self.registers.unmap_all(&self.heap)
            && let Some(queue) = self.lock().queue.take()
        {
            self.shadows.iter().for_each(Shadows::quarantine);
            queue.quarantine();
        }
        // Buffers, and with them the transport, may outlive the controller, so the device is
        // released here.
        self.registers.transport().release();
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

    /// Takes a vector for queue `qid`. Releases the identifier if none is free.
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

/// Sets the features of a newly enabled controller.
fn apply(
    features: &mut Features,
    to: &mut Sender<'_>,
    cap: Cap,
    options: &ControllerOptions,
    info: &ControllerInfo,
) -> Result<()> {
    let weighted = arbitration(cap, options) == ams::WEIGHTED_ROUND_ROBIN;
    features.apply(to, info, weighted.then_some(options.arbitration), options.low_latency)
}

/// Whether I/O commands may describe data by SGLs. Our buffers always have the dword alignment that
/// some controllers require.
fn has_sgls(info: &ControllerInfo) -> bool {
    matches!(info.sgls & sgls::SUPPORT_MASK, sgls::SUPPORTED | sgls::SUPPORTED_DWORD_ALIGNED)
}

/// Whether to shadow doorbells. Logs if they were requested and the controller does not support
/// them.
fn wants_shadows(
    info: &ControllerInfo,
    transport: &dyn Transport,
    options: &ControllerOptions,
) -> bool {
    let wanted = options.shadow_doorbells.unwrap_or_else(|| transport.has_slow_doorbells());
    let has = info.oacs & oacs::DOORBELL_BUFFER_CONFIG != 0;
    if options.shadow_doorbells == Some(true) && !has {
        tracing::warn!("the controller has no shadow doorbells: its registers are used");
    }
    wanted && has
}

/// The arbitration mechanism to enable, one of [`ams`].
fn arbitration(cap: Cap, options: &ControllerOptions) -> u8 {
    let weighted = options.weighted_round_robin && cap.ams() & CAP_AMS_WEIGHTED_ROUND_ROBIN != 0;
    if weighted { ams::WEIGHTED_ROUND_ROBIN } else { ams::ROUND_ROBIN }
}
