//! Device URIs (docs/guide.md): `mem:1G?model=optane`, `file:disk.img?model=zssd`,
//! `vfio:0000:01:00.0`, `vfio-user:/run/ssd.sock`, `nvme+tcp://192.0.2.7/NQN`,
//! `kernel:/dev/nvme0n1`.

mod parameters;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use meantime_fabrics::{KATO_MIN_MS, TcpAddress, parse_uuid};
use meantime_hw::clock::parse_time_ns;
use meantime_hw::pci::{PciAddress, PciAddressError};
use meantime_nvme::ControllerOptions;
use meantime_nvme_spec::fabrics::is_nqn;
use meantime_nvme_spec::tcp::dgst;
use meantime_partitions::Selector;

pub use parameters::UriParameter;

/// A parsed device URI.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uri {
    /// A software SSD with a DRAM medium of this number of bytes.
    Mem {
        /// Size of all namespaces together.
        bytes: u64,
        /// The SSD's properties.
        soft: SoftUri,
    },
    /// A software SSD whose medium is a file.
    File {
        /// The file.
        path: PathBuf,
        /// The SSD's properties.
        soft: SoftUri,
    },
    /// An SSD in this machine, through vfio-pci.
    Vfio {
        /// Its PCI address.
        address: PciAddress,
        /// The driver's parameters.
        nvme: NvmeUri,
    },
    /// A controller that another process serves over vfio-user.
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// The driver's parameters.
        nvme: NvmeUri,
    },
    /// A namespace of an NVMe/TCP target.
    Tcp {
        /// The target and its subsystem.
        address: TcpAddress,
        /// The connection's parameters.
        tcp: TcpUri,
    },
    /// A file or block device of the kernel's own stack, or an NVMe namespace's character device.
    Kernel {
        /// The file.
        path: PathBuf,
        /// The kernel's parameters.
        kernel: KernelUri,
    },
}

/// The interface for the kernel's I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelEngine {
    /// `io_uring`.
    #[default]
    IoUring,
    /// `preadv2` and `pwritev2`, which do one I/O at a time.
    Preadv2,
}

/// The parameters of `kernel:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelUri {
    /// The interface for I/O.
    pub engine: KernelEngine,
    /// Whether to bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// Whether memory and file are registered with io_uring. `None` registers them if the kernel
    /// permits.
    pub fixed: Option<bool>,
    /// Logical block size, if larger than the device's.
    pub lba_bytes: Option<u32>,
    /// The number of bytes with which to create the file if it does not exist.
    pub create_bytes: Option<u64>,
}

impl Default for KernelUri {
    fn default() -> Self {
        Self {
            engine: KernelEngine::IoUring,
            direct: true,
            fixed: None,
            lba_bytes: None,
            create_bytes: None,
        }
    }
}

/// Interrupt coalescing (NVMe Base 1.4 §5.21.1.8). It applies to all I/O queues of the controller,
/// not to the admin queue. It is set when the device is opened, and not saved in the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// An interrupt comes after this many completions (1 to 256); 1 means at once for each.
    pub completions: u16,
    /// The interrupt comes after this time at the latest, in units of 100 µs (1 to 255).
    pub time_100us: u8,
}

/// The parameters that `vfio:` and `vfio-user:` share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmeUri {
    /// The namespace to open.
    pub nsid: u32,
    /// Whether to describe data by SGLs instead of PRPs, if the controller has them.
    pub sgl: bool,
    /// Whether to shadow doorbells. `None` does so if the controller supports it and its doorbells
    /// are slow.
    pub shadow: Option<bool>,
    /// Whether to continue without an IOMMU (`vfio:` only): the device can then write anywhere in
    /// this machine's memory.
    pub no_iommu: bool,
    /// Interrupt coalescing. `None` leaves it as the device has it.
    pub coalesce: Option<Coalescing>,
}

impl Default for NvmeUri {
    fn default() -> Self {
        Self { nsid: 1, sgl: false, shadow: None, no_iommu: false, coalesce: None }
    }
}

