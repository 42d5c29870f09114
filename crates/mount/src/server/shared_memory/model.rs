//! A model of the gate: whether the kernel's cache or the owner has a file's content. It explores
//! two programs, a kernel and an owner, in all interleavings.
//!
//! The model has one page of one file. A program makes any calls, up to a given number, one after
//! another. Each call is split into the steps between which others can come. The transitions of the
//! gate are those of [`Mode`]. The rules about it are listed in [`Rules`], and each can be left
//! out: a test then shows which wrong content some program gets.
//!
//! # What is checked
//! Each write makes a version. A version is *old* when a write that began after it was complete is
//! complete as well. No call may return a version that was old when the call began. When nothing is
//! in progress, the file (or the kernel's page, if it is dirty) must not be old, and a clean page
//! must be the same as the file. In addition, some step must always be possible.
//!
//! A store to mapped memory is complete at once, in the kernel's page. So a shared-memory or direct
//! write that begins later must win. A write that was in progress may come before or after, as for
//! any two concurrent writes. It can come after the store although the page is written back still
//! later: then the page's content wins.
//!
//! # What is left out
//! The model leaves out several pages (but a direct write to another page is a call here), sizes,
//! errors, FORGET (which ends page and note together), and the number of serving threads. A program
//! has the file open once, so a call never meets the close of its own descriptor, which
//! [`closings`](meantime_shm_rpc::closings) handle.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::gate::Mode;

mod steps;

/// The rules that the owner keeps. Without one of these, some program gets wrong content.
#[derive(Clone, Copy)]
struct Rules {
    /// A READ or WRITE of pages makes the gate long.
    reads_close: bool,
    writes_close: bool,
    /// The READ or WRITE then waits for the calls of the shared-memory path that are in progress.
    drains: bool,
    /// A READ or WRITE notes that the kernel has something of the file.
    reads_keep: bool,
    writes_keep: bool,
    /// All programs that have the file open have one gate.
    is_shared: bool,
    /// A program that takes a file of which the kernel has something makes the kernel drop it.
    take_drops: bool,
    /// This also holds if a notice after a direct write is to do that but has not done it yet.
    takes_see_notices: bool,
    /// The gate becomes `SharedMemory` only after the kernel has dropped it.
    drops_first: bool,
    /// The gate does not become `SharedMemory` if it has become long meanwhile.
    long_wins: bool,
    /// A long gate cannot be taken.
    long_stays: bool,
    /// A direct write makes the kernel drop what it has, before the answer.
    direct_drops: bool,
    /// This also holds if a notice after another direct write is to do that but has not done it
    /// yet.
    direct_sees_notices: bool,
}

const RULES: Rules = Rules {
    reads_close: true,
    writes_close: true,
    drains: true,
    reads_keep: true,
    writes_keep: true,
    is_shared: true,
    take_drops: true,
    takes_see_notices: true,
    drops_first: true,
    long_wins: true,
    long_stays: true,
    direct_drops: true,
    direct_sees_notices: true,
};

/// The ways in which kernels differ. Two of them break the promise; see the last tests.
#[derive(Clone, Copy)]
struct Kernel {
    /// A written page stays locked until the WRITE is answered. Kernels before Linux 5.13 do this,
    /// and later ones still do if the page is not written as a whole and was not up to date.
    locks_writes: bool,
    /// Pages are written back from a copy (before Linux 6.16), so a notice does not wait for that.
    copies: bool,
    /// A direct write first drops the page. Before Linux 6.7 this is not so if the file was opened
    /// for direct writes.
    drops_direct: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Op {
    Open,
    Close,
    Take,
    SharedRead,
    SharedWrite,
    LongRead,
    LongWrite,
    DirectRead,
    DirectWrite,
    /// A direct write to another page.
    DirectElsewhere,
    Store,
    /// An unmap, which also stands for `msync`.
    Unmap,
}

const OPS: [(Op, &str); 12] = [
    (Op::Open, "opens"),
    (Op::Close, "closes"),
    (Op::Take, "takes"),
    (Op::SharedRead, "begins a shared-memory read"),
    (Op::SharedWrite, "begins a shared-memory write"),
    (Op::LongRead, "begins a long read"),
    (Op::LongWrite, "begins a long write"),
    (Op::DirectRead, "begins a direct read"),
    (Op::DirectWrite, "begins a direct write"),
    (Op::DirectElsewhere, "begins a direct write elsewhere"),
    (Op::Store, "begins a store to mapped memory"),
    (Op::Unmap, "unmaps"),
];

/// The progress of a request for pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Sent {
    Queued,
    /// The gate is long, and the request waits for calls in progress.
    Closing,
    /// The request is to be executed.
    Closed,
    Answered,
}

