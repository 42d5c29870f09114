//! The transport to a controller behind NVMe/TCP.
//!
//! The driver has its rings, its buffers and its registers, as with PCIe. Here an I/O queue is a
//! connection. *Create I/O Submission Queue* connects it, the tail doorbell sends what is in the
//! ring, and the thread that waits for the queue receives ([`Progress`]). *Delete I/O Submission
//! Queue* closes the connection, but only when nothing is in flight: a closed connection does not
//! show what the target still does with a write. With commands in flight the driver is refused, and
//! resets the controller, which the target confirms.

#![expect(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_hw::pages::Pages;
use meantime_hw::{
    Claim, Clock, DeviceEvent, DmaLimits, DmaMap, Doorbell, EventFd, EventHandler, HwError,
    Progress, Transport, WriteDoorbell,
};
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::regs::DOORBELLS;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use rustix::event::{PollFd, PollFlags, epoll, poll};

use crate::address::{Host, TcpAddress};
use crate::connection::{Connection, Rings};
use crate::credentials::Credentials;
use crate::dial::{Dialer, timespec};
use crate::error::{FabricsError, Result};
use crate::identified::Identified;
use crate::queue::{HeadDoorbell, Queue, Shared, TailDoorbell};
use crate::registers::{Parts, Phase, Queues, Registers};

/// The settings of a connection.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// The host's names.
    pub host: Host,
    /// The keys of the host and of the target's controllers, if the target may ask for them.
    pub credentials: Option<Credentials>,
    /// Keep Alive Timeout, in ms; at least 100. After a loss, no association is made before this
    /// time is over.
    pub kato_ms: u32,
    /// Digests of headers, bit 0, and of data, bit 1.
    pub digests: u8,
    /// How long to try to connect again after a loss, in ms; up to 127 s. `None` selects a minute,
    /// or longer if the target's Keep Alive Timeout is longer.
    pub loss_ms: Option<u32>,
    /// Deadline of connecting, and of each command of the connection itself, in ns.
    pub timeout_ns: u64,
    /// I/O queue pairs.
    pub queues: u16,
}

/// The least Keep Alive Timeout, in ms.
pub const KATO_MIN_MS: u32 = 100;

/// A controller behind NVMe/TCP.
pub struct TcpTransport {
    inner: Arc<Inner>,
    keeper: Option<JoinHandle<()>>,
}

struct Inner {
    dialer: Dialer,
    identified: Arc<Identified>,
    shared: Arc<Shared>,
    /// The queues; the index is the queue identifier.
    queues: Vec<Arc<Queue>>,
    registers: Mutex<Registers>,
    /// The completion queues that the driver has created, by queue identifier.
    cqs: Mutex<Vec<CompletionQueue>>,
    /// The descriptors of the vectors' events.
    vectors: Mutex<Vec<Option<Arc<OwnedFd>>>>,
    handler: Mutex<Option<EventHandler>>,
    claim: Claim,
    clock: Clock,
    is_stopping: std::sync::atomic::AtomicBool,
}

/// A completion queue that the driver has created.
#[derive(Debug, Clone, Copy, Default)]
struct CompletionQueue {
    iova: u64,
    entries: u16,
    vector: Option<u16>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpTransport {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Returns the reason, and a remedy.
    pub fn connect(address: TcpAddress, options: &TcpOptions) -> Result<Self> {
        let dialer = Dialer {
            address,
            resolved: Mutex::default(),
            host: options.host.clone(),
            credentials: options.credentials.clone(),
            kato_ms: options.kato_ms.max(KATO_MIN_MS),
            dgst: options.digests & 3,
            timeout: Duration::from_nanos(options.timeout_ns),
        };
        let os = |source| FabricsError::Os { what: "cannot make an eventfd", source };
        let alarm = EventFd::new().map_err(|error| os(std::io::Error::other(error)))?;
        let shared =
            Arc::new(Shared { memory: Default::default(), is_broken: false.into(), alarm });
        let count = usize::from(options.queues) + 1;
        let queues: Vec<Arc<Queue>> = (0..count).map(|_| Arc::new(Queue::new(&shared))).collect();
        let identified = Arc::default();
        let all = AllQueues { queues: &queues, shared: &shared };
        let parts = Parts {
            dialer: &dialer,
            memory: &shared.memory,
            identified: &identified,
            queues: &all,
        };
        let loss = options.loss_ms.map(|ms| Duration::from_millis(ms.into()));
        let registers = Registers::open(&parts, loss)?;
        let inner = Arc::new(Inner {
            dialer,
            identified,
            shared,
            queues,
            registers: Mutex::new(registers),
            cqs: Mutex::new(vec![CompletionQueue::default(); count]),
            vectors: Mutex::new(vec![None; count]),
            handler: Mutex::new(None),
            claim: Claim::new(),
            clock: Clock::real(),
            is_stopping: false.into(),
        });
        let kept = Arc::clone(&inner);
        let keeper = meantime_process::thread::spawn("meantime-kato", move || kept.keep_alive())
            .map_err(|source| FabricsError::Os { what: "cannot start a thread", source })?;
        Ok(Self { inner, keeper: Some(keeper) })
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.shared.alarm.signal();
        let Some(keeper) = self.keeper.take() else { return };
        // After a reset, the thread itself may drop the last handle.
        if keeper.thread().id() != std::thread::current().id() {
            let _ = keeper.join();
        }
        self.release();
    }
}

/// The queues, as the registers act on them.
struct AllQueues<'a> {
    queues: &'a [Arc<Queue>],
    shared: &'a Shared,
}