/// The parameters of `nvme+tcp:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpUri {
    /// The namespace to open.
    pub nsid: u32,
    /// The host's NQN; `None` selects this machine's.
    pub hostnqn: Option<String>,
    /// The host's identifier; `None` selects this machine's.
    pub hostid: Option<[u8; 16]>,
    /// Digests of headers, bit 0, and of data, bit 1.
    pub digests: u8,
    /// Keep Alive Timeout, in ms.
    pub kato_ms: u32,
    /// How long to try to connect again after the connection was lost, in ms. `None` selects a
    /// minute, or longer if the target's Keep Alive Timeout is longer.
    pub loss_ms: Option<u32>,
    /// A file with the host's key (DH-HMAC-CHAP), and perhaps the controllers'.
    pub dhchap_keys: Option<PathBuf>,
}

impl Default for TcpUri {
    fn default() -> Self {
        Self {
            nsid: 1,
            hostnqn: None,
            hostid: None,
            digests: 0,
            kato_ms: 5_000,
            loss_ms: None,
            dhchap_keys: None,
        }
    }
}

impl NvmeUri {
    /// Applies the URI's values to `options`.
    pub(crate) fn options(&self, options: ControllerOptions) -> ControllerOptions {
        let shadow_doorbells = self.shadow.or(options.shadow_doorbells);
        ControllerOptions { sgl: options.sgl || self.sgl, shadow_doorbells, ..options }
    }
}

/// The parameters that `mem:` and `file:` share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftUri {
    /// Service-time model: a name, or the path of a TOML file.
    pub model: String,
    /// Logical block size: 512 or 4096.
    pub lba_bytes: u32,
    /// Volatile write cache. By default a file has one, because the host's page cache is one.
    pub volatile_write_cache: Option<bool>,
    /// Number of namespaces that share the medium.
    pub namespaces: u32,
    /// The namespace to open.
    pub nsid: u32,
    /// The most data of one command, in bytes.
    pub mdts_bytes: Option<u32>,
    /// Optimal I/O boundary in logical blocks.
    pub boundary_blocks: u16,
    /// The CPU of the SSD's thread.
    pub cpu: Option<usize>,
    /// Whether the SSD has no thread: the threads that wait for it run it.
    pub inline: bool,
    /// Number of I/O queue pairs.
    pub queues: Option<u16>,
    /// Interrupt vectors, including the admin queue's.
    pub vectors: Option<u16>,
    /// Whether to refuse also harmless violations that hosts commit when they disconnect, e.g.
    /// freeing the memory of queues without deleting them.
    pub strict: bool,
    /// Whether to lock the driver's memory, as a real device requires.
    pub lock: bool,
    /// The SSD's fault plan: a TOML file.
    pub faults: Option<PathBuf>,
    /// The number of bytes with which to create the file if it does not exist.
    pub create_bytes: Option<u64>,
    /// Whether to open the file read-only, and share it with other readers (`file:` only).
    pub read_only: bool,
    /// Interrupt coalescing, which the driver sets.
    pub coalesce: Option<Coalescing>,
}

impl Default for SoftUri {
    fn default() -> Self {
        Self {
            model: "null".into(),
            lba_bytes: 512,
            volatile_write_cache: None,
            namespaces: 1,
            nsid: 1,
            mdts_bytes: None,
            boundary_blocks: 0,
            cpu: None,
            inline: false,
            queues: None,
            vectors: None,
            strict: false,
            lock: false,
            faults: None,
            create_bytes: None,
            read_only: false,
            coalesce: None,
        }
    }
}

/// The text is not a device URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device {uri:?}: {what}")]
pub struct UriError {
    /// The text.
    pub uri: String,
    /// What is wrong with it, and what is allowed.
    pub what: String,
}

