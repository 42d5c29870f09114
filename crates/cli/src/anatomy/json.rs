//! The report as JSON. Times are in ns; a unit is the last part of a key.

use serde_json::{Value, json};

use super::fast12::Fast12;
use super::results::{Anatomy, Bar};
use super::tally::{Tally, Typical};
use super::text::CDF_PERCENTILES;
use super::timeline::PARTS;
use crate::competitor::Sample;
use meantime_report::run::LatencyStats;

/// Returns all results.
pub(super) fn report(anatomy: &Anatomy) -> Value {
    let alone = anatomy.competitor.map(|(_, alone)| alone);
    let bars: Value = anatomy.bars.iter().map(|bar| bar_json(bar, alone.as_ref())).collect();
    json!({
        "rw": anatomy.rw,
        "cpu": anatomy.cpu,
        "clock_read_ns": anatomy.clock_read_ns,
        "interrupted": crate::signal::stopped(),
        "competitor": anatomy.competitor.map(|(kind, alone)| json!({
            "kind": kind.to_string(),
            "alone": sample(&alone),
        })),
        "bars": bars,
        "machine": anatomy.machine.json(),
    })
}

fn bar_json(bar: &Bar, alone: Option<&Sample>) -> Value {
    let times = alone.and_then(|alone| Fast12::new(bar, alone));
    json!({
        "device": bar.device,
        "completion": bar.policy.to_string(),
        "bs_bytes": bar.bytes,
        "stamped": bar.stamped,
        "alone": tally_json(&bar.alone, bar.stamped),
        "competing": (bar.competing.ios() > 0).then(|| tally_json(&bar.competing, bar.stamped)),
        "fast12": times.map(|times| fast12(&times, bar.stamped)),
    })
}

fn tally_json(tally: &Tally, stamped: bool) -> Value {
    // Without stamps there is one part between the doorbell and the CQE.
    let there = |at: usize| stamped || [0, 3, 6].contains(&at);
    let mut parts = json!({});
    for (part, stats) in PARTS.iter().zip(&tally.parts) {
        parts[part.key] = json!(there(part.at).then(|| times(stats)));
    }
    let cdf = |stats: &LatencyStats| -> Value {
        let point = |at: &f64| (format!("{at:.6}"), json!(stats.percentile_ns(*at)));
        CDF_PERCENTILES.iter().map(point).collect()
    };
    json!({
        "ios": tally.ios(),
        "wall_ns": tally.wall_ns,
        "typical": typical(&tally.typical(), &there),
        "parts": parts,
        "total": times(&tally.total),
        "host": times(&tally.host),
        "device": times(&tally.device),
        "submit_percentile_ns": cdf(&tally.parts[0]),
        "host_percentile_ns": cdf(&tally.host),
        "device_percentile_ns": cdf(&tally.device),
        "slowest": tally.worst(),
        "overlapped_ios": tally.overlapped,
        "contradicted_ios": tally.contradicted,
    })
}

fn typical(typical: &Typical, there: &dyn Fn(usize) -> bool) -> Value {
    let mut object = json!({});
    for (part, ns) in PARTS.iter().zip(typical.parts_ns) {
        object[format!("{}_ns", part.key)] = json!(there(part.at).then_some(ns));
    }
    object["total_ns"] = json!(typical.total_ns());
    object
}

fn times(stats: &LatencyStats) -> Value {
    json!({
        "mean_ns": stats.mean_ns(),
        "stddev_ns": stats.stddev_ns(),
        "min_ns": stats.min_ns(),
        "p50_ns": stats.percentile_ns(50.0),
        "p99_ns": stats.percentile_ns(99.0),
        "max_ns": stats.max_ns(),
    })
}

fn fast12(times: &Fast12, stamped: bool) -> Value {
    let known = |ns: f64| stamped.then_some(ns);
    json!({
        "ta_ns": known(times.ta_ns()),
        "ta_before_ns": known(times.ta_before_ns),
        "ta_after_ns": known(times.ta_after_ns),
        "td_ns": known(times.td_ns),
        "tb_ns": known(times.tb_ns),
        "tu_ns": times.tu_ns,
        "ta_tb_ns": times.cost_ns(),
        "total_ns": times.total_ns(),
        "share_percent": times.share_percent,
        "speed_percent": times.speed_percent,
    })
}

fn sample(sample: &Sample) -> Value {
    json!({
        "wall_ns": sample.at_ns,
        "ran_ns": sample.ran_ns,
        "work": sample.work,
        "gaps": sample.gaps,
        "gap_ns": sample.gap_ns,
    })
}