impl Queues for AllQueues<'_> {
    fn set_admin(&self, connection: Connection) {
        self.queues[0].set(Some(connection));
    }

    fn with_admin<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        self.queues[0].with(act)
    }

    fn end_all(&self, why: &str) {
        self.queues.iter().for_each(|queue| queue.end(why));
    }

    fn retire(&self, why: &str) {
        self.queues[1..].iter().for_each(|queue| queue.end(why));
        if let Some(admin) = self.queues[0].lock().as_mut() {
            admin.retire();
        }
    }

    fn alarm(&self) {
        self.shared.alarm.signal();
    }

    fn is_broken(&self) -> bool {
        self.shared.is_broken.load(Ordering::Acquire)
    }

    fn mend(&self) {
        self.shared.is_broken.store(false, Ordering::Release);
    }
}

impl Inner {
    fn with_registers<T>(
        &self,
        act: impl FnOnce(&mut Registers, &Parts<'_, AllQueues<'_>>) -> T,
    ) -> T {
        let all = AllQueues { queues: &self.queues, shared: &self.shared };
        let parts = Parts {
            dialer: &self.dialer,
            memory: &self.shared.memory,
            identified: &self.identified,
            queues: &all,
        };
        act(&mut lock(&self.registers), &parts)
    }

    /// Keeps the association alive, and reports when it is lost, until the transport is dropped.
    fn keep_alive(&self) {
        // When Keep Alive was last sent.
        let mut sent = Instant::now();
        let mut was_connected = true;
        loop {
            let (kato, is_connected) = self.with_registers(|registers, _| {
                (registers.kato, registers.phase == Phase::Connected)
            });
            let waits = self.queues[0].lock().as_ref().is_some_and(Connection::is_own_busy);
            let due = sent + if waits { kato } else { kato / 2 };
            self.wait_for_keeper(is_connected, due.saturating_duration_since(Instant::now()));
            self.shared.alarm.take();
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            if !is_connected || !was_connected {
                // A new association has its own time.
                sent = Instant::now();
            }
            was_connected = is_connected;
            if is_connected && self.send_keep_alive(sent, kato) {
                sent = Instant::now();
            }
            self.report_losses();
        }
    }

    /// Sends Keep Alive if half of the time-out is over since the last one. Returns whether it did.
    fn send_keep_alive(&self, sent: Instant, kato: Duration) -> bool {
        let sent = self.queues[0].with(|admin| {
            let mapped = self.shared.memory.mapped();
            admin.progress(&mapped);
            let passed = sent.elapsed();
            if admin.ended().is_some() || passed < kato / 2 {
                return false;
            }
            if !admin.is_own_busy() {
                admin.start_own(&mapped, Sqe::keep_alive(0), &[], 0);
                return true;
            }
            if passed >= kato {
                let time_ms = passed.as_millis();
                admin.end(format!("the target did not answer Keep Alive within {time_ms} ms"));
            }
            false
        });
        sent == Some(true)
    }

    /// Waits for the alarm, for `time`, or for the admin queue.
    fn wait_for_keeper(&self, is_connected: bool, time: Duration) {
        let socket = self.queues[0].lock().as_ref().and_then(|admin| {
            (is_connected && admin.ended().is_none()).then(|| Arc::clone(&admin.socket))
        });
        let mut fds = vec![PollFd::new(&self.shared.alarm, PollFlags::IN)];
        if let Some(socket) = &socket {
            fds.push(PollFd::new(socket, PollFlags::IN));
        }
        let _ = poll(&mut fds, Some(&timespec(time)));
    }

