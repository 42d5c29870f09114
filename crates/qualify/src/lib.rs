//! What a careful engineer tries on an unknown NVMe controller before trusting it.
//!
//! [`qualify`] attaches a device, makes one check after the other, and returns a [`Report`]. Each
//! check has a verdict, and each deviation names the section of the specification that it deviates
//! from (NVMe Base 1.4, unless it says otherwise). The checks are made from the host's side, so
//! they hold for any controller that Meantime attaches, other people's targets included.
//!
//! Without [`Plan::destroy`] the device is opened for reading, and no feature's saved value
//! changes; current values are put back. Commands that the device has to refuse may add entries to
//! its error log.

mod data;
mod features;
mod identify;
mod kill;
mod lists;
mod logs;
mod notes;
mod plan;
mod power;
mod queues;
mod quirks;
mod reads;
mod recovery;
mod report;
mod special;
mod subject;
mod waits;

use std::time::Instant;

use meantime_block::{CommonUri, OpenError, Uri, UriError};

pub use kill::write_until_killed;
use notes::{Notes, Outcome, Stop};
pub use plan::{Plan, WriterCommand};
pub use quirks::{QUIRKS, Quirk};
pub use report::{Check, Deviation, Report, Verdict};
use subject::Subject;

/// A check: its name for programs, its title, when it is made, and what it does.
struct Kind {
    name: &'static str,
    title: &'static str,
    when: When,
    check: fn(&mut Subject<'_>, &mut Notes) -> Outcome,
}

/// What a check needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// That the controller may be reset.
    Reset,
    /// That data may be overwritten.
    Destroy,
}

