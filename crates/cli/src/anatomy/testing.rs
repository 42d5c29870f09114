//! Figures for tests.

use super::results::{Anatomy, Bar};
use super::tally::Tally;
use super::timeline::{HostTimes, TimeLine};
use crate::competitor::{Kind, Sample};
use crate::machine::Machine;

/// Returns a bar of 1,000 I/Os: submission takes 0.2 µs and more, service 2.9, wake 4.0. Without
/// stamps it has the times that the host sees.
pub(super) fn bar(device: &str, policy: &str, stamped: bool) -> Bar {
    let tally = || {
        let mut tally = Tally::default();
        for ns in 0..1_000 {
            let rung_ns = 200 + ns;
            let host = HostTimes {
                start_ns: 0,
                rung_ns,
                woken_ns: Some(rung_ns + 7_000),
                seen_ns: Some(rung_ns + 7_150),
                end_ns: rung_ns + 7_200,
                competitor_ns: 1_500,
            };
            let parts_ns = [rung_ns, 100, 0, 2_900, 4_000, 150, 50];
            tally.record(&match stamped {
                true => TimeLine { parts_ns, competitor_ns: 1_500, ..TimeLine::default() },
                false => TimeLine::new(&host, None),
            });
        }
        tally.competed = Sample { at_ns: 1_000, ran_ns: 400, work: 40, ..Sample::default() };
        tally
    };
    let _ = meantime_baselines::register();
    let policy: meantime_completion::Policy = policy.parse().unwrap();
    Bar {
        device: device.to_owned(),
        stamped,
        bytes: 4096,
        policy,
        alone: tally(),
        competing: tally(),
    }
}

/// Returns two bars of two devices. The name of one needs escaping.
pub(super) fn anatomy(stamped: bool) -> Anatomy {
    Anatomy {
        rw: "randread",
        bars: vec![bar("mem:1M?a=1&b=<2>", "interrupt", stamped), bar("mem:2M", "poll", stamped)],
        competitor: Some((
            Kind::Tsc,
            Sample { at_ns: 1_000, ran_ns: 990, work: 99, ..Sample::default() },
        )),
        cpu: 0,
        clock_read_ns: 20,
        machine: Machine::probe(),
    }
}
