//! Plans of faults that several tests inject.

use meantime_nvme_spec::opcode::IoOpcode;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultPlan, FaultRule, OpcodeSet, When};

pub const ALWAYS: u32 = 1_000_000;

/// Statuses that a driver may retry (DNR clear), and statuses that it must not.
const STATUSES: [(StatusCode, bool); 8] = [
    (StatusCode::InternalError, false),
    (StatusCode::CommandInterrupted, false),
    (StatusCode::NamespaceNotReady, false),
    (StatusCode::TransientTransportError, false),
    (StatusCode::InternalError, true),
    (StatusCode::UnrecoveredReadError, true),
    (StatusCode::WriteFault, true),
    (StatusCode::AccessDenied, true),
];

/// Returns a rule by which `fault` happens to `probability_ppm` of a million I/O commands.
pub const fn ppm(fault: Fault, probability_ppm: u32) -> FaultRule {
    FaultRule::new(fault, When { probability_ppm, ..When::ALWAYS })
}

/// `fault` always happens.
pub const fn always(fault: Fault) -> FaultPlan {
    FaultPlan::only(ppm(fault, ALWAYS))
}

/// One bit of so many of a million reads is wrong.
pub fn corrupt_reads(probability_ppm: u32) -> FaultRule {
    let opcodes = Some(OpcodeSet::io(&[IoOpcode::Read]));
    FaultRule::new(Fault::CorruptRead(1), When { opcodes, probability_ppm, ..When::ALWAYS })
}

/// Status `number` of eight. Media errors are those of their commands.
fn status(number: usize) -> (Status, Option<OpcodeSet>) {
    let (code, dnr) = STATUSES[number];
    let opcode = match code {
        StatusCode::UnrecoveredReadError => Some(IoOpcode::Read),
        StatusCode::WriteFault => Some(IoOpcode::Write),
        _ => None,
    };
    (Status::from_code(code).with_dnr_bit(dnr), opcode.map(|opcode| OpcodeSet::io(&[opcode])))
}

/// `plan`, and about so many of a million I/O commands end with a status, retryable or not.
pub fn with_statuses(plan: FaultPlan, probability_ppm: u32) -> FaultPlan {
    (0..STATUSES.len()).fold(plan, |plan, number| {
        let (status, opcodes) = status(number);
        let probability_ppm = probability_ppm / STATUSES.len() as u32;
        let when = When { opcodes, probability_ppm, ..When::ALWAYS };
        plan.with(FaultRule::new(Fault::Status(status), when))
    })
}

/// Every command ends with a status, chosen by `seed`.
pub fn refusing(seed: u64) -> FaultPlan {
    let (status, opcodes) = status(seed as usize % STATUSES.len());
    let other = Status::from_code(StatusCode::InternalError).with_dnr_bit(status.dnr());
    let first = FaultRule::new(Fault::Status(status), When { opcodes, ..When::ALWAYS });
    FaultPlan { seed, ..FaultPlan::only(first).with(ppm(Fault::Status(other), ALWAYS)) }
}