    /// Has the driver reset the controller if a connection has ended by itself.
    fn report_losses(&self) {
        let is_to_report = self.with_registers(|registers, parts| {
            registers.check_admin(parts);
            let is_broken = registers.phase == Phase::Connected
                && registers.is_enabled()
                && parts.queues.is_broken();
            std::mem::take(&mut registers.is_to_report) || is_broken
        });
        // The handler resets, which takes the registers' lock; and it may drop the last controller.
        let handler = lock(&self.handler);
        if let (true, Some(handler)) = (is_to_report, &*handler) {
            handler(DeviceEvent::Lost);
        }
    }

    /// Answers an admin command that concerns queues. Returns `None` if the command is the
    /// target's. `lost` is set to the reason if the association is to be given up.
    fn answer(
        &self,
        registers: &mut Registers,
        sqe: &Sqe,
        lost: &mut Option<String>,
    ) -> Option<Status> {
        let done = Status::from_code(StatusCode::SuccessfulCompletion);
        let wrong = |code| Status::from_code(code).with_dnr();
        let qid = sqe.qid();
        let known = (1..self.queues.len()).contains(&usize::from(qid));
        Some(match sqe.opcode() {
            admin::CREATE_IO_CQ if known => {
                let vector = sqe.ien().then(|| sqe.iv());
                lock(&self.cqs)[usize::from(qid)] =
                    CompletionQueue { iova: sqe.prp1.get(), entries: entries(sqe), vector };
                done
            }
            admin::CREATE_IO_SQ if known => {
                let connected = self.connect_queue(registers, qid, sqe.prp1.get(), entries(sqe));
                match connected {
                    Ok(()) => {
                        registers.is_in_use();
                        done
                    }
                    Err(error) => {
                        tracing::warn!(device = %self.dialer.address, qid, %error, "no connection");
                        // A target that refuses works. If the target cannot be reached, everything
                        // is tried again.
                        if !matches!(error, FabricsError::Refused { .. }) {
                            *lost = Some(error.to_string());
                        }
                        Status::from_code(StatusCode::InternalError)
                    }
                }
            }
            admin::DELETE_IO_SQ if known => {
                let queue = &self.queues[usize::from(qid)];
                let in_flight = queue.lock().as_ref().map_or(0, |connection| connection.in_flight);
                if in_flight > 0 {
                    wrong(StatusCode::InvalidQueueDeletion)
                } else {
                    queue.set(None);
                    done
                }
            }
            admin::DELETE_IO_CQ if known => done,
            admin::CREATE_IO_CQ
            | admin::CREATE_IO_SQ
            | admin::DELETE_IO_SQ
            | admin::DELETE_IO_CQ => wrong(StatusCode::InvalidQueueIdentifier),
            admin::DOORBELL_BUFFER_CONFIG => wrong(StatusCode::InvalidCommandOpcode),
            _ => return None,
        })
    }

    fn connect_queue(
        &self,
        registers: &Registers,
        qid: u16,
        sq_iova: u64,
        entries: u16,
    ) -> Result<()> {
        let cq = lock(&self.cqs)[usize::from(qid)];
        let (memory, identified) = (&self.shared.memory, &self.identified);
        // No Keep Alive is sent meanwhile.
        let time = self.dialer.timeout.min(registers.kato / 3);
        let cntlid = registers.cntlid;
        let (mut connection, _) =
            self.dialer.connect(memory, identified, qid, entries, cntlid, time)?;
        let cq_entries = cq.entries;
        connection.set_rings(Rings { sq_iova, cq_iova: cq.iova, entries, cq_entries });
        let vectors = lock(&self.vectors);
        let event = cq.vector.and_then(|vector| vectors.get(usize::from(vector)));
        if let Some(Some(event)) = event {
            connection.set_event(event);
        }
        self.queues[usize::from(qid)].set(Some(connection));
        Ok(())
    }
}

/// QSIZE of a command that creates a queue.
fn entries(sqe: &Sqe) -> u16 {
    ((sqe.cdw10.get() >> 16) as u16).saturating_add(1)
}

/// The admin queue's tail doorbell.
struct AdminDoorbell(Arc<Inner>);

