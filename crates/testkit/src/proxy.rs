//! A TCP proxy that is slow, stalls, and cuts connections where a test wants it to.
//!
//! Each chunk that comes in one way goes out on the other side a set time later. The proxy's thread
//! sleeps until shortly before that and spins for the rest; [`Proxy::lateness`] says how exact that
//! was. The time counts from when the proxy has seen the chunk: if it slept then, that is one
//! wake-up after it came. [`Proxy::stay_awake`] keeps it looking meanwhile.
//!
//! A connection can be lost for its client alone: what the client had sent is held, and reaches the
//! target later ([`Proxy::hold`], [`Proxy::hang_up`], [`Proxy::let_go`]).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_hw::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::Rng;

/// A sleep ends this long before a chunk is due: timer slack, and what a wake-up takes.
const SPIN_NS: u64 = 150_000;

/// What a receive takes at most.
const CHUNK_BYTES: usize = 64 << 10;

/// What may be under way in one direction of a connection; then the sender has to wait.
const UNDER_WAY_BYTES: usize = 4 << 20;

/// So many chunks' lateness is kept.
const SAMPLES: usize = 1 << 20;

const FOREVER_NS: u64 = u64::MAX;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target.
    Up,
    /// From the target to the client.
    Down,
}

/// Where connections are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Which connection, counted from 0. `None`: each.
    pub connection: Option<u64>,
    /// The direction whose bytes are counted.
    pub direction: Direction,
    /// The connection ends when so many bytes have been delivered: a number of this range, chosen
    /// anew for each connection.
    pub bytes: RangeInclusive<u64>,
    /// Both ends see a reset. Otherwise they see the end of the stream, or a reset if they had sent
    /// more.
    pub reset: bool,
}

impl Cut {
    /// The first connection after exactly `bytes`.
    pub fn first(direction: Direction, bytes: u64) -> Self {
        Self { connection: Some(0), direction, bytes: bytes..=bytes, reset: false }
    }
}

/// How much later than ordered chunks were delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lateness {
    /// Chunks that were neither stalled nor kept from a full socket.
    pub chunks: usize,
    pub median: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// What happens to a connection that there is.
#[derive(Clone, Copy)]
enum Now {
    Cut,
    Hold,
    HangUp,
    LetGo,
}

struct Orders {
    delay_ns: u64,
    awake_ns: u64,
    cut: Option<Cut>,
    stalled_until_ns: u64,
    refuse: bool,
    /// For one connection, or all; and how many of these orders were given and obeyed so far.
    now: Vec<(Option<u64>, Now)>,
    given: u64,
    obeyed: u64,
    end: bool,
    random: Rng,
}

#[derive(Default)]
struct Seen {
    connections: u64,
    /// Bytes delivered, up and down.
    delivered: [u64; 2],
    late_ns: Vec<u64>,
}

