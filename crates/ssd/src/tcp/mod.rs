//! Serves the SSD over NVMe/TCP to the hosts of Linux, of SPDK and of this project.
//!
//! [`Target`] has one thread, which runs the sockets and the controller, so nothing is passed
//! between CPUs. All hosts share one controller, with its namespaces, its service-time model and
//! its faults. Each host has an association, with a virtual controller (registers, Keep Alive
//! Timer, number of queues, event requests), and a queue pair of the controller's, which is closed
//! when the association ends. No command of a host that is gone is executed.
//!
//! ```text
//!   server        sockets; when to look, to spin, to sleep
//!     neighbours    whether others want the thread's CPU
//!     turn          the target without sockets: bytes in, bytes out
//!       commands      what is answered here, and what the SSD gets
//!       hosts         Connect, properties, the end of an association
//!     engine        connections, associations, answers
//!       connection    PDUs of one connection, in pieces of any size
//!       refused       why hosts were refused
//!       output        what is to be sent, payload where the controller put it
//!     backend       slots and queue pairs of the controller
//!       machine       its memory
//! ```
//!
//! - **No host is trusted.** A host that breaks the protocol has its connection ended with a
//!   TermReq and a named reason, which is counted. Memory is bounded for each connection and in
//!   all, no connection has more than half of the slots, and some are kept for admin queues. A host
//!   that is slow to connect, to send data for which it was asked, or to take answers, is
//!   disconnected after 10 s.
//! - **There is no encryption or authentication.** Any host that can reach the address can read and
//!   write everything. A list of host NQNs only prevents mistakes.
//! - All features except the number of queues and the Keep Alive Timer are common to all hosts.

mod admin;
mod association;
mod authentication;
mod backend;
mod commands;
mod connection;
mod counters;
mod discovery;
mod engine;
mod faults;
mod hosts;
mod machine;
mod neighbours;
mod options;
mod output;
mod refused;
mod server;
mod turn;
mod wire;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub use counters::TcpCounters;
pub use faults::{NetFaults, NetFaultsError};
#[cfg(feature = "auth")]
pub use meantime_nvme_auth::{KeyError, Keys};
pub use options::{DEFAULT_NQN, TargetError, TargetOptions};
pub use refused::RefusedHost;
pub use wire::Wire;

use crate::config::SsdConfig;
use crate::control::{Action, FaultControl, call};
use crate::controller::identify::hash;
use crate::counters::Counters;
use crate::error::SsdError;
use crate::mailbox::{Call, Mailbox};
use crate::medium::Medium;
use crate::sys;
use engine::Engine;
use neighbours::{Neighbours, WaitedNs};
use server::{Server, Shared};

/// An SSD served over NVMe/TCP. Dropping it closes all connections and ends the thread.
#[derive(Debug)]
pub struct Target {
    handle: TargetHandle,
    addr: SocketAddr,
    /// The thread. It returns whether cached data has reached the medium, if that was asked for.
    thread: Option<JoinHandle<Option<bool>>>,
}

/// Controls a running [`Target`] and its SSD. A clone controls the same one.
#[derive(Clone)]
pub struct TargetHandle(Arc<Shared>);

impl Target {
    /// Listens at the address, for an SSD on `medium`.
    ///
    /// # Errors
    /// [`TargetError`] says why the target could not be started.
    pub fn start(
        config: SsdConfig,
        medium: Medium,
        options: TargetOptions,
    ) -> Result<Self, TargetError> {
        options.check()?;
        let listener = listen(options.addr)?;
        Self::start_on(config, medium, options, listener)
    }

    /// Starts a target on a socket that already listens, whatever address the options have.
    ///
    /// # Errors
    /// [`TargetError`] says why the target could not be started.
    pub fn start_on(
        config: SsdConfig,
        medium: Medium,
        options: TargetOptions,
        listener: TcpListener,
    ) -> Result<Self, TargetError> {
        Self::start_beside(config, medium, options, listener, neighbours::waited_ns)
    }