const SCHEMES: &str = "use mem:SIZE (e.g. mem:1G?model=optane), file:PATH (e.g. \
    file:disk.img?model=zssd), vfio:ADDRESS (e.g. vfio:0000:01:00.0), vfio-user:SOCKET (e.g. \
    vfio-user:/run/ssd.sock), nvme+tcp://HOST[:PORT]/NQN or kernel:PATH (e.g. kernel:/dev/nvme0n1)";

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let uri = parse(text).map_err(|what| UriError { uri: text.to_owned(), what })?;
        text.parse::<CommonUri>()?;
        Ok(uri)
    }
}

/// The parameters that every scheme has: they are about what becomes of the opened device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommonUri {
    /// The partition to open instead of the whole device.
    pub partition: Option<Selector>,
    /// Whether a program may write the device although something lies on it
    /// ([`OpenOptions::protect`](super::OpenOptions::protect)).
    pub overwrite: bool,
}

/// Parses these parameters of a URI, whose other parts are not checked.
impl FromStr for CommonUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let mut common = Self::default();
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let wrong = |what| UriError { uri: uri.to_owned(), what };
            let parameter = Parameter { key, value };
            match key {
                "partition" => {
                    let selector =
                        value.parse().map_err(|why| wrong(format!("{key}={value}: {why}")))?;
                    common.partition = Some(selector);
                }
                "overwrite" => common.overwrite = parameter.flag().map_err(wrong)?,
                _ => {}
            }
        }
        Ok(common)
    }
}

fn parse(text: &str) -> Result<Uri, String> {
    let (scheme, rest) = text.split_once(':').ok_or_else(|| no_scheme(text))?;
    let (target, query) = match rest.split_once('?') {
        Some((target, query)) => (target, Some(query)),
        None => (rest, None),
    };
    // The error for an empty target, which names the expected one.
    let needs = |what: &str| if target.is_empty() { Err(what.to_owned()) } else { Ok(()) };
    match scheme {
        "mem" => parse_mem(target, query),
        "file" => {
            needs("no file name; e.g. file:disk.img")?;
            parse_file(target, query)
        }
        "kernel" => {
            needs("no file name; e.g. kernel:/dev/nvme0n1 or kernel:disk.img")?;
            parse_kernel(target, query)
        }
        "vfio" => {
            let address = target.parse().map_err(|error: PciAddressError| error.to_string())?;
            Ok(Uri::Vfio { address, nvme: parse_nvme(query, scheme)? })
        }
        "vfio-user" => {
            needs("no socket; e.g. vfio-user:/run/ssd.sock")?;
            Ok(Uri::VfioUser { path: target.into(), nvme: parse_nvme(query, scheme)? })
        }
        "nvme+tcp" => Ok(Uri::Tcp { address: TcpAddress::parse(target)?, tcp: parse_tcp(query)? }),
        // A path may contain a colon. A PCI address and an address with a port do.
        _ if scheme.contains(['/', '.'])
            || text.parse::<PciAddress>().is_ok()
            || is_address(text) =>
        {
            Err(no_scheme(text))
        }
        _ => Err(format!("unknown scheme {scheme:?}; {SCHEMES}")),
    }
}

/// Whether a text is the address of a machine, perhaps with a port and an NQN: `192.0.2.7`,
/// `[::1]:4420`, `host:4420`.
fn is_address(text: &str) -> bool {
    let host = text.split_once('/').map_or(text, |(host, _)| host);
    // Smaller numbers belong to other services.
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port >= 1024);
    host.parse::<IpAddr>().is_ok()
        || host.parse::<SocketAddr>().is_ok()
        || host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && is_port(port))
        || host.starts_with('[') && host.ends_with(']')
}