struct Shared {
    orders: Mutex<Orders>,
    obeys: Condvar,
    seen: Mutex<Seen>,
    event: OwnedFd,
    clock: Clock,
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy. Its connections end with it.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Forwards from a free port of this machine to `target`. `seed` chooses where cuts are.
    pub fn start(target: SocketAddr, seed: u64) -> io::Result<Self> {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), target, seed)
    }

    /// The same from `address`.
    pub fn listen(address: SocketAddr, target: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let orders = Orders {
            delay_ns: 0,
            awake_ns: 0,
            cut: None,
            stalled_until_ns: 0,
            refuse: false,
            now: Vec::new(),
            given: 0,
            obeyed: 0,
            end: false,
            random: Rng::new(seed),
        };
        let shared = Arc::new(Shared {
            orders: Mutex::new(orders),
            obeys: Condvar::new(),
            seen: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            clock: Clock::real(),
        });
        let theirs = Arc::clone(&shared);
        let thread = meantime_process::thread::spawn("meantime-proxy", move || {
            let buf = vec![0; CHUNK_BYTES];
            Forwarder { shared: theirs, listener, target, pairs: Vec::new(), buf }.run();
        })?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.shared.orders());
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
    }

    /// What comes from now on is delivered `time` later, in each direction.
    pub fn delay(&self, time: Duration) {
        self.order(|orders| orders.delay_ns = nanos(time));
    }

    /// Keeps looking, instead of sleeping, for `time` after anything has happened.
    pub fn stay_awake(&self, time: Duration) {
        self.order(|orders| orders.awake_ns = nanos(time));
    }

    /// Cuts connections that begin from now on.
    pub fn cut(&self, cut: impl Into<Option<Cut>>) {
        let cut = cut.into();
        self.order(|orders| orders.cut = cut);
    }

    /// Ends all connections by resets.
    pub fn cut_now(&self) {
        self.now(None, Now::Cut);
    }

    /// Ends connection `number`, counted from 0, by resets.
    pub fn cut_one(&self, number: u64) {
        self.now(Some(number), Now::Cut);
    }

    /// Holds what comes on connections that there are, or on one, for the target.
    pub fn hold(&self, number: impl Into<Option<u64>>) {
        self.now(number.into(), Now::Hold);
    }

    /// The clients of held connections see a reset. The target sees nothing, until they are let go.
    pub fn hang_up(&self, number: impl Into<Option<u64>>) {
        self.now(number.into(), Now::HangUp);
    }

    /// Delivers what was held, and the end if the client has gone.
    pub fn let_go(&self, number: impl Into<Option<u64>>) {
        self.now(number.into(), Now::LetGo);
    }

    /// Returns when it is obeyed: what is sent after that meets it.
    fn now(&self, number: Option<u64>, what: Now) {
        let mut turn = 0;
        self.order(|orders| {
            orders.now.push((number, what));
            orders.given += 1;
            turn = orders.given;
        });
        let is_pending = |orders: &mut Orders| orders.obeyed < turn;
        drop(self.shared.obeys.wait_while(self.shared.orders(), is_pending));
    }

    /// Ends connections as soon as they begin, until told otherwise.
    pub fn refuse(&self, refuse: bool) {
        self.order(|orders| orders.refuse = refuse);
    }

    /// Delivers nothing for `time`; connections stay open.
    pub fn stall(&self, time: Duration) {
        let until_ns = self.shared.clock.now_ns().saturating_add(nanos(time));
        self.order(|orders| orders.stalled_until_ns = until_ns);
    }

    /// Ends a stall.
    pub fn resume(&self) {
        self.order(|orders| orders.stalled_until_ns = 0);
    }

    /// How many connections have been accepted, with those refused.
    pub fn connections(&self) -> u64 {
        self.shared.seen().connections
    }

    /// The bytes delivered in one direction.
    pub fn delivered(&self, direction: Direction) -> u64 {
        self.shared.seen().delivered[direction as usize]
    }

    /// How late the chunks since the last call were.
    pub fn lateness(&self) -> Lateness {
        let mut late_ns = std::mem::take(&mut self.shared.seen().late_ns);
        late_ns.sort_unstable();
        let Some(last) = late_ns.len().checked_sub(1) else { return Lateness::default() };
        let at = |percent: usize| Duration::from_nanos(late_ns[last * percent / 100]);
        Lateness { chunks: late_ns.len(), median: at(50), p99: at(99), max: at(100) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.order(|orders| orders.end = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOREVER_NS)
}

/// What follows a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The end of its stream.
    End,
    Cut {
        reset: bool,
    },
}

struct Chunk {
    due_ns: u64,
    bytes: Vec<u8>,
    sent: usize,
    then: Then,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    chunks: VecDeque<Chunk>,
    under_way: usize,
    /// Bytes until the cut.
    cut: Option<(u64, bool)>,
    /// Nothing more is received.
    ended: bool,
    /// The end has been passed on.
    closed: bool,
    /// The socket is full.
    blocked: bool,
    /// Since when it is not.
    free_since_ns: u64,
}

/// What has become of a connection.
enum Fate {
    /// It goes on; whether anything has happened.
    Lives(bool),
    Ends {
        reset: bool,
    },
}

impl Pipe {
    fn receives(&self) -> bool {
        !self.ended && self.under_way < UNDER_WAY_BYTES
    }

    /// Takes what has come.
    fn receive(&mut self, mut from: &TcpStream, buf: &mut [u8], pace: &Pace) -> Fate {
        if !self.receives() {
            return Fate::Lives(false);
        }
        let (mut bytes, mut then) = match from.read(buf) {
            Ok(0) => (Vec::new(), Then::End),
            Ok(count) => (buf[..count].to_vec(), Then::Nothing),
            Err(error) if is_no_error(&error) => return Fate::Lives(false),
            Err(_) => return Fate::Ends { reset: true },
        };
        if let Some((left, reset)) = &mut self.cut {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
            if *left == 0 {
                then = Then::Cut { reset: *reset };
            }
        }
        self.ended = then != Then::Nothing;
        self.under_way += bytes.len();
        let due_ns = pace.clock.now_ns().saturating_add(pace.delay_ns);
        self.chunks.push_back(Chunk { due_ns, bytes, sent: 0, then });
        Fate::Lives(true)
    }

