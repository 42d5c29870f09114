//! A rule: a fault, and the commands that it affects.

use std::fmt;
use std::mem::discriminant;

use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use meantime_nvme_spec::status::Status;

use super::names::{kebab, text_of_ns};

/// An error of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The command ends with this status, unexecuted.
    Status(Status),
    /// The command is executed, and its completion is never written.
    LostCompletion,
    /// Its completion is delayed by this time, in ns.
    LateCompletion(u64),
    /// Its completion is written twice.
    DuplicateCqe,
    /// Its completion is followed by one with a CID that is not outstanding.
    StrayCqe,
    /// Its completion has the wrong phase tag, so the host never sees it, nor any later one of that
    /// queue.
    WrongPhase,
    /// Its completion reports this SQ head.
    WrongSqhd(u16),
    /// Its completion is written, and no interrupt follows.
    LostInterrupt,
    /// This number of consecutive bits of the data read is flipped. The status is success.
    CorruptRead(u32),
    /// This number of bits of the data stored is flipped. The status is success.
    CorruptWrite(u32),
    /// A power cut may leave only the first bytes of the write, below AWUPF and within a block.
    /// This affects only data in a volatile write cache.
    TornWrite,
    /// A flush is completed with success, and nothing is flushed.
    IgnoredFlush,
    /// The second command of a fused pair is executed although the first has failed.
    Unfused,
    /// CSTS.CFS is set instead of fetching the command.
    FatalStatus,
    /// The device leaves the bus instead of fetching the command.
    SurpriseRemoval,
    /// CSTS.RDY does not follow CC.EN. The conditions count how often CC.EN is set.
    NeverReady,
    /// Admin commands are delayed by this time, in ns.
    SlowAdmin(u64),
    /// Admin commands are fetched and never answered.
    StuckAdmin,
}

/// Every fault with its name in a plan, and its default value.
pub(super) const FAULTS: [(&str, Fault); 18] = [
    ("status", Fault::Status(Status::SUCCESS)),
    ("lost-completion", Fault::LostCompletion),
    ("late-completion", Fault::LateCompletion(0)),
    ("duplicate-cqe", Fault::DuplicateCqe),
    ("stray-cqe", Fault::StrayCqe),
    ("wrong-phase", Fault::WrongPhase),
    ("wrong-sqhd", Fault::WrongSqhd(u16::MAX)),
    ("lost-interrupt", Fault::LostInterrupt),
    ("corrupt-read", Fault::CorruptRead(1)),
    ("corrupt-write", Fault::CorruptWrite(1)),
    ("torn-write", Fault::TornWrite),
    ("ignored-flush", Fault::IgnoredFlush),
    ("unfused", Fault::Unfused),
    ("fatal-status", Fault::FatalStatus),
    ("surprise-removal", Fault::SurpriseRemoval),
    ("never-ready", Fault::NeverReady),
    ("slow-admin", Fault::SlowAdmin(0)),
    ("stuck-admin", Fault::StuckAdmin),
];

impl Fault {
    /// Returns its name in a plan.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let same = |fault: &Self| discriminant(fault) == discriminant(self);
        FAULTS.iter().find(|(_, fault)| same(fault)).map_or("", |(name, _)| name)
    }

    /// Returns whether it affects admin commands only.
    pub(super) const fn is_admin(&self) -> bool {
        matches!(self, Self::SlowAdmin(_) | Self::StuckAdmin)
    }
}

/// A set of opcodes, of admin or of I/O commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OpcodeSet {
    admin: bool,
    bits: [u64; 4],
}

impl OpcodeSet {
    /// Returns the set of these I/O commands.
    #[must_use]
    pub const fn io(opcodes: &[IoOpcode]) -> Self {
        let (mut set, mut i) = (Self::empty(false), 0);
        while i < opcodes.len() {
            set = set.with(opcodes[i] as u8);
            i += 1;
        }
        set
    }

    /// Returns the set of these admin commands.
    #[must_use]
    pub const fn admin(opcodes: &[AdminOpcode]) -> Self {
        let (mut set, mut i) = (Self::empty(true), 0);
        while i < opcodes.len() {
            set = set.with(opcodes[i] as u8);
            i += 1;
        }
        set
    }

    pub(super) const fn empty(admin: bool) -> Self {
        Self { admin, bits: [0; 4] }
    }

    pub(super) const fn with(mut self, opcode: u8) -> Self {
        self.bits[(opcode >> 6) as usize] |= 1 << (opcode & 63);
        self
    }

    /// Returns whether it is a set of admin commands.
    pub(super) fn is_admin(&self) -> bool {
        self.admin
    }

    /// Returns whether `opcode` is among them.
    pub(super) fn contains(&self, opcode: u8) -> bool {
        self.bits[usize::from(opcode >> 6)] & 1 << (opcode & 63) != 0
    }

    fn names(&self) -> String {
        let of_set = commands(self.admin).filter(|(_, opcode)| self.contains(*opcode));
        of_set.map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }
}