/// The error for a text without a scheme, with the likely intended URI if it looks like a path.
fn no_scheme(text: &str) -> String {
    let path = text.split_once('?').map_or(text, |(path, _)| path);
    if path.parse::<Ipv6Addr>().is_ok() {
        return format!("no scheme: did you mean nvme+tcp://[{text}]? {SCHEMES}");
    }
    let likely = match path {
        _ if path.parse::<PciAddress>().is_ok() => "vfio:",
        _ if is_address(path) => "nvme+tcp://",
        _ if path.starts_with("/dev/") => "kernel:",
        _ if path.contains('/') || Path::new(path).extension().is_some() => "file:",
        _ => return format!("no scheme; {SCHEMES}"),
    };
    format!("no scheme: did you mean {likely}{text}? {SCHEMES}")
}

/// One parameter of a URI.
#[derive(Clone, Copy)]
struct Parameter<'a> {
    key: &'a str,
    value: &'a str,
}

impl Parameter<'_> {
    fn wrong(&self, wanted: &str) -> String {
        format!("{}={}: {wanted}", self.key, self.value)
    }

    /// The error for a key that is none of the scheme's.
    fn unknown(&self, scheme: &str) -> String {
        format!("unknown parameter {:?}; parameters are {}", self.key, parameters::names(scheme))
    }

    /// The value as a text; `wanted` describes the expected one if it is missing.
    fn text(&self, wanted: &str) -> Result<String, String> {
        if self.value.is_empty() { Err(self.wrong(wanted)) } else { Ok(self.value.to_owned()) }
    }

    fn flag(&self) -> Result<bool, String> {
        match self.value {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(self.wrong("1 or 0")),
        }
    }

    fn number<T: TryFrom<u64>>(&self, least: u64, most: u64) -> Result<T, String> {
        let number = self.value.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match least {
            0 => self.wrong(&format!("a number up to {most}")),
            _ => self.wrong(&format!("a number from {least} to {most}")),
        })
    }

    /// A number of bytes that satisfies `right`.
    fn bytes(&self, wanted: &str, right: impl Fn(&u64) -> bool) -> Result<u64, String> {
        parse_bytes(self.value).filter(right).ok_or_else(|| self.wrong(wanted))
    }

    fn lba_bytes(&self) -> Result<u32, String> {
        self.bytes("512 or 4096", |bytes| matches!(bytes, 512 | 4096)).map(|bytes| bytes as u32)
    }

    fn coalescing(&self) -> Result<Option<Coalescing>, String> {
        const UNIT_NS: u64 = 100_000;
        let wanted = "a number of completions and a time, e.g. 4/100us";
        let (completions, time) = self.value.split_once('/').ok_or_else(|| self.wrong(wanted))?;
        let completions = completions.parse().ok().filter(|number| (1..=256).contains(number));
        let completions = completions.ok_or_else(|| self.wrong("1 to 256 completions"))?;
        // parse_time_ns takes a bare number for µs, so a unit is required to avoid doubt.
        let has_unit = time.ends_with('s');
        let ns = parse_time_ns(time).filter(|_| has_unit).ok_or_else(|| self.wrong(wanted))?;
        if ns % UNIT_NS != 0 {
            return Err(self.wrong("times are multiples of 100us"));
        }
        let time_100us = u8::try_from(ns / UNIT_NS).ok().filter(|units| *units > 0);
        let time_100us = time_100us.ok_or_else(|| self.wrong("times are 100us to 25.5ms"))?;
        Ok(Some(Coalescing { completions, time_100us }))
    }

    fn create_bytes(&self) -> Result<Option<u64>, String> {
        let right = |&bytes: &u64| bytes > 0 && bytes % 4096 == 0 && bytes <= i64::MAX as u64;
        self.bytes("a size, a multiple of 4k", right).map(Some)
    }
}

/// The parameters of a URI, each at most once.
fn split_query<'a>(query: Option<&'a str>, scheme: &str) -> Result<Vec<Parameter<'a>>, String> {
    let mut parameters: Vec<Parameter<'_>> = Vec::new();
    for pair in query.into_iter().flat_map(|query| query.split('&')) {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            format!("{pair:?} is no key=value; parameters are {}", parameters::names(scheme))
        })?;
        if parameters.iter().any(|seen| seen.key == key) {
            return Err(format!("{key} is given twice"));
        }
        parameters.push(Parameter { key, value });
    }
    // `CommonUri` has these.
    parameters.retain(|parameter| !["partition", "overwrite"].contains(&parameter.key));
    Ok(parameters)
}