    /// Delivers what is due.
    fn deliver(
        &mut self,
        direction: Direction,
        mut to: &TcpStream,
        pace: &Pace,
        seen: &mut Seen,
    ) -> Fate {
        let mut some = false;
        while let Some(chunk) = self.chunks.front_mut() {
            let now_ns = pace.clock.now_ns();
            let due_ns = chunk.due_ns.max(pace.stalled_until_ns);
            if now_ns < due_ns {
                break;
            }
            let is_first = chunk.sent == 0 && !self.blocked;
            // Not of what waited for a stall to end, or for a socket: many chunks have one end.
            let is_on_time = due_ns == chunk.due_ns && due_ns > self.free_since_ns;
            if is_first && is_on_time && seen.late_ns.len() < SAMPLES {
                seen.late_ns.push(now_ns - due_ns);
            }
            while chunk.sent < chunk.bytes.len() {
                match to.write(&chunk.bytes[chunk.sent..]) {
                    Ok(count) => {
                        chunk.sent += count;
                        seen.delivered[direction as usize] += count as u64;
                        self.under_way -= count;
                        some = true;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if is_no_error(&error) => {
                        self.blocked = true;
                        return Fate::Lives(some);
                    }
                    Err(_) => return Fate::Ends { reset: true },
                }
            }
            if std::mem::take(&mut self.blocked) {
                self.free_since_ns = pace.clock.now_ns();
            }
            match chunk.then {
                Then::Nothing => {}
                Then::End => {
                    self.closed = true;
                    let _ = to.shutdown(Shutdown::Write);
                }
                Then::Cut { reset } => return Fate::Ends { reset },
            }
            self.chunks.pop_front();
        }
        Fate::Lives(some)
    }

    /// When it has to be looked at, without an event.
    fn due_ns(&self, stalled_until_ns: u64) -> u64 {
        match self.chunks.front() {
            Some(chunk) if !self.blocked => chunk.due_ns.max(stalled_until_ns),
            _ => FOREVER_NS,
        }
    }
}

fn is_no_error(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The orders for chunks.
struct Pace<'a> {
    clock: &'a Clock,
    delay_ns: u64,
    awake_ns: u64,
    stalled_until_ns: u64,
}

/// A connection: both its streams, and both directions.
struct Pair {
    number: u64,
    /// `None`: it has seen its end.
    client: Option<TcpStream>,
    target: TcpStream,
    up: Pipe,
    down: Pipe,
    is_held: bool,
}

impl Pair {
    fn poll(&mut self, buf: &mut [u8], pace: &Pace, seen: &mut Seen) -> Fate {
        let Self { client, target, up, down, is_held, .. } = self;
        let Some(client) = client else {
            if *is_held {
                return Fate::Lives(false);
            }
            return match up.deliver(Direction::Up, target, pace, seen) {
                Fate::Lives(some) if !up.chunks.is_empty() => Fate::Lives(some),
                _ => Fate::Ends { reset: false },
            };
        };
        let mut some = false;
        for (direction, from, to, pipe) in
            [(Direction::Up, &*client, &*target, up), (Direction::Down, &*target, &*client, down)]
        {
            let waits = direction == Direction::Up && *is_held;
            let received = pipe.receive(from, buf, pace);
            let delivered = (!waits).then(|| pipe.deliver(direction, to, pace, seen));
            for fate in std::iter::once(received).chain(delivered) {
                match fate {
                    Fate::Lives(now) => some |= now,
                    ends => return ends,
                }
            }
        }
        if self.up.closed && self.down.closed {
            return Fate::Ends { reset: false };
        }
        Fate::Lives(some)
    }

    /// Those that deliver.
    fn pipes(&self) -> impl Iterator<Item = &Pipe> {
        let up = (!self.is_held).then_some(&self.up);
        up.into_iter().chain(self.client.is_some().then_some(&self.down))
    }

    /// Does as ordered. False: it ends.
    fn obey(&mut self, what: Now) -> bool {
        match what {
            Now::Cut => return false,
            Now::Hold => self.is_held = true,
            Now::LetGo => self.is_held = false,
            Now::HangUp if self.is_held => {
                if let Some(client) = self.client.take() {
                    end(&client, true);
                }
            }
            Now::HangUp => {}
        }
        true
    }

