//! Applies a fault plan.

use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;

use super::plan::{FaultPlan, FaultRules, TooManyRules};
use super::rule::{Fault, FaultHits, FaultRule};
use crate::Rng;
use crate::store::has_blocks;

/// Consecutive bits to flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corruption {
    /// The first bit, modulo the length of the data.
    pub(crate) first_bit: u64,
    pub(crate) bits: u32,
}

/// The faults injected into one completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CqeFaults {
    /// Whether a stray completion follows.
    pub(crate) stray: bool,
    /// Whether it is written twice.
    pub(crate) duplicate: bool,
    pub(crate) wrong_phase: bool,
    /// Whether it raises no interrupt.
    pub(crate) silent: bool,
    /// The SQ head to report.
    pub(crate) sqhd: Option<u16>,
}

/// The faults injected into one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The status with which the command ends, without being executed.
    pub(crate) status: Option<Status>,
    pub(crate) lose: bool,
    /// Whether it is neither executed nor completed. This is for admin commands only.
    pub(crate) stuck: bool,
    pub(crate) late_by_ns: u64,
    pub(crate) cqe: CqeFaults,
    pub(crate) corrupt_read: Option<Corruption>,
    pub(crate) corrupt_write: Option<Corruption>,
    pub(crate) torn: bool,
    /// Whether the command, if it is a flush, is completed without being executed.
    pub(crate) ignored: bool,
    /// Whether the command, the second one of a fused pair, is executed even if the first failed.
    pub(crate) unfused: bool,
    pub(crate) fatal: bool,
    pub(crate) gone: bool,
}

/// The properties of a command that rules test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) qid: u16,
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    /// First and last block, if the entry names blocks.
    pub(crate) lbas: Option<(u64, u64)>,
    pub(crate) now_ns: u64,
}

impl Seen {
    pub(crate) fn of(qid: u16, sqe: &Sqe, now_ns: u64) -> Self {
        let (first, count) = (sqe.slba(), u64::from(sqe.nlb()));
        let lbas = || (first, first.saturating_add(count - 1));
        let lbas = (qid != 0 && has_blocks(sqe)).then(lbas);
        Self { qid, opcode: sqe.opcode(), nsid: sqe.nsid.get(), lbas, now_ns }
    }

    fn is_admin(&self) -> bool {
        self.qid == 0
    }
}

/// A rule in force.
struct Armed {
    rule: FaultRule,
    rng: Rng,
    seen: u64,
    hits: u64,
    /// The time of the first command that it concerned.
    since_ns: Option<u64>,
}

impl Armed {
    fn new(rule: FaultRule, seed: u64) -> Self {
        Self { rule, rng: Rng::new(seed), seen: 0, hits: 0, since_ns: None }
    }

    /// Returns whether the conditions about the command itself hold.
    fn concerns(&self, seen: &Seen) -> bool {
        let FaultRule { fault, when } = &self.rule;
        (fault.is_admin() || when.is_admin()) == seen.is_admin()
            && when.opcodes.is_none_or(|set| set.contains(seen.opcode))
            && when.nsid.is_none_or(|nsid| nsid == seen.nsid)
            && when.queue.is_none_or(|qid| qid == seen.qid)
            && when
                .lbas
                .is_none_or(|(first, last)| seen.lbas.is_some_and(|(a, b)| a <= last && first <= b))
    }

    /// Returns whether the fault happens now, to a command that the rule concerns.
    fn strikes(&mut self, now_ns: u64) -> bool {
        let when = &self.rule.when;
        let age_ns = now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns));
        if age_ns < when.after_ns || when.until_ns.is_some_and(|until_ns| age_ns > until_ns) {
            return false;
        }
        self.seen += 1;
        let due = self.seen >= when.from
            && (self.seen - when.from).is_multiple_of(when.every)
            && when.times.is_none_or(|times| self.hits < times);
        let strikes =
            due && (when.probability_ppm >= 1_000_000 || self.rng.chance_ppm(when.probability_ppm));
        self.hits += u64::from(strikes);
        strikes
    }
}

