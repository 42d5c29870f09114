//! The thread of the target. It handles the sockets, and decides when to poll, to spin and to
//! sleep.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
    socket_incoming_cpu,
};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, accept_with, getsockname,
    recv, sendmsg, shutdown,
};
use rustix::time::Timespec;

use super::connection::{Connection, Phase};
use super::engine::Engine;
use super::faults::NetFaults;
use super::neighbours::Neighbours;
use super::output::PIECES;
use super::refused::Refusals;
use crate::controller::Turn;
use crate::counters::SharedCounters;
use crate::mailbox::{Call, Mailbox};
use crate::sys;

/// The number of bytes taken at once from a socket.
const RECEIVE_BYTES: usize = 64 << 10;
/// The number of rounds between two checks of the clock and of the sockets that are not busy. It is
/// also the number of times that something comes from a busy socket between two checks, so that
/// many of these do not make the others wait.
const ROUNDS: u32 = 32;
/// The number of rounds without work after which the thread checks whether others want its CPU, and
/// sleeps if they do.
const CONTENDED_ROUNDS: u32 = 2;
/// How long a socket stays busy without anything coming.
const BUSY_NS: u64 = 2_000_000;
/// Sleeps end this long before their time. The thread spins for the rest.
const EARLY_NS: u64 = 60_000;
/// The time between two checks for what has taken too long.
const TICK_NS: u64 = 10_000_000;
/// How long no connection is accepted after the system had no descriptor for one.
const NO_ACCEPT_NS: u64 = 100_000_000;
/// The number of connections accepted at once.
const ACCEPTS: usize = 16;

/// The time of silence after which the system asks a host whether it is there, and how often. The
/// sum is 30 s.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// The number of events taken at once from epoll.
const EVENTS: usize = 64;

/// The data of epoll for the listener and for the wake-up.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

struct Peer {
    stream: OwnedFd,
    /// Bytes that could not be taken yet.
    left: Vec<u8>,
    left_at: usize,
    /// Whether something has come since the last check.
    seen: bool,
    seen_ns: u64,
    busy: bool,
    /// Whether the socket takes no more.
    full: bool,
    interest: EventFlags,
    shut: bool,
}

impl Peer {
    fn is_stalled(&self) -> bool {
        self.left_at < self.left.len()
    }

    /// Tells epoll which events are of interest now.
    fn listen(&mut self, epoll: &OwnedFd, index: usize) {
        // While nothing is read, the end of the stream is not reached either. A host that has
        // closed would keep its queue, which it may want again at once.
        let wanted = if self.is_stalled() { EventFlags::RDHUP } else { EventFlags::IN }
            | if self.full { EventFlags::OUT } else { EventFlags::empty() };
        if wanted != self.interest {
            self.interest = wanted;
            let _ = epoll::modify(epoll, &self.stream, EventData::new_u64(index as u64), wanted);
        }
    }
}

/// The state that the thread and the target's handles share.
pub(super) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) wake: OwnedFd,
    /// Whether the thread is, or will be, asleep.
    pub(super) asleep: AtomicBool,
    /// Whether the thread's last act is to flush.
    pub(super) flush_last: AtomicBool,
    /// A plan that is to replace the one in force.
    pub(super) net_faults: Mutex<Option<NetFaults>>,
    pub(super) counters: Arc<SharedCounters>,
    pub(super) tcp: Arc<super::counters::SharedCounters>,
    pub(super) refusals: Arc<Refusals>,
}

impl Shared {
    pub(super) fn push(&self, call: Call) {
        // The thread also swaps the flag before it checks for calls a last time. The second of the
        // two swaps sees what came before the first.
        if self.mailbox.push(call) && self.asleep.swap(true, Ordering::SeqCst) {
            sys::signal(&self.wake);
        }
    }
}

pub(super) struct Server {
    pub(super) engine: Engine,
    pub(super) listener: TcpListener,
    pub(super) shared: Arc<Shared>,
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
    /// The busy sockets, by place.
    busy: Vec<usize>,
    buffer: Vec<u8>,
    /// The time from which connections are accepted again.
    accept_ns: Option<u64>,
    tick_ns: u64,
    neighbours: Neighbours,
    /// How long the thread stays awake without anything coming. With `u64::MAX` it stays awake for
    /// ever, even if others want its CPU.
    awake_for_ns: u64,
    /// Whether the last check has found something, which the next round handles.
    found: bool,
}

