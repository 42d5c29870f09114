//! Parses a request line and produces the answer.

use super::FaultControl;
use crate::controller::Refusal;
use crate::faults::FaultRule;

const USE: &str = "use faults, faults add RULE, faults clear, slow TIME, power-cut [SEED], unplug, \
                   plug, counters or refusals";

/// Executes the command in `line`. Returns the answer, as whole lines.
pub(super) fn answer(ssd: &dyn FaultControl, line: &[u8]) -> String {
    let line = std::str::from_utf8(line).map_err(|_| format!("this is no text; {USE}"));
    let executed = line.and_then(|line| execute(ssd, line.trim()));
    executed.map_or_else(|why| error(&why), |news| news + "ok\n")
}

/// Returns the answer to a command that fails.
pub(super) fn error(why: &str) -> String {
    // Whatever the request was, the answer is one line.
    let why: Vec<&str> = why.lines().map(str::trim).filter(|part| !part.is_empty()).collect();
    format!("error: {}\n", why.join(" "))
}

fn execute(ssd: &dyn FaultControl, line: &str) -> Result<String, String> {
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let alone = || match rest {
        "" => Ok(()),
        _ => Err(format!("{command} takes nothing more; {USE}")),
    };
    let none = |()| String::new();
    match command {
        "faults" => faults(ssd, rest),
        "slow" if !rest.is_empty() => add(ssd, &format!("late-completion by={rest}")),
        "power-cut" => {
            let seed = match rest {
                "" => std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos().into(),
                text => text
                    .parse()
                    .map_err(|_| format!("{text:?} is no seed; a number, or nothing"))?,
            };
            Ok(format!(" {} unflushed writes lost (seed {seed})\n", ssd.cut_power(seed)))
        }
        "unplug" => alone().map(|()| ssd.unplug()).map(none),
        "plug" => alone().map(|()| ssd.plug()).map(none),
        "counters" => alone().map(|()| counters(ssd)),
        "refusals" => alone().map(|()| ssd.refusals().iter().map(refusal).collect()),
        _ => Err(format!("there is no command {command:?}; {USE}")),
    }
}

fn faults(ssd: &dyn FaultControl, rest: &str) -> Result<String, String> {
    match rest.split_once(char::is_whitespace).unwrap_or((rest, "")) {
        ("" | "list", "") => Ok(ssd
            .faults()
            .iter()
            .map(|fault| format!(" {}  # {} of {} commands\n", fault.rule, fault.hits, fault.seen))
            .collect()),
        ("clear", "") => {
            ssd.clear_faults();
            Ok(String::new())
        }
        ("add", rule) => add(ssd, rule),
        _ => Err(format!("faults, faults add RULE, or faults clear, not {rest:?}")),
    }
}

fn add(ssd: &dyn FaultControl, rule: &str) -> Result<String, String> {
    let rule = FaultRule::parse_line(rule).map_err(|error| error.to_string())?;
    ssd.add_fault(rule).map_err(|error| error.to_string())?;
    Ok(format!(" {rule}\n"))
}

fn counters(ssd: &dyn FaultControl) -> String {
    ssd.counters().iter().map(|(name, value)| format!(" {name} {value}\n")).collect()
}

fn refusal(refusal: &Refusal) -> String {
    let Refusal { qid, cid, status, reason, tolerated } = refusal;
    let cid = cid.map_or(String::new(), |cid| format!(", command {cid:#06x}"));
    let status = status.map_or(String::new(), |status| format!("; {status}"));
    let tolerated = if *tolerated { "; tolerated" } else { "" };
    format!(" queue {qid}{cid}: {reason}{status}{tolerated}\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Medium, SsdConfig, SteppedSsd};

    fn ssd() -> SteppedSsd {
        let config =
            SsdConfig { volatile_write_cache: true, ..SsdConfig::with_namespace(1 << 20, 512) };
        SteppedSsd::new(config, Medium::dram(1 << 20).unwrap(), 1).unwrap()
    }

    #[test]
    fn commands_are_obeyed() {
        let ssd = ssd();
        let ask = |line: &str| answer(&ssd, line.as_bytes());
        assert_eq!(ask("faults"), "ok\n");
        assert_eq!(
            ask(" faults  add  lost-completion opcode=read  times=1 "),
            " lost-completion opcode=read times=1\nok\n"
        );
        assert_eq!(ask("slow 2ms"), " late-completion by=2ms\nok\n");
        assert_eq!(
            ask("faults list"),
            " lost-completion opcode=read times=1  # 0 of 0 commands\n late-completion by=2ms  # 0 of 0 commands\nok\n"
        );
        assert_eq!(ask("faults clear"), "ok\n");
        assert_eq!(ask("faults"), "ok\n");
        assert_eq!(ask("power-cut 7"), " 0 unflushed writes lost (seed 7)\nok\n");
        assert!(ask("power-cut").contains("(seed "));
        assert_eq!(ask("unplug"), "ok\n");
        assert_eq!(ssd.port().read32(0x1c), u32::MAX);
        assert_eq!(ask("plug"), "ok\n");
        assert_eq!(ssd.port().read32(0x1c), 0);
        ssd.port().write32(0x24, 0x00ff_00ff);
        ssd.port().write32(0x8, 1);
        assert!(ask("refusals").starts_with(" queue 0: write to a register that is read-only"));
        assert!(
            ask("counters").contains("\n resets 3\n"),
            "two power cuts and a return: {}",
            ask("counters")
        );
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_would_do() {
        let ssd = ssd();
        for (line, word) in [
            ("", "no command"),
            ("fault", "use faults"),
            ("faults remove", "faults add RULE"),
            ("faults add", "begins with the name"),
            ("faults add nonsense", "lost-completion"),
            ("faults clear all", "not \"clear all\""),
            ("slow", "no command \"slow\""),
            ("slow 2", "3ms"),
            ("unplug now", "nothing more"),
            ("power-cut x", "no seed"),
        ] {
            let answer = answer(&ssd, line.as_bytes());
            assert!(answer.starts_with("error: ") && answer.contains(word), "{line}: {answer}");
            assert_eq!(answer.matches('\n').count(), 1, "{line}: {answer}");
        }
        assert!(answer(&ssd, b"\xff\xfe").contains("no text"));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_answered(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let answer = answer(&ssd(), &line);
            let last = answer.lines().last().unwrap();
            prop_assert!(last == "ok" || last.starts_with("error: "));
        }
    }
}