const fn kind(
    name: &'static str,
    title: &'static str,
    when: When,
    check: fn(&mut Subject<'_>, &mut Notes) -> Outcome,
) -> Kind {
    Kind { name, title, when, check }
}

/// In an order in which each relies on those before it only.
const KINDS: &[Kind] = &[
    kind("identify-controller", "Identify Controller", When::Always, identify::controller),
    kind("identify-namespace", "Identify Namespace", When::Always, identify::namespace),
    kind("namespace-lists", "Lists of namespaces and identifiers", When::Always, lists::lists),
    kind("smart-log", "SMART / Health log", When::Always, logs::smart),
    kind("other-logs", "Error, firmware and commands logs", When::Always, logs::others),
    kind("features", "Features, read, set and put back", When::Always, features::features),
    kind("refusals", "Commands that have to be refused", When::Always, features::refusals),
    kind("queues-made", "Queues: created and deleted", When::Always, queues::made),
    kind("queues-full", "Queues: of all sizes, full, wrapped", When::Always, queues::full),
    kind("read-sizes", "Reads of all sizes around MDTS", When::Always, reads::sizes),
    kind("read-boundaries", "Reads across boundaries", When::Always, reads::boundaries),
    kind("waits", "Interrupt, polling, adaptive: latencies", When::Always, waits::latencies),
    kind("rates", "Rates by depth and by queues", When::Always, waits::rates),
    kind("write-sizes", "Writes of all sizes, read back", When::Destroy, data::sizes),
    kind("flush-fua", "Flush and Force Unit Access", When::Destroy, data::flush),
    kind("write-zeroes", "Write Zeroes", When::Destroy, special::write_zeroes),
    kind("deallocate", "Deallocate", When::Destroy, special::deallocate),
    kind("compare", "Compare", When::Destroy, special::compare),
    kind("compare-and-write", "Fused Compare and Write", When::Destroy, special::compare_and_write),
    kind("uncorrectable", "Write Uncorrectable", When::Destroy, special::uncorrectable),
    kind("patterns", "Patterns, kept across a reset", When::Destroy, data::patterns_kept),
    kind("reset", "Controller reset in the midst of I/O", When::Reset, recovery::reset),
    kind("abort", "Time-outs and aborts in the midst of I/O", When::Reset, recovery::abort),
    kind("attach", "Detached and attached anew", When::Reset, recovery::attach),
    kind("sgl", "Scatter gather lists", When::Reset, recovery::sgl),
    kind("killed", "The writing process is killed", When::Destroy, kill::killed),
    kind("power-cycle", "Power is cut", When::Destroy, power::cycle),
];

/// After this number of checks in which the device was lost, the others are left out.
const FAILURES_MAX: usize = 4;

/// Makes all checks of the device of `plan`. Calls `begun` before each, with the number of checks
/// that have ended, the number of all, and its title.
///
/// # Errors
/// Fails if the URI is wrong or names a partition, or if the device cannot be had for a reason that
/// is not its own. A device that fails while it is attached is a deviation.
pub fn qualify(
    plan: &Plan<'_>,
    mut begun: impl FnMut(usize, usize, &str),
) -> Result<Report, OpenError> {
    let uri: Uri = plan.uri.parse()?;
    if plan.uri.parse::<CommonUri>()?.partition.is_some() {
        let what = "a controller is qualified as a whole: leave out `partition`".to_owned();
        return Err(UriError { uri: plan.uri.to_owned(), what }.into());
    }
    let mut report = Report {
        uri: plan.uri.to_owned(),
        device: Vec::new(),
        quirks: Vec::new(),
        destroyed: plan.destroy,
        interrupted: false,
        checks: Vec::new(),
    };
    begun(0, KINDS.len() + 1, "Attach");
    let start = Instant::now();
    let (mut subject, attached) = match Subject::open(plan, &uri) {
        Ok(subject) => (Some(subject), (Verdict::Conforms, Vec::new())),
        Err(OpenError::Nvme(error)) => match Stop::from(error) {
            Stop::Failed(what) => {
                let deviation = Deviation { section: "1.4 §7.6.1", what };
                (None, (Verdict::Deviates, vec![deviation]))
            }
            Stop::NotTested(what) | Stop::NotSupported(what) => {
                return Err(UriError { uri: plan.uri.to_owned(), what }.into());
            }
        },
        Err(error) => return Err(error),
    };
    report.checks.push(Check {
        name: "enable",
        title: "Reset, enabled and identified",
        verdict: attached.0,
        reason: String::new(),
        deviations: attached.1,
        facts: Vec::new(),
        took_us: start.elapsed().as_micros() as u64,
    });
    if let Some(subject) = &subject {
        report.device = subject.description();
        report.quirks = quirks::of(subject.model());
    }
    let mut failures = 0;
    for (at, kind) in KINDS.iter().enumerate() {
        if plan.stopped() {
            report.interrupted = true;
            break;
        }
        begun(at + 1, KINDS.len() + 1, kind.title);
        let check = one(kind, plan, subject.as_mut(), failures);
        if let (Some(subject), Verdict::Deviates) = (&mut subject, check.verdict)
            && subject.is_gone()
        {
            failures += 1;
            subject.reopen_after_failure();
        }
        report.checks.push(check);
    }
    report.interrupted |= plan.stopped();
    Ok(report)
}

/// Makes a check, unless something forbids it.
fn one(kind: &Kind, plan: &Plan<'_>, subject: Option<&mut Subject<'_>>, failures: usize) -> Check {
    let start = Instant::now();
    let mut notes = Notes::default();
    let left_out = match (kind.when, subject) {
        (When::Destroy, _) if !plan.destroy => Err("it overwrites data: only with --destroy"),
        (When::Reset, _) if !plan.reset => Err("it resets the controller"),
        (_, None) => Err("the device could not be attached"),
        (_, Some(_)) if failures >= FAILURES_MAX => Err("the device failed too often"),
        (_, Some(subject)) => Ok(subject),
    };
    let outcome = match left_out {
        Ok(subject) => {
            let before = subject.fatal_resets();
            let outcome = (kind.check)(subject, &mut notes);
            // A device that was attached anew begins at 0.
            let failed = subject.fatal_resets().saturating_sub(before);
            notes.require(failed == 0, "1.4 §9.5", || {
                format!("the controller set CSTS.CFS, or disabled itself, {failed} times")
            });
            outcome
        }
        Err(why) => Err(Stop::NotTested(why.to_owned())),
    };
    let (mut verdict, reason) = match outcome {
        Ok(()) => (Verdict::Conforms, String::new()),
        Err(Stop::NotSupported(why)) => (Verdict::NotSupported, why),
        Err(Stop::NotTested(why)) => (Verdict::NotTested, why),
        Err(Stop::Failed(what)) => {
            notes.deviates("1.4 §9", what);
            (Verdict::Deviates, String::new())
        }
    };
    if !notes.deviations.is_empty() {
        verdict = Verdict::Deviates;
    }
    Check {
        name: kind.name,
        title: kind.title,
        verdict,
        reason,
        deviations: notes.deviations,
        facts: notes.facts,
        took_us: start.elapsed().as_micros() as u64,
    }
}
