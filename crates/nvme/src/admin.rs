//! The admin queue: one command at a time.

use std::sync::Arc;

use meantime_nvme_spec::regs::GONE;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;

use super::error::{Error, Result};
use super::queue::{CommandError, Outcome, QueuePair};
use super::registers::{Registers, is_alive};
use super::retry::{Verdict, verdict};
use meantime_hw::{Clock, DmaBuf, Progress};

/// Entries of the admin queues.
pub(crate) const ADMIN_ENTRIES: u16 = 32;

/// The pauses before each repetition of a command, in ns.
const RETRY_PAUSES_NS: [u64; 3] = [100_000, 1_000_000, 10_000_000];

/// The admin queue and what is in flight on it.
pub(crate) struct AdminQueue {
    queue: QueuePair,
    /// What moves its entries, if the device does not.
    progress: Option<Arc<dyn Progress>>,
    /// The commands, by requester.
    slots: Vec<AdminSlot>,
}

/// The state of a requester's command.
enum AdminSlot {
    Free,
    /// A command that its caller waits for.
    Sent,
    /// A command that has ended.
    Ended(Outcome),
    /// A command without a waiting caller. Its data buffer stays until it ends.
    Abandoned(Option<DmaBuf>),
}

/// The context of an admin command besides its entry.
pub(crate) struct AdminContext<'a> {
    pub(super) registers: &'a Registers,
    pub(crate) clock: &'a Clock,
    pub(crate) timeout_ns: u64,
}

impl AdminQueue {
    pub(crate) fn new(queue: QueuePair, progress: Option<Arc<dyn Progress>>) -> Self {
        let slots = (0..queue.slots()).map(|_| AdminSlot::Free).collect();
        Self { queue, progress, slots }
    }

    pub(crate) fn queue(&self) -> &QueuePair {
        &self.queue
    }

    /// Sends `sqe` and waits for its completion. Returns CDW0 of the completion. Repeats the
    /// command a few times if the controller's status says that it was not executed and may be
    /// repeated.
    ///
    /// `data` is lent to the device. If the command is not answered in time, the buffer stays with
    /// it until the controller is reset, and is not returned to the caller.
    pub(crate) fn execute(
        &mut self,
        context: &AdminContext<'_>,
        command: &'static str,
        sqe: Sqe,
        data: Option<DmaBuf>,
    ) -> Result<(u32, Option<DmaBuf>)> {
        let timeout_ms = context.timeout_ns / 1_000_000;
        let timed_out = Error::AdminTimeout { command, timeout_ms };
        for pause_ns in RETRY_PAUSES_NS.into_iter().map(Some).chain([None]) {
            let is_free = |slot: &AdminSlot| matches!(slot, AdminSlot::Free);
            let Some(requester) = self.slots.iter().position(is_free) else {
                return Err(timed_out);
            };
            // The queue is full of commands that were never answered.
            if self.queue.stage_raw(requester as u16, sqe).is_err() {
                return Err(timed_out);
            }
            self.slots[requester] = AdminSlot::Sent;
            self.queue.ring_doorbell();
            match self.wait(context, requester) {
                Some(Ok(dw0)) => return Ok((dw0, data)),
                Some(Err(CommandError::Status(status))) => match pause_ns {
                    Some(pause_ns) if verdict(status) == Verdict::Retry => {
                        context.clock.sleep_ns(pause_ns)
                    }
                    _ => return Err(Error::Admin { command, status }),
                },
                Some(Err(_)) => return Err(Error::Gone),
                None => {
                    self.slots[requester] = AdminSlot::Abandoned(data);
                    let csts = context.registers.csts();
                    return Err(match csts {
                        GONE => Error::Gone,
                        _ if !is_alive(csts) => Error::Fatal { csts, what: command },
                        _ => timed_out,
                    });
                }
            }
        }
        Err(timed_out)
    }

    fn wait(&mut self, context: &AdminContext<'_>, requester: usize) -> Option<Outcome> {
        let start_ns = context.clock.now_ns();
        let mut pause_ns = 0;
        loop {
            self.reap();
            if let AdminSlot::Ended(outcome) = self.slots[requester] {
                self.slots[requester] = AdminSlot::Free;
                return Some(outcome);
            }
            let waited_ns = context.clock.now_ns().saturating_sub(start_ns);
            if waited_ns >= context.timeout_ns {
                return None;
            }
            // Software answers in microseconds. A real controller may take milliseconds, which do
            // not justify a busy core.
            if waited_ns > 50_000 {
                pause_ns = (pause_ns + 5_000).min(1_000_000);
                context.clock.sleep_ns(pause_ns);
                if !is_alive(context.registers.csts()) {
                    return None;
                }
            }
        }
    }

    /// Reaps completions.
    fn reap(&mut self) {
        if let Some(progress) = &self.progress {
            progress.progress();
        }
        let Self { queue, slots, .. } = self;
        queue.reap(|requester, outcome| {
            let slot = &mut slots[usize::from(requester)];
            // The late answer to an abandoned command releases its buffer here.
            *slot = match slot {
                AdminSlot::Abandoned(_) => AdminSlot::Free,
                _ => AdminSlot::Ended(outcome),
            };
        });
    }

    /// Called after the controller was disabled: no command is in flight any more.
    pub(crate) fn reset(&mut self) {
        self.queue.fail_all(None, CommandError::Reset, &mut |_, _| {});
        self.queue.reset_rings();
        self.slots.fill_with(|| AdminSlot::Free);
    }

    /// Keeps the memory allocated for ever: the device may still write to it.
    pub(crate) fn quarantine(mut self) {
        for slot in self.slots {
            if let AdminSlot::Abandoned(Some(data)) = slot {
                data.quarantine();
            }
        }
        self.queue.quarantine();
    }
}

/// Whether an Abort, a deletion or the like failed only because there was nothing to do.
pub(crate) fn is_code(error: &Error, code: StatusCode) -> bool {
    matches!(error, Error::Admin { status, .. } if status.is(code))
}
