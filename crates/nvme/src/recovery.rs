//! Commands held for a retry: after a status that allows it, or because their queue was lost.
//!
//! A held command keeps its slot without being in flight. Its CID already has the next generation,
//! so a late entry for the last try is a stray.

use super::queue::{Command, CommandError, Op, Outcome, QueuePair};
use super::retry::{Retries, Verdict, verdict};
use meantime_hw::Clock;
use meantime_nvme_spec::status::Status;

/// The layer above, whose requests a queue's commands belong to. A number that it gives with each
/// command says which request: the command's `requester`.
pub trait Requester {
    /// Called when a command of `requester` has ended.
    fn ended(&mut self, requester: u16, outcome: Outcome);
    /// Returns the command that `requester` staged by `QueuePair::stage`, to stage it again; `None`
    /// if it was staged by `QueuePair::stage_kept`.
    fn again(&mut self, requester: u16) -> Option<Command>;
}

/// The state for staging a queue's commands again.
pub(crate) struct Recovery {
    clock: Clock,
    retries: Retries,
    /// For each tag, the last command staged by [`QueuePair::stage_kept`].
    kept: Box<[Command]>,
    /// For each tag, the number of repeats of the current or last command.
    trials: Box<[Trial]>,
    held: Vec<Held>,
    /// The earliest due time of a held command, in ns.
    due_ns: u64,
}

/// Identifies the command whose tries are counted: a slot's next command has another CID or another
/// start time.
#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    cid: u16,
    count: u8,
    since_us: u32,
}

/// A command to be staged again.
#[derive(Debug, Clone, Copy)]
struct Held {
    tag: u16,
    requester: u16,
    /// The number of this repeat, from 1.
    count: u8,
    /// The earliest time at which it is staged, in ns.
    due_ns: u64,
    /// When its deadline began, in µs; 0 if it begins again.
    since_us: u32,
    /// Why the last try failed.
    error: CommandError,
}

/// A time in µs that may wrap, and is never 0, as stored in slots.
pub(super) fn micros(now_ns: u64) -> u32 {
    ((now_ns / 1_000) as u32).max(1)
}

impl Recovery {
    pub(crate) fn new(slots: u16, clock: Clock, retries: Retries) -> Self {
        let count = usize::from(slots);
        Self {
            clock,
            retries,
            kept: vec![Command::default(); count].into(),
            trials: vec![Trial::default(); count].into(),
            held: Vec::with_capacity(count),
            due_ns: u64::MAX,
        }
    }

    /// The number of repeats of the command with `cid`, first seen by a sweep at `since_us`.
    fn count(&self, tag: u16, cid: u16, since_us: u32) -> u8 {
        let trial = self.trials[usize::from(tag)];
        if since_us != 0 && trial.cid == cid && trial.since_us == since_us {
            trial.count
        } else {
            0
        }
    }

    fn hold(&mut self, held: Held) {
        self.due_ns = self.due_ns.min(held.due_ns);
        self.held.push(held);
    }

    fn find_due(&mut self) {
        self.due_ns = self.held.iter().map(|held| held.due_ns).min().unwrap_or(u64::MAX);
    }
}

impl QueuePair {
    /// Enables repeats of failed commands.
    pub(crate) fn set_recovery(&mut self, clock: Clock, retries: Retries) {
        self.recovery = Some(Box::new(Recovery::new(self.slots(), clock, retries)));
    }