fn parse_kernel(path: &str, query: Option<&str>) -> Result<Uri, String> {
    let mut kernel = KernelUri::default();
    for parameter in split_query(query, "kernel")? {
        match parameter.key {
            "engine" => {
                kernel.engine = match parameter.value {
                    "io_uring" => KernelEngine::IoUring,
                    "preadv2" => KernelEngine::Preadv2,
                    _ => return Err(parameter.wrong("io_uring or preadv2")),
                }
            }
            "direct" => kernel.direct = parameter.flag()?,
            "fixed" => kernel.fixed = Some(parameter.flag()?),
            "lba" => kernel.lba_bytes = Some(parameter.lba_bytes()?),
            "create" => kernel.create_bytes = parameter.create_bytes()?,
            _ => return Err(parameter.unknown("kernel")),
        }
    }
    if kernel.fixed == Some(true) && kernel.engine == KernelEngine::Preadv2 {
        return Err("fixed=1 is io_uring's: leave it out, or engine=preadv2".into());
    }
    Ok(Uri::Kernel { path: path.into(), kernel })
}

fn parse_nvme(query: Option<&str>, scheme: &str) -> Result<NvmeUri, String> {
    let mut nvme = NvmeUri::default();
    for parameter in split_query(query, scheme)? {
        match parameter.key {
            "nsid" => {
                // FFFFFFFFh stands for all namespaces (NVMe Base 1.4 §6.1.2).
                let nsid = parameter.value.parse().ok();
                let nsid = nsid.filter(|nsid| (1..u32::MAX).contains(nsid));
                nvme.nsid = nsid.ok_or_else(|| parameter.wrong("a number from 1"))?;
            }
            "sgl" => nvme.sgl = parameter.flag()?,
            "shadow" => nvme.shadow = Some(parameter.flag()?),
            "coalesce" => nvme.coalesce = parameter.coalescing()?,
            "no-iommu" if scheme == "vfio" => nvme.no_iommu = parameter.flag()?,
            _ => return Err(parameter.unknown(scheme)),
        }
    }
    Ok(nvme)
}

fn parse_tcp(query: Option<&str>) -> Result<TcpUri, String> {
    let mut tcp = TcpUri::default();
    for parameter in split_query(query, "nvme+tcp")? {
        match parameter.key {
            "nsid" => tcp.nsid = parameter.number(1, u64::from(u32::MAX) - 1)?,
            "hostnqn" => {
                let nqn = parameter.text("the NQN of this host")?;
                if !is_nqn(&nqn) {
                    return Err(parameter.wrong("an NQN: 1 to 223 printable characters"));
                }
                tcp.hostnqn = Some(nqn);
            }
            "hostid" => {
                tcp.hostid =
                    Some(parse_uuid(parameter.value).map_err(|what| parameter.wrong(&what))?)
            }
            "digest" => {
                // A comma would end the device in a list of devices.
                for part in parameter.value.split('+') {
                    tcp.digests |= match part {
                        "none" => 0,
                        "header" => dgst::HEADER,
                        "data" => dgst::DATA,
                        _ => return Err(parameter.wrong("header, data, header+data or none")),
                    }
                }
            }
            "kato_ms" => tcp.kato_ms = parameter.number(KATO_MIN_MS.into(), 55_000)?,
            "loss_ms" => tcp.loss_ms = Some(parameter.number(0, 127_000)?),
            "dhchap_keys" => {
                tcp.dhchap_keys = Some(parameter.text("a file of keys")?.into());
            }
            _ => return Err(parameter.unknown("nvme+tcp")),
        }
    }
    Ok(tcp)
}