impl Server {
    pub(super) fn new(
        engine: Engine,
        listener: TcpListener,
        shared: Arc<Shared>,
        neighbours: Neighbours,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            tick_ns: engine.now_ns,
            awake_for_ns: engine.backend.park_after_ns(),
            engine,
            listener,
            shared,
            epoll,
            peers: Vec::new(),
            busy: Vec::new(),
            buffer: Vec::with_capacity(RECEIVE_BYTES),
            accept_ns: None,
            neighbours,
            found: false,
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(&mut self) {
        let (mut rounds, mut idle, mut awake_ns) = (0, 0, self.engine.now_ns);
        // This says whether there was work since the last check.
        let mut busy = false;
        loop {
            if self.shared.mailbox.is_waiting() && !self.answer_calls() {
                return;
            }
            let mut received = 0;
            // There may be fewer slots than commands. The next round begins with the first
            // connection that got none, so each has its turn before any has another. The one that
            // began this round goes to the end.
            let mut next = None;
            let mut at = 0;
            while let Some(&index) = self.busy.get(at) {
                received += u32::from(self.receive(index));
                if next.is_none() && at > 0 && self.is_stalled(index) {
                    next = Some(at);
                }
                at += 1;
            }
            let next = next.unwrap_or(1);
            if self.busy.len() > next {
                self.busy.rotate_left(next);
            }
            let turn = self.engine.turn();
            let worked = received > 0 || turn == Turn::Worked;
            if !self.engine.dirty.is_empty() {
                self.flush_all();
            }
            rounds += received.max(1);
            idle = if worked { 0 } else { idle + 1 };
            busy |= worked;
            let contended = idle >= CONTENDED_ROUNDS && self.is_contended();
            if rounds >= ROUNDS || contended {
                rounds = 0;
                let before_ns = self.engine.now_ns;
                let now_ns = self.check(Some(Duration::ZERO));
                self.neighbours.rounds_took(now_ns.saturating_sub(before_ns), now_ns);
                if std::mem::take(&mut busy) || self.found {
                    awake_ns = now_ns;
                } else if (contended || now_ns.saturating_sub(awake_ns) >= self.awake_for_ns)
                    && let Some(sleep) = self.may_sleep(turn)
                {
                    self.sleep(sleep);
                    // The thread or host that woke it may have more for it.
                    (idle, awake_ns) = (0, self.engine.now_ns);
                }
            }
        }
    }

    /// Returns whether the thread, which has nothing to do, has to leave its CPU to others.
    #[inline]
    fn is_contended(&mut self) -> bool {
        let now_ns = self.engine.now_ns;
        if self.awake_for_ns == u64::MAX {
            return false;
        }
        // Without a busy host it sleeps soon anyway.
        if !self.busy.is_empty() && self.neighbours.is_due(now_ns) {
            self.neighbours.yield_and_judge(|| self.engine.backend.now_ns());
        }
        self.neighbours.want_cpu(now_ns)
    }

    /// Closes all connections, and then writes cached data to the medium. Returns false if that
    /// fails.
    pub(super) fn end(&mut self) -> bool {
        for index in 0..self.peers.len() {
            self.close(index);
        }
        self.engine.backend.controller().store.flush()
    }

    /// Runs the calls of other threads. Returns false if the target has to stop.
    fn answer_calls(&mut self) -> bool {
        for call in self.shared.mailbox.take() {
            match call {
                Call::Run(action) => {
                    let now_ns = self.engine.backend.now_ns();
                    action.run(self.engine.backend.controller(), now_ns);
                    self.engine.check_device();
                    self.engine.inspect();
                }
                Call::Stop => return false,
            }
        }
        let plan = self.shared.net_faults.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(plan) = plan {
            self.engine.set_net_faults(plan);
        }
        true
    }

    /// Returns whether bytes that have come on a connection wait for a slot.
    fn is_stalled(&self, index: usize) -> bool {
        self.peers.get(index).and_then(Option::as_ref).is_some_and(Peer::is_stalled)
    }

    /// Takes the bytes that have come on a connection. Returns true if there were any.
    #[inline]
    fn receive(&mut self, index: usize) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return false };
        if peer.left_at < peer.left.len() {
            let used = self.engine.receive(index, &peer.left[peer.left_at..]);
            peer.left_at += used;
            if peer.left_at == peer.left.len() {
                peer.left.clear();
                peer.left_at = 0;
            }
            peer.seen |= used > 0;
            return used > 0;
        }
        self.buffer.clear();
        match recv(&peer.stream, spare_capacity(&mut self.buffer), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                self.close(index);
                true
            }
            Ok(_) => {
                peer.seen = true;
                let used = self.engine.receive(index, &self.buffer);
                if used < self.buffer.len() {
                    peer.left.extend_from_slice(&self.buffer[used..]);
                }
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                self.close(index);
                true
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.engine.close(index);
        if let Some(peer) = self.peers.get_mut(index).and_then(Option::take) {
            if peer.busy {
                self.busy.retain(|&other| other != index);
            }
            // Closing the descriptor also removes it from epoll.
            drop(peer);
        }
    }