/// The progress of a program in its call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Idle,
    /// The library asks the owner to leave the file to the kernel, before a mapping.
    Leave(Sent),
    /// The call needs the kernel's page, for a read or a store.
    Page,
    /// The page, which the kernel has locked, is being filled by a READ.
    Fill(Sent),
    /// A write needs the inode's lock and the page; then the page is filled; then a WRITE of it is
    /// sent.
    Lock,
    Filled,
    Write(Sent),
    /// The kernel has to write the page back.
    Back,
    /// A direct call is sent, is executed, waits for the notice, and is answered.
    Direct,
    Executed,
    Noticed,
    Answered,
    /// TAKE is sent, the gate is entering, and the program waits for the notice.
    Take,
    Entering,
    Emptying,
    /// A call of the shared-memory path is sent, entered, executed, or refused.
    SharedMemory,
    Entered,
    Ending,
    Refused,
}

/// A version of the page.
type Version = u8;
/// A set of versions.
type Set = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Program {
    left: u8,
    op: Op,
    at: At,
    is_open: bool,
    has_taken: bool,
    is_mapped: bool,
    /// The state when the call began: the old versions, for a read; the complete ones, for a write.
    before: Set,
    /// The version that the program writes or has read.
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Gate {
    mode: Mode,
    calls: u8,
    opens: u8,
}

/// An answer that waits for a notice, by the program for which it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Late {
    to: u8,
    is_take: bool,
    /// Whether the kernel waits until the dirty page is written back.
    launders: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    programs: [Program; 2],
    // The owner's state:
    file: Version,
    kept: bool,
    gates: [Option<Gate>; 2],
    late: [Option<Late>; 2],
    // The kernel's state:
    page: Option<Version>,
    is_locked: bool,
    is_dirty: bool,
    back: Option<(Sent, Version)>,
    /// The version in the answer to a READ of the page.
    fill: Version,
    releases: [u8; 2],
    // The state for the check:
    complete: Set,
    old: Set,
}

#[derive(Clone, Copy)]
struct Model {
    rules: Rules,
    kernel: Kernel,
    /// Which of the programs has the library.
    has_library: [bool; 2],
    calls: [u8; 2],
    /// Whether the kernel has the page from an earlier user.
    is_warm: bool,
}