/// A fault plan in force.
pub(crate) struct Faults {
    plan: FaultPlan,
    rules: Vec<Armed>,
    /// Seeds of the rules' own generators.
    seeds: Rng,
    none: bool,
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let mut seeds = Rng::new(plan.seed);
        let rules = plan.rules.iter().map(|rule| Armed::new(*rule, seeds.next_u64())).collect();
        let none = plan.is_none();
        Self { plan, rules, seeds, none }
    }

    /// Returns whether nothing is injected.
    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.none
    }

    /// Adds a rule to the plan in force.
    pub(crate) fn add(&mut self, rule: FaultRule) -> Result<(), TooManyRules> {
        self.plan.rules.push(rule)?;
        let seed = self.seeds.next_u64();
        self.rules.push(Armed::new(rule, seed));
        self.none = false;
        Ok(())
    }

    /// Returns the rules in force, and how often each has happened.
    pub(crate) fn hits(&self) -> Vec<FaultHits> {
        let hits =
            |armed: &Armed| FaultHits { rule: armed.rule, seen: armed.seen, hits: armed.hits };
        self.rules.iter().map(hits).collect()
    }

    /// Stops injecting faults.
    pub(crate) fn clear(&mut self) {
        self.plan.rules = FaultRules::NONE;
        self.rules.clear();
        self.none = true;
    }

    /// Returns whether CSTS.RDY does not follow CC.EN this time.
    pub(crate) fn never_ready(&mut self, now_ns: u64) -> bool {
        let mut never = false;
        for armed in self.rules.iter_mut().filter(|armed| armed.rule.fault == Fault::NeverReady) {
            // Each rule counts the enabling.
            never |= armed.strikes(now_ns);
        }
        never
    }

    /// Decides on the next command.
    pub(crate) fn next(&mut self, seen: Seen) -> Verdict {
        let mut verdict = Verdict::default();
        for armed in &mut self.rules {
            if armed.rule.fault != Fault::NeverReady
                && armed.concerns(&seen)
                && armed.strikes(seen.now_ns)
            {
                let first_bit = armed.rng.next_u64();
                verdict.add(armed.rule.fault, first_bit);
            }
        }
        verdict
    }
}