/// Returns the name and the opcode of every I/O command, or of every admin command.
pub(super) fn commands(admin: bool) -> impl Iterator<Item = (String, u8)> {
    let io = IoOpcode::ALL.iter().map(|opcode| (opcode.name(), *opcode as u8));
    let admins = AdminOpcode::ALL.iter().map(|opcode| (opcode.name(), *opcode as u8));
    let io = io.filter(move |_| !admin);
    io.chain(admins.filter(move |_| admin)).map(|(name, opcode)| (kebab(name), opcode))
}

impl fmt::Debug for OpcodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names())
    }
}

/// The conditions of a rule, which all have to hold. The default is every I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The rule applies only to these commands.
    pub opcodes: Option<OpcodeSet>,
    /// The rule applies only to commands of this namespace.
    pub nsid: Option<u32>,
    /// The rule applies only to commands that overlap these logical blocks, from the first to the
    /// last. Commands without blocks of their own (flush, dataset management) never do.
    pub lbas: Option<(u64, u64)>,
    /// The rule applies only to commands of this submission queue; 0 is the admin queue.
    pub queue: Option<u16>,
    /// Probability, in parts per million.
    pub probability_ppm: u32,
    /// The rule applies only to every nth of the commands for which the conditions above hold.
    pub every: u64,
    /// The number of the first of them, counted from 1.
    pub from: u64,
    /// The maximum number of times that the fault happens.
    pub times: Option<u64>,
    /// Earliest time after the rule first saw a command, in ns.
    pub after_ns: u64,
    /// Latest time after the rule first saw a command, in ns.
    pub until_ns: Option<u64>,
}

impl When {
    /// Every I/O command.
    pub const ALWAYS: Self = Self {
        opcodes: None,
        nsid: None,
        lbas: None,
        queue: None,
        probability_ppm: 1_000_000,
        every: 1,
        from: 1,
        times: None,
        after_ns: 0,
        until_ns: None,
    };

    /// The next I/O command, once.
    pub const ONCE: Self = Self { times: Some(1), ..Self::ALWAYS };

    /// Returns whether the conditions are about admin commands.
    pub(super) fn is_admin(&self) -> bool {
        self.queue == Some(0) || self.opcodes.is_some_and(|set| set.is_admin())
    }
}

impl Default for When {
    fn default() -> Self {
        Self::ALWAYS
    }
}

/// A fault and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Its conditions.
    pub when: When,
}

impl FaultRule {
    /// Returns a rule for `fault` under the conditions `when`.
    #[must_use]
    pub const fn new(fault: Fault, when: When) -> Self {
        Self { fault, when }
    }
}

/// A rule in force, with its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultHits {
    /// The rule.
    pub rule: FaultRule,
    /// The number of commands for which its conditions held, regardless of probability and number.
    pub seen: u64,
    /// How often it has happened.
    pub hits: u64,
}

/// Formats a rule so that [`FaultRule::parse_line`](FaultRule::parse_line) can read it.
impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.name())?;
        let own = match self.fault {
            Fault::Status(status) => {
                let status_text = match status.code() {
                    Ok(code) => format!("status={}", kebab(code.name())),
                    Err(_) => format!("sct={} sc={:#04x}", status.sct(), status.sc()),
                };
                let dnr = status.dnr().then(|| "dnr=true".to_owned());
                let crd = (status.crd() != 0).then(|| format!("crd={}", status.crd()));
                [Some(status_text), dnr, crd].into_iter().flatten().collect()
            }
            Fault::LateCompletion(by_ns) | Fault::SlowAdmin(by_ns) => {
                vec![format!("by={}", text_of_ns(by_ns))]
            }
            Fault::WrongSqhd(sqhd) => vec![format!("sqhd={sqhd:#x}")],
            Fault::CorruptRead(bits) | Fault::CorruptWrite(bits) => vec![format!("bits={bits}")],
            _ => Vec::new(),
        };
        let When { lbas, probability_ppm: ppm, every, from, times, after_ns, .. } = self.when;
        let conditions = [
            self.when.opcodes.map(|set| format!("opcode={}", set.names())),
            self.when.nsid.map(|nsid| format!("nsid={nsid}")),
            lbas.map(|(first, last)| format!("lba={first}-{last}")),
            self.when.queue.map(|queue| format!("queue={queue}")),
            (ppm < 1_000_000).then(|| format!("ppm={ppm}")),
            (every > 1).then(|| format!("every={every}")),
            (from > 1).then(|| format!("from={from}")),
            times.map(|times| format!("times={times}")),
            (after_ns > 0).then(|| format!("after={}", text_of_ns(after_ns))),
            self.when.until_ns.map(|until_ns| format!("until={}", text_of_ns(until_ns))),
        ];
        let mut pairs = own.into_iter().chain(conditions.into_iter().flatten());
        pairs.try_for_each(|pair| write!(f, " {pair}"))
    }
}
