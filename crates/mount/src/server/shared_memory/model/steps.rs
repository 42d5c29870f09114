//! The model's steps of a program, of the kernel for it, and of the owner.

use super::super::gate::Mode;
use super::{At, Gate, Late, Model, NONE, OPS, Op, Program, Sent, State, Step};

impl Model {
    fn gate<'a>(&self, state: &'a mut State, i: usize) -> &'a mut Gate {
        let i = if self.rules.is_shared { 0 } else { i };
        state.gates[i].as_mut().expect("the file is open")
    }

    fn begin(&self, state: &State, i: usize, op: Op) -> Option<State> {
        let mut state = *state;
        let program = state.programs[i];
        let may = match op {
            Op::Open => !program.is_open,
            Op::Close => program.is_open && !program.is_mapped,
            Op::Take => program.is_open && self.has_library[i] && !program.has_taken,
            Op::SharedRead | Op::SharedWrite => program.is_open && program.has_taken,
            Op::Unmap => program.is_mapped,
            _ => program.is_open,
        };
        if program.left == 0 || !may {
            return None;
        }
        let reads = matches!(op, Op::SharedRead | Op::LongRead | Op::DirectRead);
        let writes = matches!(op, Op::SharedWrite | Op::LongWrite | Op::DirectWrite | Op::Store);
        let before = match () {
            () if reads => state.old,
            () if writes => state.complete,
            () => 0,
        };
        let version = if writes { state.new_version() } else { NONE };
        let at = match op {
            Op::Open => At::Idle,
            Op::Take => At::Take,
            Op::SharedRead | Op::SharedWrite => At::SharedMemory,
            Op::LongRead => At::Page,
            Op::LongWrite => At::Lock,
            Op::Store if program.has_taken => At::Leave(Sent::Queued),
            Op::Store => At::Page,
            Op::Close | Op::Unmap | Op::DirectRead | Op::DirectWrite => At::Back,
            // The other page is clean.
            Op::DirectElsewhere => At::Lock,
        };
        state.programs[i] = Program { left: program.left - 1, op, at, before, version, ..program };
        if op == Op::Open {
            state.programs[i].is_open = true;
            state.end(i);
            let gate = if self.rules.is_shared { 0 } else { i };
            let new = Gate { mode: Mode::Fresh, calls: 0, opens: 0 };
            state.gates[gate].get_or_insert(new).opens += 1;
        }
        Some(state)
    }

    /// Takes the owner's request for pages one step further, until it is to be executed.
    fn close(&self, state: &mut State, i: usize, sent: Sent, is_write: bool) -> Option<Sent> {
        let rules = &self.rules;
        let (closes, keeps) = match is_write {
            true => (rules.writes_close, rules.writes_keep),
            false => (rules.reads_close, rules.reads_keep),
        };
        let gate = self.gate(state, i);
        match sent {
            Sent::Queued => {
                if closes {
                    gate.mode = Mode::Long;
                }
                Some(Sent::Closing)
            }
            Sent::Closing if closes && rules.drains && gate.calls > 0 => None,
            Sent::Closing => {
                state.kept |= keeps;
                Some(Sent::Closed)
            }
            _ => unreachable!(),
        }
    }

    /// Returns whether another program has the inode's lock. Cached writes exclude all others, and
    /// direct ones exclude only cached ones.
    fn excludes(&self, state: &State, i: usize) -> bool {
        let cached = |program: &Program| matches!(program.at, At::Filled | At::Write(_));
        let direct = |program: &Program| {
            matches!(program.op, Op::DirectWrite | Op::DirectElsewhere)
                && matches!(program.at, At::Direct | At::Executed | At::Noticed | At::Answered)
        };
        let (own, other) = (&state.programs[i], &state.programs[1 - i]);
        let is_cached = !matches!(own.op, Op::DirectWrite | Op::DirectElsewhere);
        cached(other) || is_cached && direct(other)
    }

    /// Returns whether a WRITE of the page is in flight. In that case the model does not write it
    /// back. The kernel does (since Linux 5.13), and the two may be executed in either order.
    /// Whether a store beside a cached write survives is up to the kernel.
    fn is_being_written(state: &State) -> bool {
        state.programs.iter().any(|program| matches!(program.at, At::Filled | At::Write(_)))
    }

    /// Returns whether the kernel may have something of the file.
    fn has(&self, state: &State, sees_notices: bool) -> bool {
        state.kept || sees_notices && state.late.iter().flatten().any(|late| !late.is_take)
    }

    /// Makes the next step of program `i`, or of the kernel or the owner for it, if there is one.
    fn step(&self, state: &mut State, i: usize) -> Option<(&'static str, Option<&'static str>)> {
        let program = state.programs[i];
        let version = program.version;
        let to = |state: &mut State, at| state.programs[i].at = at;
        let mut wrong = None;
        let what = match program.at {
            At::Idle | At::Emptying | At::Noticed => return None,
            At::Leave(Sent::Closed) => {
                to(state, At::Page);
                "left to the kernel"
            }
            At::Leave(sent) => {
                let kept = state.kept;
                let sent = self.close(state, i, sent, false)?;
                state.kept = kept;
                to(state, At::Leave(sent));
                "LEAVE"
            }
            At::Page => match state.page {
                Some(page) if program.op != Op::Store => {
                    wrong = state.read(i, page);
                    "reads the kernel's page"
                }
                _ if state.is_locked || state.back.is_some() => return None,
                Some(_) => {
                    (state.page, state.is_dirty) = (Some(version), true);
                    state.programs[i].is_mapped = true;
                    state.written(i);
                    "stores to the kernel's page"
                }
                None => {
                    state.is_locked = true;
                    to(state, At::Fill(Sent::Queued));
                    "READ is sent"
                }
            },
            At::Fill(Sent::Closed) => {
                to(state, At::Fill(Sent::Answered));
                state.fill = state.file;
                "READ is executed"
            }
            At::Fill(Sent::Answered) => {
                (state.page, state.is_locked) = (Some(state.fill), false);
                state.fill = NONE;
                to(state, At::Page);
                "the page is filled"
            }
            At::Fill(sent) => {
                let sent = self.close(state, i, sent, false)?;
                to(state, At::Fill(sent));
                "READ is taken"
            }
            At::Lock if self.excludes(state, i) => return None,
            At::Lock if program.op == Op::DirectElsewhere => {
                to(state, At::Direct);
                "direct WRITE elsewhere is sent"
            }
            At::Lock if program.op == Op::DirectWrite => {
                if self.kernel.drops_direct {
                    if state.is_locked {
                        return None;
                    }
                    if state.is_dirty || state.back.is_some() {
                        to(state, At::Back);
                        return Some(("the page is dirty again", None));
                    }
                    state.page = None;
                }
                to(state, At::Direct);
                "direct WRITE is sent"
            }
            At::Lock if state.is_locked => return None,
            At::Lock => {
                state.is_locked = self.kernel.locks_writes;
                // A page that is up to date is seen at once.
                if !self.kernel.locks_writes || state.page.is_some() {
                    state.page = Some(version);
                }
                to(state, At::Filled);
                "writes to the kernel's page"
            }
            At::Filled if state.back.is_some() => return None,
            At::Filled => {
                to(state, At::Write(Sent::Queued));
                "WRITE is sent"
            }
            At::Write(Sent::Closed) => {
                state.file = version;
                to(state, At::Write(Sent::Answered));
                "WRITE is executed"
            }
            At::Write(Sent::Answered) => {
                if self.kernel.locks_writes {
                    (state.page, state.is_locked) = (Some(version), false);
                }
                state.written(i);
                "the write is complete"
            }
            At::Write(sent) => {
                let sent = self.close(state, i, sent, true)?;
                to(state, At::Write(sent));
                "WRITE is taken"
            }
            At::Back if state.back.is_some() => return None,
            At::Back => match state.page {
                Some(_) if state.is_dirty && (state.is_locked || Self::is_being_written(state)) => {
                    return None;
                }
                Some(page) if state.is_dirty => {
                    state.write_back(page);
                    "WRITE of the dirty page is sent"
                }
                _ => match program.op {
                    Op::DirectRead => {
                        to(state, At::Direct);
                        "direct READ is sent"
                    }
                    Op::DirectWrite => {
                        to(state, At::Lock);
                        "nothing is dirty"
                    }
                    Op::Unmap => {
                        state.programs[i].is_mapped = false;
                        state.end(i);
                        "has unmapped"
                    }
                    _ => {
                        (state.programs[i].is_open, state.programs[i].has_taken) = (false, false);
                        state.end(i);
                        state.releases[if self.rules.is_shared { 0 } else { i }] += 1;
                        "FLUSH; has closed"
                    }
                },
            },
            At::Direct if program.op == Op::DirectRead => {
                state.programs[i].version = state.file;
                to(state, At::Answered);
                "direct READ is executed"
            }
            At::Direct => {
                if program.op == Op::DirectWrite {
                    state.file = version;
                }
                to(state, At::Executed);
                "direct WRITE is executed"
            }
            At::Executed
                if self.rules.direct_drops && self.has(state, self.rules.direct_sees_notices) =>
            {
                state.kept = false;
                state.queue(i, false);
                to(state, At::Noticed);
                "the note is given up for a notice"
            }
            At::Executed | At::Answered => {
                match program.op {
                    Op::DirectRead => wrong = state.read(i, version),
                    Op::DirectWrite => state.written(i),
                    _ => state.end(i),
                }
                "the direct call is complete"
            }
            At::Take => match self.gate(state, i).mode.taken() {
                Some(Mode::Entering) => {
                    self.gate(state, i).mode = Mode::Entering;
                    to(state, At::Entering);
                    "TAKE: the gate is entering"
                }
                None if self.rules.long_stays => {
                    state.end(i);
                    "TAKE is refused"
                }
                _ => {
                    self.gate(state, i).mode = Mode::SharedMemory;
                    state.programs[i].has_taken = true;
                    state.end(i);
                    "TAKE: the gate is at shared memory"
                }
            },
            At::Entering => {
                if self.rules.take_drops && self.has(state, self.rules.takes_see_notices) {
                    state.queue(i, true);
                    to(state, At::Emptying);
                    if !self.rules.drops_first {
                        self.empty(state, i);
                    }
                    "TAKE waits for a notice"
                } else {
                    self.empty(state, i);
                    "TAKE: nothing is kept"
                }
            }
            At::SharedMemory => {
                let gate = self.gate(state, i);
                gate.calls += 1;
                let at = if gate.mode.admits() { At::Entered } else { At::Refused };
                to(state, at);
                if at == At::Entered { "enters the gate" } else { "finds the gate closed" }
            }
            At::Refused => {
                self.gate(state, i).calls -= 1;
                to(state, if program.op == Op::SharedRead { At::Page } else { At::Lock });
                "takes the FUSE path"
            }
            At::Entered => {
                match program.op {
                    Op::SharedRead => state.programs[i].version = state.file,
                    _ => state.file = version,
                }
                to(state, At::Ending);
                "the shared-memory call is executed"
            }
            At::Ending => {
                self.gate(state, i).calls -= 1;
                match program.op {
                    Op::SharedRead => wrong = state.read(i, version),
                    _ => state.written(i),
                }
                "the shared-memory call is complete"
            }
        };
        Some((what, wrong))
    }

    /// Notes that the kernel has nothing of the file that program `i` takes. The program has its
    /// answer at once.
    fn empty(&self, state: &mut State, i: usize) {
        let gate = self.gate(state, i);
        gate.mode = if self.rules.long_wins { gate.mode.emptied() } else { Mode::SharedMemory };
        if state.programs[i].at == At::Entering {
            state.programs[i].has_taken = true;
            state.end(i);
        }
    }

    /// Makes a step of the thread that sends notices, and of the kernel in it.
    fn notice(&self, state: &mut State) -> Option<&'static str> {
        let is_being_written = Self::is_being_written(state);
        let late = state.late[0].as_mut()?;
        if late.launders {
            if state.back.is_some() {
                return None;
            }
            state.is_locked = false;
        } else {
            if state.is_locked || state.back.is_some() && (state.is_dirty || !self.kernel.copies) {
                return None;
            }
            if let Some(page) = state.page.filter(|_| state.is_dirty) {
                if is_being_written {
                    return None;
                }
                (late.launders, state.is_locked) = (true, true);
                state.write_back(page);
                return Some("notice: the dirty page is written back");
            }
        }
        let Late { to, is_take, .. } = *late;
        state.page = None;
        state.late = [state.late[1], None];
        let to = to as usize;
        if is_take {
            state.programs[to].at = At::Entering;
            self.empty(state, to);
            Some("notice: the page is dropped, TAKE is answered")
        } else {
            state.programs[to].at = At::Answered;
            Some("notice: the page is dropped, the direct WRITE is answered")
        }
    }

    /// Makes a step of the WRITE of a dirty page.
    fn back(&self, state: &mut State) -> Option<&'static str> {
        let (sent, version) = state.back?;
        // The page is written back by any file that is open.
        let by = state.programs.iter().position(|program| program.is_open)?;
        let (sent, what) = match sent {
            Sent::Answered => {
                state.back = None;
                return Some("the page is written back");
            }
            Sent::Closed => {
                state.file = version;
                (Sent::Answered, "WRITE of the dirty page is executed")
            }
            sent => (self.close(state, by, sent, true)?, "WRITE of the dirty page is taken"),
        };
        state.back = Some((sent, version));
        Some(what)
    }

    fn release(&self, state: &mut State, gate: usize) -> bool {
        if state.releases[gate] == 0 {
            return false;
        }
        state.releases[gate] -= 1;
        if let Some(of) = &mut state.gates[gate] {
            of.opens -= 1;
            if of.opens == 0 {
                state.gates[gate] = None;
            }
        }
        true
    }

    /// Calls `next` with all states that may follow `state`.
    pub(super) fn follow(
        &self,
        state: &State,
        mut next: impl FnMut(Step, State, Option<&'static str>),
    ) {
        for i in 0..2 {
            if state.programs[i].at == At::Idle {
                for (op, name) in OPS {
                    if let Some(begun) = self.begin(state, i, op) {
                        next((i as u8, name), begun, None);
                    }
                }
            }
            let mut stepped = *state;
            if let Some((what, wrong)) = self.step(&mut stepped, i) {
                next((i as u8, what), stepped, wrong);
            }
            let mut released = *state;
            if self.release(&mut released, i) {
                next((2, "RELEASE"), released, None);
            }
        }
        let mut noticed = *state;
        if let Some(what) = self.notice(&mut noticed) {
            next((2, what), noticed, None);
        }
        let mut backed = *state;
        if let Some(what) = self.back(&mut backed) {
            next((2, what), backed, None);
        }
    }
}