impl Verdict {
    /// Returns whether the command is treated normally.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, fault: Fault, first_bit: u64) {
        match fault {
            // The first rule wins.
            Fault::Status(status) => self.status = self.status.or(Some(status)),
            Fault::LostCompletion => self.lose = true,
            Fault::StuckAdmin => self.stuck = true,
            Fault::LateCompletion(by_ns) | Fault::SlowAdmin(by_ns) => {
                self.late_by_ns = self.late_by_ns.saturating_add(by_ns);
            }
            Fault::DuplicateCqe => self.cqe.duplicate = true,
            Fault::StrayCqe => self.cqe.stray = true,
            Fault::WrongPhase => self.cqe.wrong_phase = true,
            Fault::LostInterrupt => self.cqe.silent = true,
            Fault::WrongSqhd(sqhd) => self.cqe.sqhd = self.cqe.sqhd.or(Some(sqhd)),
            Fault::CorruptRead(bits) => self.corrupt_read = Some(Corruption { first_bit, bits }),
            Fault::CorruptWrite(bits) => self.corrupt_write = Some(Corruption { first_bit, bits }),
            Fault::TornWrite => self.torn = true,
            Fault::IgnoredFlush => self.ignored = true,
            Fault::Unfused => self.unfused = true,
            Fault::FatalStatus => self.fatal = true,
            Fault::SurpriseRemoval => self.gone = true,
            Fault::NeverReady => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use meantime_nvme_spec::opcode::IoOpcode;

    use super::super::rule::{OpcodeSet, When};
    use super::*;

    fn command(opcode: IoOpcode, lba: u64, blocks: u64, now_ns: u64) -> Seen {
        Seen { qid: 1, opcode: opcode as u8, nsid: 1, lbas: Some((lba, lba + blocks - 1)), now_ns }
    }

    /// Returns the indexes of those `commands` for which the rule strikes.
    fn struck(when: When, commands: impl Iterator<Item = Seen>) -> Vec<usize> {
        let rule = FaultRule { fault: Fault::LostCompletion, when };
        let mut faults = Faults::new(FaultPlan { seed: 1, ..FaultPlan::only(rule) });
        commands.enumerate().filter(|(_, seen)| faults.next(*seen).lose).map(|(at, _)| at).collect()
    }

    fn reads(n: u64) -> impl Iterator<Item = Seen> {
        (0..n).map(|i| command(IoOpcode::Read, i, 1, i * 10))
    }

    #[test]
    fn every_from_and_times_count_commands() {
        let when = When { from: 3, every: 4, times: Some(3), ..When::ALWAYS };
        assert_eq!(struck(when, reads(100)), [2, 6, 10]);
        assert_eq!(struck(When::ONCE, reads(100)), [0]);
        assert!(struck(When { times: Some(0), ..When::ALWAYS }, reads(100)).is_empty());
    }

    #[test]
    fn ranges_of_blocks_overlap_or_not() {
        let at = |lba, blocks| command(IoOpcode::Write, lba, blocks, 0);
        let commands = [at(0, 10), at(0, 11), at(19, 5), at(20, 1), at(12, 2), at(0, 100)];
        let when = When { lbas: Some((10, 19)), ..When::ALWAYS };
        assert_eq!(struck(when, commands.into_iter()), [1, 2, 4, 5]);
        let flush = Seen { lbas: None, ..command(IoOpcode::Flush, 0, 1, 0) };
        assert!(struck(when, [flush].into_iter()).is_empty());
    }

    #[test]
    fn opcode_namespace_and_queue_are_conditions_and_admin_is_apart() {
        let read = command(IoOpcode::Read, 0, 1, 0);
        // Get Log Page has Read's opcode.
        let log = Seen { qid: 0, lbas: None, ..read };
        let commands = [read, log, Seen { qid: 2, ..read }, Seen { nsid: 2, ..read }];
        let commands = || commands.into_iter();
        assert_eq!(struck(When::ALWAYS, commands()), [0, 2, 3]);
        assert_eq!(struck(When { queue: Some(0), ..When::ALWAYS }, commands()), [1]);
        assert_eq!(struck(When { queue: Some(2), ..When::ALWAYS }, commands()), [2]);
        assert_eq!(struck(When { nsid: Some(2), ..When::ALWAYS }, commands()), [3]);
        let opcodes =
            Some(OpcodeSet::admin(&[meantime_nvme_spec::opcode::AdminOpcode::GetLogPage]));
        assert_eq!(struck(When { opcodes, ..When::ALWAYS }, commands()), [1]);
        let opcodes = Some(OpcodeSet::io(&[IoOpcode::Write]));
        assert!(struck(When { opcodes, ..When::ALWAYS }, commands()).is_empty());
    }

    #[test]
    fn times_are_counted_from_the_first_command() {
        let when = When { after_ns: 30, until_ns: Some(50), ..When::ALWAYS };
        let commands = reads(10).map(|seen| Seen { now_ns: seen.now_ns + 1_000, ..seen });
        assert_eq!(struck(when, commands), [3, 4, 5]);
    }

    #[test]
    fn chance_has_its_probability_and_follows_the_seed() {
        let when = When { probability_ppm: 250_000, ..When::ALWAYS };
        let hits = struck(when, reads(10_000));
        assert!((2_300..2_700).contains(&hits.len()), "{}", hits.len());
        assert_eq!(hits, struck(when, reads(10_000)));
    }

    #[test]
    fn rules_are_added_counted_and_cleared() {
        let mut faults = Faults::new(FaultPlan::NONE);
        assert!(faults.is_none());
        faults.add(FaultRule::new(Fault::StrayCqe, When { every: 2, ..When::ALWAYS })).unwrap();
        assert!(!faults.is_none());
        reads(5).for_each(|seen| assert!(faults.next(seen).cqe.stray == (seen.now_ns % 20 == 0)));
        let [FaultHits { seen, hits, .. }] = faults.hits()[..] else { panic!() };
        assert_eq!((seen, hits), (5, 3));
        for _ in 1..super::super::FAULT_RULES_MAX {
            faults.add(FaultRule::new(Fault::WrongPhase, When::ONCE)).unwrap();
        }
        faults.add(FaultRule::new(Fault::WrongPhase, When::ONCE)).unwrap_err();
        faults.clear();
        assert!(
            faults.is_none()
                && faults.hits().is_empty()
                && faults.next(command(IoOpcode::Read, 0, 1, 0)).is_none()
        );
    }
}
