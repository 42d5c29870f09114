//! Connects a queue to an address: TCP, ICReq, Connect.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::{CNTLID_DYNAMIC, ConnectData, cattr, set_zero_ended};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::tcp::{
    ADMIN_CAPSULE_BYTES, CommonHeader, FatalError, InitializeConnection, MAXH2CDATA_MIN, PFV_1_0,
    PduType, TermReq,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use zerocopy::{FromBytes, IntoBytes};

use crate::address::{Host, TcpAddress};
use crate::connection::{Agreed, Connection};
use crate::credentials::Credentials;
use crate::error::{FabricsError, Result};
use crate::identified::Identified;
use crate::memory::Memory;

/// Entries of the admin queue.
pub(crate) const ADMIN_ENTRIES: u16 = 32;

/// The time limit of something that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    begun: Instant,
    at: Instant,
}

impl Until {
    fn after(time: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, at: begun + time }
    }

    fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Looks up the addresses of `host`. The resolver takes no time-out, and waits for long where the
/// network is down. So a separate thread asks it, which ends when it has an answer.
fn look_up(host: &str, port: u16, until: Until) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let (send, receive) = mpsc::sync_channel(1);
    let host = host.to_owned();
    meantime_process::thread::spawn("meantime-names", move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        let _ = send.send(found);
    })?;
    receive.recv_timeout(until.left()).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// How to reach a target, and as which host.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) address: TcpAddress,
    /// The addresses of its name when an admin queue was last connected.
    pub(crate) resolved: Mutex<Vec<SocketAddr>>,
    pub(crate) host: Host,
    /// What the host proves, and the target has to.
    pub(crate) credentials: Option<Credentials>,
    /// Keep Alive Timeout, in ms; 0 disables it.
    pub(crate) kato_ms: u32,
    /// Digests to ask for.
    pub(crate) dgst: u8,
    /// The time limit for connecting an admin queue, and for each command of the connection's own.
    pub(crate) timeout: Duration,
}

impl Dialer {
    fn name(&self) -> String {
        self.address.authority()
    }

    fn ended(&self, why: impl ToString) -> FabricsError {
        FabricsError::Ended { address: self.name(), why: why.to_string() }
    }

    /// The addresses to try. For an admin queue they are looked up anew, if that works in time.
    fn addresses(&self, qid: u16, until: Until) -> Result<Vec<SocketAddr>> {
        let TcpAddress { host, port, .. } = &self.address;
        let mut known = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        if qid == 0 {
            match look_up(host, *port, until) {
                Ok(found) => *known = found,
                Err(source) if known.is_empty() => {
                    return Err(FabricsError::Resolve { host: host.clone(), source });
                }
                Err(_) => {}
            }
        }
        Ok(known.clone())
    }

    /// A TCP connection that does not block.
    fn tcp(&self, qid: u16, until: Until) -> Result<Arc<OwnedFd>> {
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in self.addresses(qid, until)? {
            match TcpStream::connect_timeout(&address, until.left().max(Duration::from_millis(1))) {
                Ok(stream) => {
                    let os = |source| FabricsError::Os { what: "cannot set up a socket", source };
                    stream.set_nodelay(true).map_err(os)?;
                    stream.set_nonblocking(true).map_err(os)?;
                    return Ok(Arc::new(stream.into()));
                }
                Err(error) => last = error,
            }
        }
        Err(FabricsError::Connect { address: self.name(), source: last })
    }

    /// Waits until `fd` is ready. Returns an error when `until` has passed.
    fn wait(&self, fd: &OwnedFd, flags: PollFlags, until: Until, what: &'static str) -> Result<()> {
        if wait_for(fd, flags, until.at) {
            Ok(())
        } else {
            let time = until.at - until.begun;
            Err(FabricsError::Late { address: self.name(), what, time })
        }
    }

    /// Sends ICReq and checks ICResp (NVMe/TCP 1.0 §3.6.2.2, §3.6.2.3).
    fn initialize(&self, fd: &OwnedFd, in_capsule_bytes: u32, until: Until) -> Result<Agreed> {
        let mut request = InitializeConnection::default();
        request.common = CommonHeader::new(PduType::IcReq, 128, 0);
        (request.pfv, request.dgst) = (PFV_1_0.into(), self.dgst);
        // An empty socket has room for 128 bytes.
        send(fd, request.as_bytes(), SendFlags::NOSIGNAL).map_err(|errno| self.ended(errno))?;
        let mut bytes = [0; size_of::<InitializeConnection>()];
        let mut came = 0;
        while came < bytes.len() {
            self.wait(fd, PollFlags::IN, until, "ICReq")?;
            match recv(fd, &mut bytes[came..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => {
                    return Err(self.ended(without_answer(&bytes[..came])));
                }
                Ok((more, _)) => came += more,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.ended(errno)),
            }
            if came >= size_of::<TermReq>() && bytes[0] == PduType::TargetTermReq as u8 {
                let fes = TermReq::read_from_prefix(&bytes).map_or(0, |(pdu, _)| pdu.fes.get());
                let why = FatalError::try_from(fes).map_or("unknown reason", FatalError::name);
                return Err(self.ended(format!("the target refused ICReq: {why}")));
            }
        }
        let unsupported = |what: String| FabricsError::Unsupported { address: self.name(), what };
        let Ok(response) = InitializeConnection::read_from_bytes(&bytes) else {
            return Err(unsupported("no ICResp".into()));
        };
        let common = response.common;
        if common.kind != PduType::IcResp as u8 || common.hlen != 128 || common.plen.get() != 128 {
            return Err(unsupported(format!(
                "it answered ICReq by type {:#x}, HLEN {}, PLEN {}: no NVMe/TCP target?",
                common.kind, common.hlen, common.plen
            )));
        }
        if response.pfv.get() != PFV_1_0 || response.pda != 0 {
            return Err(unsupported(format!(
                "it wants format {} with CPDA {}; both are 0 here",
                response.pfv, response.pda
            )));
        }
        if response.dgst != self.dgst {
            return Err(unsupported(format!(
                "digests {:#x} were asked for, and it has {:#x}: change digest=",
                self.dgst, response.dgst
            )));
        }
        let maxh2c_bytes = response.limit.get();
        if maxh2c_bytes < MAXH2CDATA_MIN {
            return Err(unsupported(format!("its MAXH2CDATA is {maxh2c_bytes}")));
        }
        Ok(Agreed { dgst: self.dgst, maxh2c_bytes: maxh2c_bytes & !3, in_capsule_bytes })
    }