type Step = (u8, &'static str);

/// A hasher that is far quicker than the standard one. It need not resist attacks.
#[derive(Default)]
struct Hash64(u64);
type Hashing = BuildHasherDefault<Hash64>;

impl Hasher for Hash64 {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A violation, with the steps that led to it.
#[derive(Debug)]
struct Violation {
    what: &'static str,
    steps: Vec<String>,
}

const NONE: Version = 7;

fn bit(version: Version) -> Set {
    1 << version
}

impl State {
    fn is_quiet(&self) -> bool {
        self.programs.iter().all(|program| program.at == At::Idle)
            && self.late[0].is_none()
            && self.back.is_none()
    }

    fn check(&self) -> Option<&'static str> {
        if !self.is_quiet() {
            return None;
        }
        match self.page {
            Some(page) if self.is_dirty => {
                (bit(page) & self.old != 0).then_some("a dirty page is old")
            }
            Some(page) if page != self.file => Some("the kernel's page differs from the file"),
            _ => (bit(self.file) & self.old != 0).then_some("a write is lost"),
        }
    }

    fn new_version(&self) -> Version {
        let mut used = bit(self.file) | bit(self.fill) | bit(NONE);
        let back = self.back.map(|(_, version)| version);
        let programs = self.programs.map(|program| program.version);
        self.page.into_iter().chain(back).chain(programs).for_each(|v| used |= bit(v));
        used.trailing_ones() as Version
    }

    /// Gives the versions new numbers, in the order of their places, and forgets those that have no
    /// place. States that differ only in history are the same then.
    fn rename(&mut self) {
        let mut names = [NONE; 8];
        let mut count = 0;
        let mut name = |version: &mut Version| {
            if *version != NONE {
                if names[*version as usize] == NONE {
                    names[*version as usize] = count;
                    count += 1;
                }
                *version = names[*version as usize];
            }
        };
        name(&mut self.file);
        name(&mut self.fill);
        self.page.iter_mut().for_each(&mut name);
        self.back.iter_mut().for_each(|(_, version)| name(version));
        self.programs.iter_mut().for_each(|program| name(&mut program.version));
        let rename = |set: &mut Set| {
            let known = (0..NONE).filter(|v| bit(*v) & *set != 0 && names[*v as usize] != NONE);
            *set = known.map(|v| bit(names[v as usize])).sum();
        };
        rename(&mut self.complete);
        rename(&mut self.old);
        self.programs.iter_mut().for_each(|program| rename(&mut program.before));
    }

    fn queue(&mut self, to: usize, is_take: bool) {
        let free = usize::from(self.late[0].is_some());
        self.late[free] = Some(Late { to: to as u8, is_take, launders: false });
    }

    /// Notes that program `i` has read `version`.
    fn read(&mut self, i: usize, version: Version) -> Option<&'static str> {
        let is_old = self.programs[i].before & bit(version) != 0;
        self.end(i);
        is_old.then_some("a read returns what was old when it began")
    }

    /// Notes that the write of program `i` is complete.
    fn written(&mut self, i: usize) {
        self.complete |= bit(self.programs[i].version);
        self.old |= self.programs[i].before;
        self.end(i);
    }

    fn end(&mut self, i: usize) {
        let program = &mut self.programs[i];
        (program.at, program.op) = (At::Idle, Op::Open);
        (program.before, program.version) = (0, NONE);
    }

    /// Begins to write the page back.
    fn write_back(&mut self, version: Version) {
        self.is_dirty = false;
        self.back = Some((Sent::Queued, version));
    }
}

impl Model {
    fn first(&self) -> State {
        let program = |left| Program {
            left,
            op: Op::Open,
            at: At::Idle,
            is_open: false,
            has_taken: false,
            is_mapped: false,
            before: 0,
            version: NONE,
        };
        State {
            programs: self.calls.map(program),
            file: 0,
            kept: self.is_warm,
            gates: [None; 2],
            late: [None; 2],
            page: self.is_warm.then_some(0),
            is_locked: false,
            is_dirty: false,
            back: None,
            fill: NONE,
            releases: [0; 2],
            complete: 1,
            old: 0,
        }
    }

    /// Explores all states, nearest first. Returns how many there are.
    fn run(&self) -> Result<usize, Violation> {
        let first = self.first();
        let mut seen: HashSet<State, Hashing> = HashSet::from_iter([first]);
        // Each state has the one before it, and the step from there.
        let mut before: Vec<(u32, Step)> = vec![(0, (2, ""))];
        let mut queue = VecDeque::from([(first, 0_u32)]);
        while let Some((state, number)) = queue.pop_front() {
            let mut found = None;
            let mut is_stuck = true;
            self.follow(&state, |step, mut next, wrong| {
                is_stuck = false;
                next.rename();
                if let Some(what) = wrong.or_else(|| next.check()) {
                    found.get_or_insert((what, Some(step)));
                }
                if seen.insert(next) {
                    queue.push_back((next, before.len() as u32));
                    before.push((number, step));
                }
            });
            if is_stuck && !state.is_quiet() {
                found = Some(("nobody can go on", None));
            }
            if let Some((what, last)) = found {
                let mut steps: Vec<Step> = last.into_iter().collect();
                let mut at = number as usize;
                while at != 0 {
                    steps.push(before[at].1);
                    at = before[at].0 as usize;
                }
                let who =
                    |(who, what): &Step| format!("{}: {what}", ["A", "B", "-"][*who as usize]);
                return Err(Violation { what, steps: steps.iter().rev().map(who).collect() });
            }
        }
        Ok(seen.len())
    }
}