    fn flush_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.engine.dirty);
        // Ending an association may add some.
        while let Some(index) = dirty.pop() {
            self.flush(index);
            dirty.append(&mut self.engine.dirty);
        }
        self.engine.dirty = dirty;
    }

    /// Sends what there is, as far as the socket takes it.
    fn flush(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        while !self.engine.is_over(index) {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = self.engine.gather(index, &mut pieces);
            if count == 0 {
                peer.full = false;
                break;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&peer.stream, &pieces[..count], &mut control, flags) {
                Ok(sent) => self.engine.sent(index, sent),
                Err(Errno::AGAIN) => {
                    peer.full = true;
                    if !peer.busy {
                        (peer.busy, peer.seen) = (true, true);
                        self.busy.push(index);
                    }
                    // Epoll is told at once, because the thread may sleep next.
                    peer.listen(&self.epoll, index);
                    self.engine.blocked(index);
                    break;
                }
                Err(Errno::INTR) => {}
                Err(_) => return self.close(index),
            }
        }
        if self.engine.is_over(index) {
            return self.close(index);
        }
        let ending = |conn: &Connection| conn.phase == Phase::Ending && conn.out.is_empty();
        if !peer.shut && self.engine.conns[index].as_ref().is_some_and(ending) {
            peer.shut = true;
            let _ = shutdown(&peer.stream, Shutdown::Write);
        }
    }

    /// Checks all sockets and the clock. Returns the time.
    fn check(&mut self, wait: Option<Duration>) -> u64 {
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let mut space = [MaybeUninit::uninit(); EVENTS];
        // Without an answer nothing is known. The next check asks again.
        let answer = epoll::wait(&self.epoll, &mut space, timeout.as_ref());
        let events = answer.map_or(&mut [][..], |(events, _)| events);
        let now_ns = self.engine.backend.now_ns();
        let before_ns = std::mem::replace(&mut self.engine.now_ns, now_ns);
        if wait == Some(Duration::ZERO) && now_ns.saturating_sub(before_ns) >= TICK_NS {
            self.engine.catch_up(before_ns);
        }
        self.found = !events.is_empty();
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(),
                WAKE => {
                    let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
                }
                index => self.ready(index as usize, event.flags),
            }
        }
        self.cool(now_ns);
        if self.accept_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.accept_ns = None;
            let data = EventData::new_u64(LISTENER);
            let _ = epoll::modify(&self.epoll, &self.listener, data, EventFlags::IN);
        }
        if now_ns.saturating_sub(self.tick_ns) >= TICK_NS {
            self.tick_ns = now_ns;
            self.found |= self.engine.inspect();
            self.look_at_late();
            self.engine.tick();
            let busy = self.busy.iter().filter_map(|&index| self.peers.get(index)?.as_ref());
            let cpus = busy.filter_map(|peer| socket_incoming_cpu(&peer.stream).ok());
            self.neighbours.hosts_on(now_ns, cpus);
        }
        if !self.engine.dirty.is_empty() {
            self.flush_all();
        }
        now_ns
    }

    /// Checks the admin sockets of hosts that are to be given up, because this thread may have been
    /// late, and not the hosts.
    fn look_at_late(&mut self) {
        /// The maximum number of receives, for commands and for the end behind them.
        const LOOKS: usize = 4;
        for at in 0..self.engine.associations.len() {
            let now_ns = self.engine.now_ns;
            let association = self.engine.associations[at].as_ref();
            let Some(association) = association else { continue };
            if association.until_ns().is_some_and(|until_ns| now_ns >= until_ns) {
                let index = association.admin.index as usize;
                let _ = (0..LOOKS).all(|_| self.receive(index));
            }
        }
    }

    /// Handles a socket that has something, or takes something again.
    fn ready(&mut self, index: usize, flags: EventFlags) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP)
            || (flags.contains(EventFlags::RDHUP) && peer.is_stalled())
        {
            // Epoll would report it again and again, even while nothing is read.
            return self.close(index);
        }
        if flags.contains(EventFlags::OUT) && peer.full {
            self.flush(index);
        }
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        if !peer.busy {
            (peer.busy, peer.seen) = (true, true);
            self.busy.push(index);
        }
    }

    /// Leaves sockets on which nothing has come for a while to epoll.
    fn cool(&mut self, now_ns: u64) {
        let mut at = 0;
        while at < self.busy.len() {
            let index = self.busy[at];
            let Some(Some(peer)) = self.peers.get_mut(index) else {
                self.busy.swap_remove(at);
                continue;
            };
            if std::mem::take(&mut peer.seen) {
                peer.seen_ns = now_ns;
            }
            peer.listen(&self.epoll, index);
            let keep =
                peer.is_stalled() || peer.full || now_ns.saturating_sub(peer.seen_ns) < BUSY_NS;
            if keep {
                at += 1;
            } else {
                peer.busy = false;
                self.busy.swap_remove(at);
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS {
            match accept_with(&self.listener, flags) {
                Ok(stream) => self.admit(stream),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Without free descriptors the listener stays ready.
                    self.accept_ns = Some(self.engine.now_ns + NO_ACCEPT_NS);
                    let data = EventData::new_u64(LISTENER);
                    let none = EventFlags::empty();
                    let _ = epoll::modify(&self.epoll, &self.listener, data, none);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: OwnedFd) {
        let _ = set_tcp_nodelay(&stream, true);
        // The system notices hosts that died without a Keep Alive Timer.
        let _ = set_socket_keepalive(&stream, true);
        let _ = set_tcp_keepidle(&stream, PROBE_AFTER);
        let _ = set_tcp_keepintvl(&stream, PROBE_EVERY);
        let _ = set_tcp_keepcnt(&stream, PROBES);
        let Some(index) = self.engine.open() else { return };
        if self.engine.addr.ip().is_unspecified()
            && let Ok(local) = getsockname(&stream)
            && let Ok(local) = SocketAddr::try_from(local)
            && let Some(conn) = &mut self.engine.conns[index]
        {
            conn.local = Some((local.ip().to_canonical(), local.port()).into());
        }
        let data = EventData::new_u64(index as u64);
        if epoll::add(&self.epoll, stream.as_fd(), data, EventFlags::IN).is_err() {
            return self.engine.close(index);
        }
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        self.busy.push(index);
        self.peers[index] = Some(Peer {
            stream,
            left: Vec::new(),
            left_at: 0,
            seen: true,
            seen_ns: self.engine.now_ns,
            busy: true,
            full: false,
            interest: EventFlags::IN,
            shut: false,
        });
    }

    /// Returns how long the thread may sleep if nothing comes, or `None` if it should not sleep.
    fn may_sleep(&self, turn: Turn) -> Option<Option<Duration>> {
        /// The interval of the checks for completions that wait for room.
        const BLOCKED_NS: u64 = 1_000_000;
        let now_ns = self.engine.now_ns;
        let blocked = (turn == Turn::Blocked).then_some(now_ns + BLOCKED_NS);
        let due_ns = self.engine.next_event_ns().map(|at_ns| at_ns.saturating_sub(EARLY_NS));
        let tick_ns = self.engine.next_tick_ns().map(|at_ns| at_ns + TICK_NS);
        let until_ns = [blocked, due_ns, tick_ns, self.accept_ns].into_iter().flatten().min();
        match until_ns {
            None => Some(None),
            Some(until_ns) if until_ns <= now_ns => None,
            Some(until_ns) => Some(Some(Duration::from_nanos(until_ns - now_ns))),
        }
    }

    /// Sleeps until something comes, or for at most `time`.
    fn sleep(&mut self, time: Option<Duration>) {
        // Either the thread that pushes a call sees the flag, or this thread sees the call, because
        // both swap or fence.
        self.shared.asleep.swap(true, Ordering::SeqCst);
        let time = if self.shared.mailbox.is_waiting() { Some(Duration::ZERO) } else { time };
        self.engine.counters.sleeps.add(1);
        self.check(time);
        self.shared.asleep.swap(false, Ordering::SeqCst);
    }
}