    /// Connects queue `qid` with `entries` entries to controller `cntlid`, which is
    /// [`CNTLID_DYNAMIC`] for an admin queue, within `time`. Returns the connection and the
    /// controller.
    pub(crate) fn connect(
        &self,
        memory: &Memory,
        identified: &Arc<Identified>,
        qid: u16,
        entries: u16,
        cntlid: u16,
        time: Duration,
    ) -> Result<(Connection, u16)> {
        let until = Until::after(time);
        let fd = self.tcp(qid, until)?;
        let in_capsule_bytes =
            if qid == 0 { ADMIN_CAPSULE_BYTES as u32 } else { identified.in_capsule_bytes() };
        let agreed = self.initialize(&fd, in_capsule_bytes, until)?;
        let mut connection = Connection::new(fd, qid, agreed, identified);
        let kato_ms = if qid == 0 { self.kato_ms } else { 0 };
        let sqe = Sqe::connect(0, qid, entries, cattr::DISABLE_SQ_FLOW, kato_ms);
        let mut data = ConnectData::default();
        data.hostid = self.host.id;
        data.cntlid.set(if qid == 0 { CNTLID_DYNAMIC } else { cntlid });
        set_zero_ended(&mut data.subnqn, &self.address.nqn);
        set_zero_ended(&mut data.hostnqn, &self.host.nqn);
        let (cqe, _) =
            self.execute_until(until, &mut connection, memory, sqe, data.as_bytes(), 0, "Connect")?;
        let dw0 = cqe.dw0.get();
        self.authenticate(&mut connection, memory, qid, dw0, until)?;
        Ok((connection, dw0 as u16))
    }

    /// Sends a command of the connection's own that reads `bytes`, and waits for its end, for at
    /// most `time`. Other commands of the connection go on.
    pub(crate) fn execute(
        &self,
        connection: &mut Connection,
        memory: &Memory,
        sqe: Sqe,
        bytes: u32,
        what: &'static str,
        time: Duration,
    ) -> Result<(Cqe, Vec<u8>)> {
        let until = Until::after(time);
        self.execute_until(until, connection, memory, sqe, &[], bytes, what)
    }

    #[expect(clippy::too_many_arguments, reason = "a command, its data, where and until when")]
    pub(crate) fn execute_until(
        &self,
        until: Until,
        connection: &mut Connection,
        memory: &Memory,
        sqe: Sqe,
        data: &[u8],
        bytes: u32,
        what: &'static str,
    ) -> Result<(Cqe, Vec<u8>)> {
        // A Keep Alive may be under way.
        while connection.is_own_busy() {
            self.step(connection, memory, until, what)?;
        }
        connection.take_own();
        connection.start_own(&memory.mapped(), sqe, data, bytes);
        loop {
            if let Some((cqe, data)) = connection.take_own() {
                if cqe.status().is_success() {
                    return Ok((cqe, data));
                }
                let (address, status) = (self.name(), cqe.status());
                let host = self.host.nqn.clone();
                return Err(FabricsError::Refused { address, what, status, host });
            }
            self.step(connection, memory, until, what)?;
        }
    }

    fn step(
        &self,
        connection: &mut Connection,
        memory: &Memory,
        until: Until,
        what: &'static str,
    ) -> Result<()> {
        connection.progress(&memory.mapped());
        if let Some(why) = connection.ended() {
            return Err(self.ended(format!("{why} (during {what})")));
        }
        if connection.has_own_end() {
            return Ok(());
        }
        let fd = Arc::clone(&connection.socket);
        self.wait(&fd, connection.waits_for(), until, what)
    }
}

/// Returns why a target has closed the connection before it answered ICReq, as far as the bytes
/// that `came` show. A target that waits for a TLS handshake cannot say so by a PDU.
fn without_answer(came: &[u8]) -> &'static str {
    match came {
        // A TLS record: an alert, of any version.
        [0x15, 3, ..] => "the target wants TLS, which is not here yet: allow it plain TCP",
        [] => {
            "the target closed it before it had answered ICReq; perhaps it wants TLS, which is not \
             here yet (then allow it plain TCP), or is no NVMe/TCP target"
        }
        _ => "the target closed it within its answer to ICReq",
    }
}

/// Waits until `fd` is ready. Returns false when `until` has passed.
pub(crate) fn wait_for(fd: impl AsFd, flags: PollFlags, until: Instant) -> bool {
    let timeout = timespec(until.saturating_duration_since(Instant::now()));
    let mut fds = [PollFd::new(&fd, flags)];
    // A signal handler may have run: the caller looks again.
    !matches!(poll(&mut fds, Some(&timeout)), Ok(0))
}

/// The kernel's form of a time.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