/// The page is locked until a WRITE of it is answered, and while it is written back.
const KERNEL: Kernel = Kernel { locks_writes: true, copies: false, drops_direct: true };

/// Returns all programs and beginnings, with `calls` calls of each program.
fn models(rules: Rules, kernel: Kernel, calls: u8) -> impl Iterator<Item = Model> {
    let libraries = [[true, false], [true, true]];
    let models = libraries.map(|has_library| {
        [false, true].map(|is_warm| Model {
            rules,
            kernel,
            has_library,
            calls: [calls; 2],
            is_warm,
        })
    });
    models.into_iter().flatten()
}

/// Returns the first violation, and prints it.
#[track_caller]
fn violation(rules: Rules, kernel: Kernel) -> Violation {
    let found = models(rules, kernel, 3).find_map(|model| model.run().err());
    let found = found.expect("without this rule something goes wrong");
    println!("{}:\n  {}", found.what, found.steps.join("\n  "));
    found
}

#[test]
fn nobody_gets_old_content_and_no_write_is_lost() {
    for drops_direct in [true, false] {
        for model in models(RULES, Kernel { drops_direct, ..KERNEL }, 4) {
            match model.run() {
                Ok(states) => println!("{states} states"),
                Err(Violation { what, steps }) => panic!("{what}:\n  {}", steps.join("\n  ")),
            }
        }
    }
}

#[test]
fn pages_are_read_and_written_with_the_gate_closed() {
    violation(Rules { reads_close: false, ..RULES }, KERNEL);
    violation(Rules { writes_close: false, ..RULES }, KERNEL);
}

#[test]
fn closing_waits_for_calls() {
    violation(Rules { drains: false, ..RULES }, KERNEL);
}

#[test]
fn what_the_kernel_gets_is_noted() {
    violation(Rules { reads_keep: false, ..RULES }, KERNEL);
    violation(Rules { writes_keep: false, ..RULES }, KERNEL);
}

#[test]
fn all_who_have_the_file_open_have_one_gate() {
    violation(Rules { is_shared: false, ..RULES }, KERNEL);
}

#[test]
fn the_kernel_drops_pages_before_the_gate_is_short() {
    violation(Rules { take_drops: false, ..RULES }, KERNEL);
    violation(Rules { drops_first: false, ..RULES }, KERNEL);
}

#[test]
fn a_long_gate_stays_long() {
    violation(Rules { long_wins: false, ..RULES }, KERNEL);
    violation(Rules { long_stays: false, ..RULES }, KERNEL);
}

#[test]
fn a_direct_write_makes_the_kernel_drop_pages() {
    violation(Rules { direct_drops: false, ..RULES }, KERNEL);
}

/// From when the note is removed until the notice is sent, the kernel still has the pages.
#[test]
fn a_notice_under_way_counts_as_a_note() {
    violation(Rules { takes_see_notices: false, ..RULES }, KERNEL);
    violation(Rules { direct_sees_notices: false, ..RULES }, KERNEL);
}

/// This shows a limit. Since Linux 5.13 a page that is written as a whole (or was up to date) is
/// not locked while its WRITE is in flight. A notice drops it, a READ that is executed before the
/// WRITE brings the old page back, and that page stays. Before the WRITE arrives, the owner does
/// not know of the page.
#[test]
fn a_take_beside_a_cached_write_may_leave_an_old_page() {
    let found = violation(RULES, Kernel { locks_writes: false, ..KERNEL });
    assert_eq!(found.what, "the kernel's page differs from the file");
    assert!(found.steps.iter().any(|step| step.ends_with(": takes")));
}

/// This shows a limit: before Linux 6.16 a notice does not wait for a mapped page that is being
/// written back.
#[test]
fn a_take_beside_msync_may_read_what_was_there_before() {
    violation(RULES, Kernel { copies: true, ..KERNEL });
}
