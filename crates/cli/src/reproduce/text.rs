//! The list, the claims and the JSON of `meantime reproduce`.

use std::fmt::Write as _;
use std::time::Duration;

use meantime_report::figures::wrapped;
use meantime_report::run::ctime_utc;
use meantime_reproduce::{Document, Entry, Experiment, Leg, Outcome, Reproduction, Shown};
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::output;

/// How to get the figures of the virtual machine.
pub(super) const HOW_GUEST: &str = "`make reproduce` boots it and shows them; or give \
                                    `--guest FILE` after `scripts/guest.sh reproduce --json FILE`";

/// Returns the experiments by document, with their questions.
pub(super) fn list(experiments: &[Experiment]) -> String {
    let mut out = String::new();
    for document in Document::ALL {
        let of = || experiments.iter().filter(|one| one.document == document);
        if of().next().is_none() {
            continue;
        }
        let _ = writeln!(out, "{}: {}", document.name(), document.title());
        for one in of() {
            let _ = writeln!(out, "  {:<26} {:<10} {}", one.id, one.leg.name(), one.question);
        }
    }
    if experiments.iter().any(|one| one.leg == Leg::Guest) {
        let line = format!("guest: measured in a virtual machine; {HOW_GUEST}");
        let _ = writeln!(out, "\n{}", wrapped(&line, output::columns()));
    }
    out
}

/// Says when, where, with what and for how long.
pub(super) fn about(
    machine: &Machine,
    repetitions: usize,
    cell_s: f64,
    outcomes: &[Outcome],
) -> Vec<String> {
    let ends_s = || outcomes.iter().map(|outcome| outcome.kept.ended_s);
    let mut lines = vec![format!(
        "{repetitions} repetitions of each experiment, {cell_s} s for each cell; \
         figures are medians, with the range of the repetitions"
    )];
    if let (Some(first), Some(last @ 1..)) = (ends_s().min(), ends_s().max()) {
        let at = |seconds| ctime_utc(Duration::from_secs(seconds));
        lines.push(format!("Measured from {} to {} (UTC)", at(first), at(last)));
    }
    lines.push(machine.line().replace('\n', " "));
    lines
}

/// Returns a line for each claim.
pub(super) fn claims(reproduction: &Reproduction<'_>) -> String {
    let columns = output::columns();
    let mut out = String::new();
    for (document, entries) in &reproduction.documents {
        let _ = writeln!(out, "{}", document.title());
        for Entry { experiment, kept, claims, .. } in entries {
            if !kept.failure.is_empty() {
                let _ = writeln!(out, "  – {}: not measured: {}", experiment.key(), kept.failure);
            }
            for claim in claims {
                let (text, leg) = (claim.named(), experiment.leg.name());
                let line = format!("{text} ({leg}): {}; {}", claim.verdict.words(), claim.figures);
                let text = wrapped(line.trim_end_matches("; "), columns.saturating_sub(4));
                let (_, sign) = claim.verdict.mark();
                let _ = writeln!(out, "  {sign} {}", text.replace('\n', "\n    "));
            }
        }
    }
    out
}

/// Returns all figures and verdicts.
pub(super) fn json(reproduction: &Reproduction<'_>) -> Value {
    let claim = |shown: &Shown<'_>| {
        json!({
            "claim": shown.claim.text,
            "ours": shown.claim.ours,
            "verdict": shown.verdict.words(),
            "figures": shown.figures,
            "reason": shown.reason(),
        })
    };
    let entry = |Entry { experiment, kept, claims, .. }: &Entry<'_>| {
        json!({
            "id": experiment.key(),
            "place": experiment.place,
            "leg": experiment.leg.name(),
            "claims": claims.iter().map(claim).collect::<Value>(),
            "results": kept,
        })
    };
    reproduction.entries().map(entry).collect()
}