    /// Disables further repeats; commands that are held already stay held.
    pub(crate) fn stop_retrying(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.retries.most = 0;
        }
    }

    /// Keeps a copy of `command`, which its requester cannot build again.
    pub(super) fn keep(&mut self, tag: u16, command: &Command) {
        if let Some(recovery) = &mut self.recovery {
            recovery.kept[usize::from(tag)] = *command;
        }
    }

    /// Whether commands are held.
    pub(crate) fn has_held(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| !recovery.held.is_empty())
    }

    /// Number of held commands.
    fn held(&self) -> u16 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.held.len() as u16)
    }

    /// Number of commands that the device has.
    pub(super) fn with_device(&self) -> u16 {
        self.in_flight() - self.held()
    }

    /// When the first held command is due, in ns; `u64::MAX` if none is held.
    pub(crate) fn due_ns(&self) -> u64 {
        self.recovery.as_ref().map_or(u64::MAX, |recovery| recovery.due_ns)
    }

    /// Handles the end with `status` of the command of `requester` with `cid`, whose slot is
    /// already vacated. Returns true if the command is held to be repeated.
    pub(super) fn hold_failed(&mut self, cid: u16, requester: u16, status: Status) -> bool {
        if Self::is_fused(requester) {
            return false;
        }
        let verdict = verdict(status);
        let tag = self.tag_of(cid);
        let since_us = self.first_swept_us(tag);
        let Some(recovery) = &mut self.recovery else { return false };
        let count = recovery.count(tag, cid, since_us);
        if verdict == Verdict::Final || count >= recovery.retries.most {
            return false;
        }
        let now_ns = recovery.clock.now_ns();
        let (count, error) = (count + 1, CommandError::Status(status));
        if verdict == Verdict::Requeue {
            recovery.hold(Held { tag, requester, count, due_ns: 0, since_us: 0, error });
        } else {
            let since_us = if since_us == 0 { micros(now_ns) } else { since_us };
            let passed_ns = u64::from(micros(now_ns).wrapping_sub(since_us)) * 1_000;
            let pause_ns = recovery.retries.pause_ns(status, count);
            // A try after the deadline would only delay the error.
            if passed_ns.saturating_add(pause_ns) >= recovery.retries.timeout_ns {
                return false;
            }
            let due_ns = now_ns.saturating_add(pause_ns);
            recovery.hold(Held { tag, requester, count, due_ns, since_us, error });
        }
        // The next submission, and the next tick of a wait, then take the slow path, which checks
        // for due commands.
        self.ring_mut().close();
        true
    }

    /// Called when the queue was deleted or the controller reset, and the device has released every
    /// buffer. Holds repeatable commands, in the order in which they were staged, and ends the
    /// rest: the command `victim` with [`CommandError::TimedOut`], the others with
    /// [`CommandError::Reset`]. With `cache_lost` no flush is repeated.
    pub(crate) fn requeue_all(
        &mut self,
        victim: Option<u16>,
        cache_lost: bool,
        to: &mut dyn Requester,
    ) {
        if cache_lost {
            self.fail_held_flushes(to);
        }
        for (tag, cid, requester) in self.in_order() {
            let since_us = self.first_swept_us(tag);
            let mut error =
                if victim == Some(cid) { CommandError::TimedOut } else { CommandError::Reset };
            let count = match &self.recovery {
                Some(recovery) if !Self::is_fused(requester) => {
                    let op = to.again(requester).unwrap_or(recovery.kept[usize::from(tag)]).op;
                    let lost = cache_lost && op == Op::Flush;
                    error = if lost { CommandError::CacheLost } else { error };
                    let count = recovery.count(tag, cid, since_us);
                    (!lost && count < recovery.retries.most).then_some(count + 1)
                }
                _ => None,
            };
            self.vacate(tag);
            match (count, &mut self.recovery) {
                (Some(count), Some(recovery)) => {
                    recovery.hold(Held { tag, requester, count, due_ns: 0, since_us: 0, error });
                }
                _ => {
                    self.vacated(tag);
                    to.ended(requester, Err(error));
                }
            }
        }
    }

    /// Every command that the device has, in staging order: (tag, CID, requester).
    ///
    /// The submission ring gives the order of those whose entry it still has; the others are older,
    /// and come first.
    fn in_order(&self) -> Vec<(u16, u16, u16)> {
        let mut places = vec![0u32; usize::from(self.slots())];
        for (place, cid) in (1..).zip(self.ring().cids()) {
            let tag = self.tag_of(cid);
            if self.is_busy(cid) {
                places[usize::from(tag)] = place;
            }
        }
        let mut busy = self.busy();
        busy.sort_by_key(|&(tag, ..)| places[usize::from(tag)]);
        busy
    }

    /// Stages due held commands, and rings the doorbell. Only called while the device knows the
    /// queue.
    pub(crate) fn restage(&mut self, now_ns: u64, to: &mut dyn Requester) {
        let Some(mut recovery) = self.recovery.take() else { return };
        let mut index = 0;
        while let Some(&held) = recovery.held.get(index) {
            if held.due_ns > now_ns {
                index += 1;
                continue;
            }
            recovery.held.remove(index);
            let command = to.again(held.requester).unwrap_or(recovery.kept[usize::from(held.tag)]);
            let begins_anew = held.since_us == 0;
            let since_us = if begins_anew { micros(now_ns) } else { held.since_us };
            let cid = self.stage_again(held.tag, held.requester, &command, since_us);
            recovery.trials[usize::from(held.tag)] = Trial { cid, count: held.count, since_us };
            let counters = self.counters_mut();
            if begins_anew {
                counters.requeued += 1;
            } else {
                counters.retries += 1;
            }
        }
        recovery.find_due();
        self.recovery = Some(recovery);
        self.ring_doorbell();
    }

    /// Ends all held commands: with `error`, or with the error of their last try.
    pub(crate) fn fail_held(&mut self, error: Option<CommandError>, to: &mut dyn Requester) {
        self.end_held(to, |held, _| Some(error.unwrap_or(held.error)));
    }

    /// Ends the held flushes: the data that they cover may be lost.
    pub(crate) fn fail_held_flushes(&mut self, to: &mut dyn Requester) {
        let lost = |command: &Command| (command.op == Op::Flush).then_some(CommandError::CacheLost);
        self.end_held(to, |_, command| lost(command));
    }

    /// Ends the held commands for which `judge` returns an error.
    fn end_held(
        &mut self,
        to: &mut dyn Requester,
        judge: impl Fn(&Held, &Command) -> Option<CommandError>,
    ) {
        let Some(recovery) = &mut self.recovery else { return };
        let Recovery { held, kept, .. } = &mut **recovery;
        let mut ended = Vec::new();
        held.retain(|held| {
            let command = to.again(held.requester).unwrap_or(kept[usize::from(held.tag)]);
            let error = judge(held, &command);
            ended.extend(error.map(|error| (held.tag, held.requester, error)));
            error.is_none()
        });
        recovery.find_due();
        for (tag, requester, error) in ended {
            self.vacated(tag);
            to.ended(requester, Err(in_callers_terms(error)));
        }
    }
}

/// Translates an error caused by the driver's own recovery into the caller's terms.
pub(super) fn in_callers_terms(error: CommandError) -> CommandError {
    use meantime_nvme_spec::status::StatusCode::{
        CommandAbortedByRequest, CommandAbortedSqDeletion,
    };
    match error {
        CommandError::Status(status) if status.is(CommandAbortedByRequest) => {
            CommandError::TimedOut
        }
        CommandError::Status(status) if status.is(CommandAbortedSqDeletion) => CommandError::Reset,
        other => other,
    }
}
