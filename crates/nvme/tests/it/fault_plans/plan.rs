//! Random fault plans.

use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultRule, OpcodeSet, When};

use meantime_testkit::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const CODES: [StatusCode; 10] = [
    StatusCode::InternalError,
    StatusCode::CommandInterrupted,
    StatusCode::NamespaceNotReady,
    StatusCode::TransientTransportError,
    StatusCode::DataTransferError,
    StatusCode::CommandAbortedByRequest,
    StatusCode::CommandAbortedSqDeletion,
    StatusCode::UnrecoveredReadError,
    StatusCode::WriteFault,
    StatusCode::AccessDenied,
];

const ADMIN: [AdminOpcode; 6] = [
    AdminOpcode::CreateIoCq,
    AdminOpcode::CreateIoSq,
    AdminOpcode::DeleteIoCq,
    AdminOpcode::DeleteIoSq,
    AdminOpcode::Abort,
    AdminOpcode::SetFeatures,
];

fn status(rng: &mut Rng) -> Fault {
    let code = CODES[rng.below(CODES.len() as u64) as usize];
    let crd = if rng.one_in(4) { rng.below(4) as u8 } else { 0 };
    Fault::Status(Status::from_code(code).with_crd(crd).with_dnr_bit(rng.one_in(2)))
}

/// A rule for a device on which time-outs are as long as `slow_ns`. `corrupts` says whether data
/// may be corrupted.
pub(crate) fn rule(rng: &mut Rng, slow_ns: u64, corrupts: bool) -> FaultRule {
    let fault = match rng.below(100) {
        0..18 => status(rng),
        18..28 => Fault::LostCompletion,
        28..40 => Fault::LateCompletion(1 + rng.below(2 * slow_ns)),
        40..48 => Fault::DuplicateCqe,
        48..56 => Fault::StrayCqe,
        56..63 => Fault::WrongPhase,
        63..70 => Fault::WrongSqhd(rng.next() as u16),
        70..76 if corrupts => Fault::CorruptRead(1 + rng.below(64) as u32),
        76..82 if corrupts => Fault::CorruptWrite(1 + rng.below(64) as u32),
        70..82 => Fault::LateCompletion(1 + rng.below(50 * US)),
        82..86 => Fault::FatalStatus,
        86..88 => Fault::SurpriseRemoval,
        88..89 => Fault::NeverReady,
        89..92 => Fault::SlowAdmin(1 + rng.below(10 * MS)),
        92..93 => Fault::StuckAdmin,
        _ => return FaultRule::new(of_admin(rng), admin(rng)),
    };
    FaultRule::new(fault, when(rng, &fault))
}

fn of_admin(rng: &mut Rng) -> Fault {
    match rng.below(8) {
        0..3 => status(rng),
        3 => Fault::LostCompletion,
        4 => Fault::LateCompletion(1 + rng.below(100 * MS)),
        5 => Fault::StrayCqe,
        6 => Fault::DuplicateCqe,
        _ => Fault::WrongPhase,
    }
}

fn admin(rng: &mut Rng) -> When {
    let opcode = ADMIN[rng.below(ADMIN.len() as u64) as usize];
    let times = Some(1 + rng.below(3));
    When { opcodes: Some(OpcodeSet::admin(&[opcode])), times, ..When::ALWAYS }
}

fn when(rng: &mut Rng, fault: &Fault) -> When {
    let mut when = When { from: 1 + rng.below(40), ..When::ALWAYS };
    match fault {
        // What ends or stops everything, a few times at the most.
        Fault::FatalStatus | Fault::SurpriseRemoval | Fault::StuckAdmin => {
            when.times = Some(1 + rng.below(3));
        }
        Fault::NeverReady => return When { times: Some(1 + rng.below(2)), ..When::ALWAYS },
        Fault::LostCompletion | Fault::WrongPhase => {
            when.probability_ppm = [5_000, 50_000, 1_000_000][rng.below(3) as usize];
            when.times = Some(1 + rng.below(4));
        }
        _ => {
            when.probability_ppm = [3_000, 30_000, 300_000, 1_000_000][rng.below(4) as usize];
            if rng.one_in(3) {
                when.times = Some(1 + rng.below(6));
            }
            if rng.one_in(4) {
                when.every = 1 + rng.below(10);
            }
        }
    }
    if matches!(fault, Fault::SlowAdmin(_) | Fault::StuckAdmin) {
        return When { from: 1, ..when };
    }
    if rng.one_in(3) {
        const IO: [IoOpcode; 5] = [
            IoOpcode::Read,
            IoOpcode::Write,
            IoOpcode::Flush,
            IoOpcode::WriteZeroes,
            IoOpcode::DatasetManagement,
        ];
        when.opcodes = Some(OpcodeSet::io(&[IO[rng.below(5) as usize], IO[rng.below(5) as usize]]));
    }
    if rng.one_in(5) {
        let first = rng.below(100);
        when.lbas = Some((first, first + rng.below(40)));
    }
    if rng.one_in(6) {
        when.queue = Some(1 + rng.below(4) as u16);
    }
    when
}