fn parse_mem(target: &str, query: Option<&str>) -> Result<Uri, String> {
    let soft = parse_soft(query, "mem")?;
    if soft.create_bytes.is_some() {
        return Err("create= is for file: only; mem: always begins empty".into());
    }
    if soft.read_only {
        return Err("ro=1 is for file: only; mem: begins empty".into());
    }
    let bytes = parse_bytes(target)
        .ok_or_else(|| format!("{target:?} is no size; e.g. mem:512M or mem:1G"))?;
    let unit = u64::from(soft.lba_bytes).max(4096) * u64::from(soft.namespaces);
    if bytes == 0 || bytes % unit != 0 {
        return Err(format!(
            "size {target} is no positive multiple of {unit} bytes (namespaces × blocks of 4096 \
             bytes)"
        ));
    }
    Ok(Uri::Mem { bytes, soft })
}

fn parse_file(path: &str, query: Option<&str>) -> Result<Uri, String> {
    let soft = parse_soft(query, "file")?;
    if soft.namespaces != 1 {
        return Err("a file holds one namespace; open several files instead".into());
    }
    if soft.read_only && (soft.create_bytes.is_some() || soft.volatile_write_cache == Some(true)) {
        return Err("ro=1 writes nothing: leave create= and vwc=1 out".into());
    }
    Ok(Uri::File { path: path.into(), soft })
}

fn parse_soft(query: Option<&str>, scheme: &str) -> Result<SoftUri, String> {
    let mut soft = SoftUri::default();
    for parameter in split_query(query, scheme)? {
        match parameter.key {
            "model" => soft.model = parameter.text("the name of a model, or a TOML file")?,
            "lba" => soft.lba_bytes = parameter.lba_bytes()?,
            "vwc" => soft.volatile_write_cache = Some(parameter.flag()?),
            "namespaces" => soft.namespaces = parameter.number(1, 1024)?,
            "nsid" => soft.nsid = parameter.number(0, 1024)?,
            "mdts" => {
                let right =
                    |bytes: &u64| bytes.is_power_of_two() && (8192..=1 << 31).contains(bytes);
                let bytes = parameter.bytes("a power of two from 8k up", right)?;
                soft.mdts_bytes = Some(bytes as u32);
            }
            "boundary" => soft.boundary_blocks = parameter.number(0, u16::MAX.into())?,
            "cpu" => soft.cpu = Some(parameter.number(0, 1023)?),
            "inline" => soft.inline = parameter.flag()?,
            "queues" => soft.queues = Some(parameter.number(1, 1024)?),
            "vectors" => soft.vectors = Some(parameter.number(1, 2048)?),
            "strict" => soft.strict = parameter.flag()?,
            "lock" => soft.lock = parameter.flag()?,
            "ro" => soft.read_only = parameter.flag()?,
            "faults" => {
                soft.faults = Some(parameter.text("a TOML file; docs/faults.md")?.into());
            }
            "create" => soft.create_bytes = parameter.create_bytes()?,
            "coalesce" => soft.coalesce = parameter.coalescing()?,
            _ => return Err(parameter.unknown(scheme)),
        }
    }
    if let (true, Some(cpu)) = (soft.inline, soft.cpu) {
        return Err(format!("inline=1 has no thread that cpu={cpu} could bind: leave one out"));
    }
    if soft.nsid == 0 || soft.nsid > soft.namespaces {
        return Err(format!(
            "nsid={} of {} namespaces: give 1 to {}",
            soft.nsid, soft.namespaces, soft.namespaces
        ));
    }
    Ok(soft)
}

