//! The discovery service: which subsystems a target has (NVMe-oF 1.1 §5).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use meantime_nvme_spec::bytes::text;
use meantime_nvme_spec::fabrics::{
    CNTLID_DYNAMIC, DISCOVERY_LOG, DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, SubsystemType,
    nqn,
};
use meantime_nvme_spec::regs::{CC, CSTS, Cc, Csts};
use meantime_nvme_spec::sqe::Sqe;
use zerocopy::FromBytes;

use crate::address::TcpAddress;
use crate::connection::Connection;
use crate::dial::{ADMIN_ENTRIES, Dialer};
use crate::error::{FabricsError, Result};
use crate::memory::Memory;
use crate::transport::TcpOptions;

/// The most records that are read.
const RECORDS_MAX: u64 = 1024;

/// The number of attempts to read the log while it changes.
const TRIES: usize = 3;

/// A record of the discovery log. All its text is the target's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// The kind of subsystem; `None` if it is unknown.
    pub kind: Option<SubsystemType>,
    /// Transport Type: 3 is TCP.
    pub trtype: u8,
    /// Address.
    pub address: String,
    /// Port.
    pub service: String,
    /// NQN.
    pub nqn: String,
    /// Port ID.
    pub port_id: u16,
    /// Whether the record asks for a secure channel.
    pub needs_secure_channel: bool,
}

/// Asks the discovery service at `address` for its subsystems.
///
/// # Errors
/// Returns the reason, and a remedy.
pub fn discover(address: &TcpAddress, options: &TcpOptions) -> Result<Vec<Subsystem>> {
    let address = TcpAddress { nqn: DISCOVERY_NQN.to_owned(), ..address.clone() };
    let dialer = Dialer {
        address,
        resolved: Mutex::default(),
        host: options.host.clone(),
        credentials: options.credentials.clone(),
        kato_ms: 0,
        dgst: options.digests & 3,
        timeout: Duration::from_nanos(options.timeout_ns),
    };
    let (memory, identified) = (Memory::default(), Arc::default());
    let (mut connection, _) =
        dialer.connect(&memory, &identified, 0, ADMIN_ENTRIES, CNTLID_DYNAMIC, dialer.timeout)?;
    let mut session = Session { dialer: &dialer, memory: &memory, connection: &mut connection };
    session.enable()?;
    session.records()
}

struct Session<'a> {
    dialer: &'a Dialer,
    memory: &'a Memory,
    connection: &'a mut Connection,
}

impl Session<'_> {
    fn execute(&mut self, sqe: Sqe, bytes: u32, what: &'static str) -> Result<(u64, Vec<u8>)> {
        let Self { dialer, memory, connection } = self;
        let (cqe, data) = dialer.execute(connection, memory, sqe, bytes, what, dialer.timeout)?;
        Ok((u64::from(cqe.dw0.get()), data))
    }

    fn invalid(&self, what: impl Into<String>) -> FabricsError {
        let address = self.dialer.address.authority();
        FabricsError::Unsupported { address, what: what.into() }
    }

    fn enable(&mut self) -> Result<()> {
        let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_en(true);
        self.execute(Sqe::property_set(0, CC, 4, cc.0.into()), 0, "Property Set (CC)")?;
        for _ in 0..1000 {
            let (csts, _) =
                self.execute(Sqe::property_get(0, CSTS, 4), 0, "Property Get (CSTS)")?;
            if Csts(csts as u32).rdy() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.invalid("its discovery controller does not become ready"))
    }

    /// `bytes` of the log at `offset`.
    fn log(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let sqe = Sqe::get_log_page(0, 0, DISCOVERY_LOG, 0, false, bytes / 4, offset, 0, 0);
        let (_, data) = self.execute(sqe, bytes, "Get Log Page (discovery)")?;
        if data.len() == bytes as usize {
            Ok(data)
        } else {
            Err(self.invalid(format!("{} of {bytes} bytes of its discovery log", data.len())))
        }
    }

    fn header(&mut self) -> Result<DiscoveryHeader> {
        let data = self.log(0, size_of::<DiscoveryHeader>() as u32)?;
        DiscoveryHeader::read_from_bytes(&data).map_err(|_| self.invalid("a short discovery log"))
    }

    fn records(&mut self) -> Result<Vec<Subsystem>> {
        for _ in 0..TRIES {
            let header = self.header()?;
            let count = header.numrec.get();
            if count > RECORDS_MAX {
                return Err(self.invalid(format!("{count} records in its discovery log")));
            }
            let mut records = Vec::new();
            for index in 0..count {
                let bytes = size_of::<DiscoveryEntry>();
                let data = self.log((index + 1) * bytes as u64, bytes as u32)?;
                let entry = DiscoveryEntry::read_from_bytes(&data);
                records.push(record(&entry.map_err(|_| self.invalid("a short record"))?));
            }
            // The log has not changed meanwhile.
            if self.header()?.genctr == header.genctr {
                return Ok(records);
            }
        }
        Err(self.invalid("its discovery log changes all the time"))
    }
}

fn record(entry: &DiscoveryEntry) -> Subsystem {
    Subsystem {
        kind: SubsystemType::try_from(entry.subtype).ok(),
        trtype: entry.trtype,
        address: text(&entry.traddr).to_owned(),
        service: text(&entry.trsvcid).to_owned(),
        nqn: nqn(&entry.subnqn).unwrap_or_default().to_owned(),
        port_id: entry.portid.get(),
        needs_secure_channel: entry.treq & 3 == 1,
    }
}