impl WriteDoorbell for AdminDoorbell {
    fn write(&self, tail: u32) {
        let inner = &self.0;
        // The registers' lock comes first, as everywhere.
        inner.with_registers(|registers, parts| {
            let mut lost = None;
            inner.queues[0].ring_admin(tail as u16, |sqe| inner.answer(registers, sqe, &mut lost));
            // This comes last, because it ends the admin queue's connection, too.
            if let Some(why) = lost {
                registers.lose(parts, &why);
            }
        });
    }
}

// SAFETY: only `Connection` accesses the memory, inside its calls, by addresses that the driver's
// commands name, and each access looks the address up under a lock that `unmap` takes: afterwards
// it is not found. `Memory` holds the `Pages` from `map` to `unmap`, and refuses overlaps.
unsafe impl DmaMap for TcpTransport {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> meantime_hw::Result<()> {
        self.inner.shared.memory.map(iova, pages)
    }

    unsafe fn unmap_dma(&self, iova: u64) -> meantime_hw::Result<()> {
        self.inner.shared.memory.unmap(iova);
        Ok(())
    }

    /// The transport reaches memory by its address in this process, at each access.
    fn lends(&self) -> bool {
        true
    }

    fn limits(&self) -> DmaLimits {
        DmaLimits::default()
    }
}

// SAFETY: CSTS.RDY = 0 is the target's own answer, after which its connections are ended or have
// forgotten our memory, or there is no connection: data reaches memory only by a connection that
// works. Each transport has its own controller at the target, so its claim is that device's.
// Doorbells hold their queue.
unsafe impl Transport for TcpTransport {
    fn describe(&self) -> String {
        self.inner.dialer.address.to_string()
    }

    fn read32(&self, offset: u32) -> u32 {
        self.read64(offset) as u32
    }

    fn read64(&self, offset: u32) -> u64 {
        self.inner.with_registers(|registers, parts| registers.read(parts, offset))
    }

    fn claim(&self) -> &Claim {
        &self.inner.claim
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.write64(offset, value.into()) };
    }

    unsafe fn write64(&self, offset: u32, value: u64) {
        self.inner.with_registers(|registers, parts| registers.write(parts, offset, value));
    }

    unsafe fn doorbell(&self, offset: u32) -> meantime_hw::Result<Doorbell> {
        let missing = || HwError::Missing { what: format!("doorbell at offset {offset:#x}") };
        let index = offset.checked_sub(DOORBELLS).ok_or_else(missing)? / 4;
        let (qid, is_head) = ((index / 2) as usize, index % 2 == 1);
        let queue = self.inner.queues.get(qid).ok_or_else(missing)?;
        let message: Arc<dyn WriteDoorbell> = match (is_head, qid) {
            (true, _) => Arc::new(HeadDoorbell),
            (false, 0) => Arc::new(AdminDoorbell(Arc::clone(&self.inner))),
            (false, _) => Arc::new(TailDoorbell(Arc::clone(queue))),
        };
        Ok(Doorbell::by_message(message))
    }

    fn trouble(&self) -> Option<String> {
        Some(self.inner.with_registers(|registers, parts| registers.trouble(parts)))
    }

    fn vectors(&self) -> u16 {
        self.inner.queues.len() as u16
    }

    /// Returns an epoll instance, which becomes readable when the queue's socket is readable.
    fn new_event(&self) -> meantime_hw::Result<EventFd> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| HwError::Os {
            what: "cannot create an epoll instance (is `ulimit -n` too low?)",
            source: errno.into(),
        })?;
        Ok(EventFd::level(Arc::new(fd)))
    }

    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> meantime_hw::Result<()> {
        let mut vectors = lock(&self.inner.vectors);
        let missing = || HwError::Missing { what: format!("interrupt vector {vector}") };
        *vectors.get_mut(usize::from(vector)).ok_or_else(missing)? = event.and_then(EventFd::fd);
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.inner.clock.clone()
    }

    fn on_event(&self, handler: EventHandler) {
        *lock(&self.inner.handler) = Some(handler);
        self.inner.shared.alarm.signal();
    }

    fn release(&self) {
        self.inner.with_registers(|registers, parts| registers.release(parts));
    }

    fn progress(&self, qid: u16) -> Option<Arc<dyn Progress>> {
        let queue = self.inner.queues.get(usize::from(qid))?;
        Some(Arc::clone(queue) as Arc<dyn Progress>)
    }
}