/// Parses `4096`, `4k`, `128K`, `1G`, `1GiB`, `2T`: powers of 1024. `None` for anything else, or if
/// it exceeds 64 bits.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mem { bytes, soft } => write!(f, "mem:{bytes}?model={}", soft.model),
            Self::File { path, soft } => {
                let read_only = if soft.read_only { "&ro=1" } else { "" };
                write!(f, "file:{}?model={}{read_only}", path.display(), soft.model)
            }
            Self::Vfio { address, nvme } => write!(f, "vfio:{address}?nsid={}", nvme.nsid),
            Self::VfioUser { path, nvme } => {
                write!(f, "vfio-user:{}?nsid={}", path.display(), nvme.nsid)
            }
            Self::Tcp { address, tcp } => write!(f, "{address}?nsid={}", tcp.nsid),
            Self::Kernel { path, .. } => write!(f, "kernel:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_ones() {
        let Uri::Mem { bytes, soft } = "mem:1G?model=optane&lba=4k&vwc=1".parse().unwrap() else {
            panic!()
        };
        assert_eq!((bytes, soft.lba_bytes, soft.volatile_write_cache), (1 << 30, 4096, Some(true)));
        assert_eq!(soft.model, "optane");
        let Uri::File { path, soft } = "file:disk.img?model=zssd".parse().unwrap() else {
            panic!()
        };
        assert_eq!((path.to_str(), soft.model.as_str()), (Some("disk.img"), "zssd"));
        let Uri::Vfio { address, nvme } = "vfio:0000:01:00.0?nsid=2&sgl=1".parse().unwrap() else {
            panic!()
        };
        assert_eq!((address.to_string().as_str(), nvme.nsid, nvme.sgl), ("0000:01:00.0", 2, true));
        let Uri::VfioUser { path, nvme } = "vfio-user:/run/ssd.sock".parse().unwrap() else {
            panic!()
        };
        assert_eq!((path.to_str(), nvme), (Some("/run/ssd.sock"), NvmeUri::default()));
        let text = "nvme+tcp://192.0.2.7/nqn.2014-08.org.example:disk?nsid=3&digest=header+data";
        let Uri::Tcp { address, tcp } = text.parse().unwrap() else { panic!() };
        assert_eq!((address.authority().as_str(), tcp.nsid, tcp.digests), ("192.0.2.7:4420", 3, 3));
        let text = "kernel:/dev/nvme0n1?engine=preadv2&direct=0";
        let Uri::Kernel { path, kernel } = text.parse().unwrap() else { panic!() };
        assert_eq!((path.to_str(), kernel.engine), (Some("/dev/nvme0n1"), KernelEngine::Preadv2));
        assert_eq!((kernel.direct, kernel.fixed), (false, None));
    }

    #[test]
    fn coalescing_is_for_each_kind_of_ours() {
        let coalescing = |text: &str| match text.parse().unwrap() {
            Uri::Mem { soft, .. } | Uri::File { soft, .. } => soft.coalesce,
            Uri::Vfio { nvme, .. } | Uri::VfioUser { nvme, .. } => nvme.coalesce,
            Uri::Kernel { .. } | Uri::Tcp { .. } => None,
        };
        for device in ["mem:1G", "file:x", "vfio:0000:01:00.0", "vfio-user:/run/ssd.sock"] {
            assert_eq!(coalescing(device), None);
            for (text, completions, time_100us) in
                [("4/100us", 4, 1), ("256/25.5ms", 256, 255), ("1/0.2ms", 1, 2)]
            {
                let wanted = Some(Coalescing { completions, time_100us });
                assert_eq!(coalescing(&format!("{device}?coalesce={text}")), wanted);
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (uri, word) in [
            ("", "no scheme"),
            ("mem", "no scheme"),
            ("men:1G", "unknown scheme"),
            ("/dev/nvme0n1", "did you mean kernel:/dev/nvme0n1?"),
            ("/dev/disk/by-path/pci-0000:00:04.0", "did you mean kernel:/dev/disk/"),
            ("disk.img?model=optane", "did you mean file:disk.img?model=optane?"),
            ("127.0.0.1", "did you mean nvme+tcp://127.0.0.1?"),
            ("::1", "did you mean nvme+tcp://[::1]?"),
            ("storage:4420/nqn.2014-08.org:a", "did you mean nvme+tcp://storage:4420/nqn"),
            ("0000:01:00.0", "did you mean vfio:0000:01:00.0?"),
            ("vfio:", "no PCI address"),
            ("vfio:0000:01:00", "domain:bus:device.function"),
            ("vfio:0000:01:00.0?nsid=0", "from 1"),
            ("vfio:0000:01:00.0?nsid=4294967295", "from 1"),
            ("vfio:0000:01:00.0?lba=512", "nsid, sgl"),
            ("vfio-user:", "no socket"),
            ("vfio-user:/run/ssd.sock?no-iommu=1", "unknown parameter"),
            ("mem:", "no size"),
            ("mem:1X", "no size"),
            ("mem:0", "positive multiple"),
            ("mem:1000", "4096"),
            ("mem:99999999999999999999", "no size"),
            ("mem:1G?", "key=value"),
            ("mem:1G?modle=optane", "unknown parameter"),
            ("mem:1G?lba=1024", "512 or 4096"),
            ("mem:1G?vwc=2", "1 or 0"),
            ("mem:1G?vwc=1&vwc=1", "twice"),
            ("mem:1G?nsid=2", "give 1 to 1"),
            ("mem:1G?queues=0", "from 1 to 1024"),
            ("mem:1G?namespaces=0", "from 1 to 1024"),
            ("mem:1G?create=1G", "file: only"),
            ("mem:1G?ro=1", "file: only"),
            ("file:x?ro=1&create=1G", "writes nothing"),
            ("file:x?ro=1&vwc=1", "writes nothing"),
            ("mem:1G?faults=", "a TOML file"),
            ("mem:1G?coalesce=4", "e.g. 4/100us"),
            ("mem:1G?coalesce=4/100", "e.g. 4/100us"),
            ("mem:1G?coalesce=4/soon", "e.g. 4/100us"),
            ("mem:1G?coalesce=0/100us", "1 to 256 completions"),
            ("mem:1G?coalesce=257/100us", "1 to 256 completions"),
            ("mem:1G?coalesce=4/150us", "coalesce=4/150us: times are multiples of 100us"),
            ("mem:1G?coalesce=4/0us", "100us to 25.5ms"),
            ("mem:1G?coalesce=4/25.6ms", "100us to 25.5ms"),
            ("vfio-user:/run/ssd.sock?coalesce=4/1s", "100us to 25.5ms"),
            ("mem:1G?mdts=5000", "power of two"),
            ("file:", "no file name"),
            ("file:x?namespaces=2", "one namespace"),
            ("nvme+tcp:box/nqn.x", "no //host"),
            ("nvme+tcp:///nqn.x", "no host"),
            ("nvme+tcp://box/nqn.x?nsid=0", "from 1"),
            ("nvme+tcp://box/nqn.x?digest=both", "header, data"),
            ("nvme+tcp://box/nqn.x?kato_ms=5", "from 100"),
            ("nvme+tcp://box/nqn.x?hostid=12", "no UUID"),
            ("nvme+tcp://box/nqn.x?sgl=1", "unknown parameter"),
            ("kernel:", "no file name"),
            ("kernel:/dev/x?model=optane", "engine, direct"),
            ("kernel:/dev/x?engine=libaio", "io_uring or preadv2"),
            ("kernel:/dev/x?lba=1024", "512 or 4096"),
            ("kernel:/dev/x?coalesce=4/100us", "unknown parameter"),
            ("kernel:/dev/x?direct=1&direct=0", "twice"),
            ("kernel:/dev/x?engine=preadv2&fixed=1", "io_uring's"),
        ] {
            let error = uri.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(word), "{uri}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = text.parse::<Uri>();
        }

        #[test]
        fn never_panics_on_the_likely(
            scheme in "(mem|file|vfio|kernel|nvme.tcp):[0-9kMG]{0,25}",
            parameters in "(([a-z]{1,10}=[0-9a-zKMG]{0,22})&?){0,4}",
        ) {
            let text = format!("{scheme}?{parameters}");
            let _ = text.parse::<Uri>();
        }
    }
}