    fn start_beside(
        mut config: SsdConfig,
        medium: Medium,
        mut options: TargetOptions,
        listener: TcpListener,
        waited_ns: WaitedNs,
    ) -> Result<Self, TargetError> {
        options.check()?;
        crate::threaded::check_medium(&config, &medium)?;
        let failed = |source| TargetError::Listen { addr: options.addr, source };
        let addr = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        options.addr = addr;
        if config.serial == SsdConfig::default().serial {
            // Identifiers of namespaces come from the serial number. A host that has two subsystems
            // refuses the namespaces of the second one if the identifiers are the same, and they
            // must not change from run to run.
            config.serial = format!("{:016X}", hash(&options.nqn));
        }
        let cpu = config.cpu;
        let engine = Engine::new(config, medium, options)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let system = |error: Errno| TargetError::Ssd(SsdError::Thread(error.into()));
        let shared = Arc::new(Shared {
            mailbox: Mailbox::default(),
            wake: eventfd(0, flags).map_err(system)?,
            asleep: AtomicBool::new(false),
            flush_last: AtomicBool::new(false),
            net_faults: Mutex::default(),
            counters: Arc::clone(&engine.backend.machine().controller().counters),
            tcp: Arc::clone(&engine.counters),
            refusals: Arc::clone(&engine.refusals),
        });
        let of_thread = Arc::clone(&shared);
        let server = Server::new(engine, listener, of_thread, Neighbours::new(waited_ns));
        let mut server = server.map_err(system)?;
        let thread = sys::spawn_ssd(cpu, move || {
            // However the thread ends, no caller waits for ever for an answer.
            let closing = CloseOnDrop(Arc::clone(&server.shared));
            server.run();
            closing.0.flush_last.load(Ordering::Relaxed) && server.end()
        })?;
        Ok(Self { handle: TargetHandle(shared), addr, thread: Some(thread) })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns a handle to control it while it runs. The handle does not keep it alive.
    #[must_use]
    pub fn handle(&self) -> TargetHandle {
        self.handle.clone()
    }

    /// Replaces the faults of the network.
    pub fn set_net_faults(&self, plan: NetFaults) {
        self.handle.set_net_faults(plan);
    }

    /// Cuts the power and restores it. A random subset (by `seed`) of unflushed writes is lost, and
    /// all connections are closed. Returns the number of lost writes.
    pub fn power_cut(&self, seed: u64) -> u64 {
        self.handle.cut_power(seed)
    }

    /// Returns the SSD's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.handle.counters()
    }

    /// Returns the target's own counters.
    #[must_use]
    pub fn tcp_counters(&self) -> TcpCounters {
        self.handle.tcp_counters()
    }

    /// Returns whether its thread runs, which it always does, unless there is a bug.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Closes all connections, then writes all cached data to the medium. Returns false if that
    /// fails, or if the thread had ended.
    #[must_use]
    pub fn stop(mut self) -> bool {
        self.handle.0.flush_last.store(true, Ordering::Relaxed);
        self.end() == Some(true)
    }

    fn end(&mut self) -> Option<bool> {
        self.handle.0.push(Call::Stop);
        // A panic of the thread was reported when it happened.
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

impl TargetHandle {
    /// Replaces the faults of the network. Returns when they are in force.
    pub fn set_net_faults(&self, plan: NetFaults) {
        *self.0.net_faults.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
        self.run(Action::new(|_, _| {}));
        // The action may have run before the plan was taken. The next one runs after that.
        self.run(Action::new(|_, _| {}));
    }

    /// Writes all cached data to the medium. Returns false if that fails, or if the target has
    /// ended.
    #[must_use]
    pub fn flush(&self) -> bool {
        call(self, |controller| controller.store.flush()).unwrap_or(false)
    }

    /// Returns the target's own counters.
    #[must_use]
    pub fn tcp_counters(&self) -> TcpCounters {
        self.0.tcp.snapshot()
    }

    /// Returns the hosts that were refused, and why, the earliest first. Later calls only add to
    /// the list and to its counts.
    #[must_use]
    pub fn refused_hosts(&self) -> Vec<RefusedHost> {
        self.0.refusals.all()
    }
}

impl FaultControl for TargetHandle {
    fn run(&self, action: Action) {
        let (done, is_done) = sync_channel(1);
        self.0.push(Call::Run(Action::new(move |controller, now_ns| {
            action.run(controller, now_ns);
            let _ = done.send(());
        })));
        // This has no time-out, because the SSD's owner waits. If the target has ended, the call is
        // dropped.
        let _ = is_done.recv();
    }

    fn counters(&self) -> Counters {
        self.0.counters.snapshot()
    }
}

impl std::fmt::Debug for TargetHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetHandle").field("tcp", &self.tcp_counters()).finish_non_exhaustive()
    }
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.mailbox.close();
    }
}

/// Listens at an address.
///
/// # Errors
/// [`TargetError::Listen`] if the system refuses.
pub fn listen(addr: SocketAddr) -> Result<TcpListener, TargetError> {
    TcpListener::bind(addr).map_err(|source| TargetError::Listen { addr, source })
}

#[cfg(test)]
mod tests;