    fn end(self, reset: bool) {
        if let Some(client) = &self.client {
            end(client, reset);
        }
        end(&self.target, reset);
    }
}

/// Prepares a stream to be closed.
fn end(stream: &TcpStream, reset: bool) {
    if reset {
        let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    } else {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

struct Forwarder {
    shared: Arc<Shared>,
    listener: TcpListener,
    target: SocketAddr,
    pairs: Vec<Pair>,
    buf: Vec<u8>,
}

impl Forwarder {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut active_ns = 0;
        loop {
            let mut orders = shared.orders();
            if orders.end {
                return;
            }
            let pace = Pace {
                clock: &shared.clock,
                delay_ns: orders.delay_ns,
                awake_ns: orders.awake_ns,
                stalled_until_ns: orders.stalled_until_ns,
            };
            let now = std::mem::take(&mut orders.now);
            drop(orders);
            for (number, what) in now {
                let concerns = |pair: &mut Pair| number.is_none_or(|one| one == pair.number);
                let ends = self.pairs.extract_if(.., |pair| concerns(pair) && !pair.obey(what));
                ends.for_each(|pair| pair.end(true));
                shared.orders().obeyed += 1;
                shared.obeys.notify_all();
            }
            let some = self.accept() | self.poll(&pace);
            let now_ns = shared.clock.now_ns();
            if some {
                active_ns = now_ns;
            }
            let is_awake = !self.pairs.is_empty() && now_ns - active_ns < pace.awake_ns;
            let pipes = self.pairs.iter().flat_map(Pair::pipes);
            let due_ns = pipes.map(|pipe| pipe.due_ns(pace.stalled_until_ns)).min();
            let due_ns = due_ns.unwrap_or(FOREVER_NS);
            if !some && !is_awake && due_ns > now_ns.saturating_add(SPIN_NS) {
                self.sleep((due_ns < FOREVER_NS).then(|| due_ns - now_ns - SPIN_NS));
            }
        }
    }

    /// Accepts a connection, if one has come.
    fn accept(&mut self) -> bool {
        let Ok((client, _)) = self.listener.accept() else { return false };
        let number = self.shared.seen().connections;
        let (mut up, mut down) = (Pipe::default(), Pipe::default());
        let refused = {
            let mut orders = self.shared.orders();
            let Orders { cut, random, refuse, .. } = &mut *orders;
            if let Some(cut) =
                cut.as_ref().filter(|cut| cut.connection.is_none_or(|one| one == number))
            {
                let span = cut.bytes.end().saturating_sub(*cut.bytes.start());
                let left = cut.bytes.start() + random.below(span.saturating_add(1));
                let pipe = if cut.direction == Direction::Up { &mut up } else { &mut down };
                pipe.cut = Some((left, cut.reset));
            }
            *refuse
        };
        let at_once = [&up, &down].iter().any(|pipe| pipe.cut.is_some_and(|(left, _)| left == 0));
        let resets = [&up, &down].iter().any(|pipe| pipe.cut.is_some_and(|(_, reset)| reset));
        if refused || at_once {
            end(&client, at_once && resets);
        } else {
            let target = TcpStream::connect_timeout(&self.target, Duration::from_secs(5));
            let prepare = |stream: &TcpStream| {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            };
            if let Ok(target) = target
                && prepare(&client).and_then(|()| prepare(&target)).is_ok()
            {
                let client = Some(client);
                self.pairs.push(Pair { number, client, target, up, down, is_held: false });
            }
        }
        // Last: whoever sees the number sees what has become of it.
        self.shared.seen().connections += 1;
        true
    }

    /// Looks at all connections.
    fn poll(&mut self, pace: &Pace) -> bool {
        let shared = Arc::clone(&self.shared);
        // Held while it looks: whoever has received something finds it counted.
        let mut seen = shared.seen();
        let (mut some, mut at) = (false, 0);
        while at < self.pairs.len() {
            match self.pairs[at].poll(&mut self.buf, pace, &mut seen) {
                Fate::Lives(now) => {
                    some |= now;
                    at += 1;
                }
                Fate::Ends { reset } => {
                    self.pairs.remove(at).end(reset);
                    some = true;
                }
            }
        }
        some
    }

    /// Sleeps until something comes, or for `ns`.
    fn sleep(&self, ns: Option<u64>) {
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.shared.event, PollFlags::IN),
        ];
        for Pair { client, target, up, down, .. } in &self.pairs {
            for (stream, into, out_of) in [(client.as_ref(), down, up), (Some(target), up, down)] {
                let Some(stream) = stream else { continue };
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, client.is_some() && out_of.receives());
                flags.set(PollFlags::OUT, into.blocked);
                // A stream that has failed would wake us all the time.
                if !flags.is_empty() {
                    fds.push(PollFd::new(stream, flags));
                }
            }
        }
        let time = ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let _ = poll(&mut fds, time.as_ref());
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
    }
}
