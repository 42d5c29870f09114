//! What each death leaves.
//!
//! First a model: client, owner, and the owner's thread that sees the connection end, as steps that
//! load or store one thing. It goes through every order of the steps, with a death of one side, of
//! both, or of none, after each step. Memory is sequentially consistent here; loom models what
//! weaker memory does (`src/loom_model.rs`).
//!
//! Then the code itself: the client's or the owner's stores up to each of them, and the other side
//! as it is.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use meantime_shm_rpc::Ended;
use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::message::{Op, Reply, Request};
use meantime_shm_rpc::owner::Answerer;

use crate::raw::{self, RawLine};

/// The client's progress with one call. Each value is the step that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Client {
    PutData,
    StoreWords,
    StoreNumber,
    LoadOwnerParked,
    ClearOwnerParked,
    WakeOwner,
    Look,
    StoreParked,
    LookAgain,
    /// The kernel compares, and has it sleep.
    Sleep,
    Asleep,
    ClearParked,
    LookOnceMore,
    AskWhetherAlive,
    ReadReply,
    Succeeded,
    Failed,
    Dead,
}

/// The owner's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Owner {
    Look,
    StoreParked,
    LookAgain,
    Sleep,
    Asleep,
    ClearParked,
    LoadIsEnded,
    LoadWords,
    TakeData,
    Execute,
    GiveData,
    StoreReply,
    StoreNumber,
    LoadClientParked,
    ClearClientParked,
    WakeClient,
    StoreEnded,
    ClearClientParkedAtEnd,
    WakeClientAtEnd,
    Ended,
    Dead,
}

/// The owner's thread that ends the line when the client's socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Hangup {
    Wait,
    ClearParked,
    WakeOwner,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    client: Client,
    owner: Owner,
    hangup: Hangup,
    // The following fields are in the memory that both share.
    has_data: bool,
    has_words: bool,
    has_number: bool,
    has_given: bool,
    has_reply: bool,
    has_reply_number: bool,
    is_line_ended: bool,
    client_parked: bool,
    owner_parked: bool,
    // The owner's own.
    is_ended: bool,
    answered: u8,
    executed: u8,
    /// Whether the request that the owner took was whole.
    is_whole: bool,
    /// A sleep was ended by its time-out.
    has_timed_out: bool,
    client_died_at: Option<Client>,
    owner_died_at: Option<Owner>,
}

const BEGIN: State = State {
    client: Client::PutData,
    owner: Owner::Look,
    hangup: Hangup::Wait,
    has_data: false,
    has_words: false,
    has_number: false,
    has_given: false,
    has_reply: false,
    has_reply_number: false,
    is_line_ended: false,
    client_parked: false,
    owner_parked: false,
    is_ended: false,
    answered: 0,
    executed: 0,
    is_whole: false,
    has_timed_out: false,
    client_died_at: None,
    owner_died_at: None,
};

impl State {
    fn is_over(&self) -> bool {
        self.has_reply_number || self.is_line_ended
    }

    fn is_asked(&self) -> bool {
        u8::from(self.has_number) != self.answered || self.is_ended
    }

    fn wake_owner(&mut self) {
        if self.owner == Owner::Asleep {
            self.owner = Owner::ClearParked;
        }
    }

    fn wake_client(&mut self) {
        if self.client == Client::Asleep {
            self.client = Client::ClearParked;
        }
    }

    /// The client's next step, if it can take one.
    fn client_step(mut self) -> Option<Self> {
        use Client as At;
        self.client = match self.client {
            At::PutData => {
                self.has_data = true;
                At::StoreWords
            }
            At::StoreWords => {
                self.has_words = true;
                At::StoreNumber
            }
            At::StoreNumber => {
                self.has_number = true;
                At::LoadOwnerParked
            }
            At::LoadOwnerParked if self.owner_parked => At::ClearOwnerParked,
            At::LoadOwnerParked => At::Look,
            At::ClearOwnerParked => {
                self.owner_parked = false;
                At::WakeOwner
            }
            At::WakeOwner => {
                self.wake_owner();
                At::Look
            }
            At::Look | At::LookOnceMore if self.is_over() => At::ReadReply,
            At::Look => At::StoreParked,
            At::StoreParked => {
                self.client_parked = true;
                At::LookAgain
            }
            At::LookAgain if self.is_over() => At::ClearParked,
            At::LookAgain => At::Sleep,
            At::Sleep if self.client_parked => At::Asleep,
            At::Sleep => At::ClearParked,
            At::Asleep => {
                self.has_timed_out = true;
                At::ClearParked
            }
            At::ClearParked => {
                self.client_parked = false;
                At::LookOnceMore
            }
            At::LookOnceMore => At::AskWhetherAlive,
            // The client reads once more, for a reply that came since (`reply_to`).
            At::AskWhetherAlive if self.owner == Owner::Dead => At::ReadReply,
            At::AskWhetherAlive => At::StoreParked,
            At::ReadReply if self.has_reply_number => {
                assert!(self.has_reply && self.has_given && self.executed == 1, "{self:?}");
                At::Succeeded
            }
            At::ReadReply => {
                assert!(self.is_line_ended || self.owner == Owner::Dead, "{self:?}");
                At::Failed
            }
            At::Succeeded | At::Failed | At::Dead => return None,
        };
        Some(self)
    }

    /// The owner's next step, if it can take one.
    fn owner_step(mut self) -> Option<Self> {
        use Owner as At;
        self.owner = match self.owner {
            At::Look if self.is_asked() => At::LoadIsEnded,
            At::Look => At::StoreParked,
            At::StoreParked => {
                self.owner_parked = true;
                At::LookAgain
            }
            At::LookAgain if self.is_asked() => At::ClearParked,
            At::LookAgain => At::Sleep,
            At::Sleep if self.owner_parked => At::Asleep,
            At::Sleep => At::ClearParked,
            At::Asleep => {
                self.has_timed_out = true;
                At::ClearParked
            }
            At::ClearParked => {
                self.owner_parked = false;
                At::Look
            }
            At::LoadIsEnded if self.is_ended => At::StoreEnded,
            At::LoadIsEnded => At::LoadWords,
            At::LoadWords => {
                self.is_whole = self.has_number && self.has_words;
                At::TakeData
            }
            At::TakeData => {
                self.is_whole &= self.has_data;
                At::Execute
            }
            At::Execute => {
                assert!(self.is_whole, "half of a request is executed: {self:?}");
                self.executed += 1;
                At::GiveData
            }
            At::GiveData => {
                self.has_given = true;
                At::StoreReply
            }
            At::StoreReply => {
                self.has_reply = true;
                At::StoreNumber
            }
            At::StoreNumber => {
                self.has_reply_number = true;
                self.answered += 1;
                At::LoadClientParked
            }
            At::LoadClientParked if self.client_parked => At::ClearClientParked,
            At::LoadClientParked => At::Look,
            At::ClearClientParked => {
                self.client_parked = false;
                At::WakeClient
            }
            At::WakeClient => {
                self.wake_client();
                At::Look
            }
            At::StoreEnded => {
                self.is_line_ended = true;
                At::ClearClientParkedAtEnd
            }
            At::ClearClientParkedAtEnd => {
                self.client_parked = false;
                At::WakeClientAtEnd
            }
            At::WakeClientAtEnd => {
                self.wake_client();
                At::Ended
            }
            At::Ended | At::Dead => return None,
        };
        Some(self)
    }

    /// The next step of the owner's process after the client's socket is closed, either by the
    /// client's death or after its call.
    fn hangup_step(mut self) -> Option<Self> {
        let is_closed = matches!(self.client, Client::Dead | Client::Succeeded | Client::Failed);
        if self.owner == Owner::Dead || !is_closed {
            return None;
        }
        self.hangup = match self.hangup {
            Hangup::Wait => {
                self.is_ended = true;
                Hangup::ClearParked
            }
            Hangup::ClearParked => {
                self.owner_parked = false;
                Hangup::WakeOwner
            }
            Hangup::WakeOwner => {
                self.wake_owner();
                Hangup::Done
            }
            Hangup::Done => return None,
        };
        Some(self)
    }

    fn client_dies(mut self) -> Option<Self> {
        let lives = !matches!(self.client, Client::Succeeded | Client::Failed | Client::Dead);
        self.client_died_at = Some(self.client);
        self.client = Client::Dead;
        lives.then_some(self)
    }

    fn owner_dies(mut self) -> Option<Self> {
        let lives = !matches!(self.owner, Owner::Ended | Owner::Dead);
        self.owner_died_at = Some(self.owner);
        self.owner = Owner::Dead;
        lives.then_some(self)
    }
}

type Step = fn(State) -> Option<State>;

/// Goes through all states that `steps` lead to, and returns them with what can follow each.
fn explore(steps: &[Step]) -> HashMap<State, Vec<State>> {
    let mut seen = HashMap::new();
    let mut to_do = vec![BEGIN];
    while let Some(state) = to_do.pop() {
        seen.entry(state).or_insert_with(|| {
            let next: Vec<State> = steps.iter().filter_map(|step| step(state)).collect();
            to_do.extend(&next);
            next
        });
    }
    seen
}

/// Returns the states of `all` in which nothing can happen any more. It first checks that one of
/// them can be reached from every state, so that nothing hangs.
fn ends(all: &HashMap<State, Vec<State>>) -> Vec<State> {
    let mut before: HashMap<State, Vec<State>> = HashMap::new();
    for (state, next) in all {
        for next in next {
            before.entry(*next).or_default().push(*state);
        }
    }
    let ends: Vec<State> =
        all.iter().filter(|(_, next)| next.is_empty()).map(|(state, _)| *state).collect();
    let mut reaches = std::collections::HashSet::new();
    let mut to_do = ends.clone();
    while let Some(state) = to_do.pop() {
        if reaches.insert(state) {
            to_do.extend(before.get(&state).into_iter().flatten());
        }
    }
    assert_eq!(reaches.len(), all.len(), "from some states there is no end");
    ends
}

#[test]
fn without_a_death_a_call_is_executed_once_and_nobody_needs_a_time_out() {
    let waits: [Step; 3] = [
        // No sleep ends by its time-out.
        |state| (state.client != Client::Asleep).then(|| state.client_step()).flatten(),
        |state| (state.owner != Owner::Asleep).then(|| state.owner_step()).flatten(),
        State::hangup_step,
    ];
    let all = explore(&waits);
    assert!(all.keys().any(|state| state.owner == Owner::Asleep));
    assert!(all.keys().any(|state| state.client == Client::Asleep));
    for end in ends(&all) {
        assert_eq!((end.client, end.owner), (Client::Succeeded, Owner::Ended), "{end:?}");
        assert_eq!((end.executed, end.has_timed_out), (1, false));
    }
}

/// The numbers of executions that are possible if the client dies before `step`.
fn left_by_client(step: Client) -> &'static [u8] {
    match step {
        // The request was not made yet.
        Client::PutData | Client::StoreWords | Client::StoreNumber => &[0],
        // The owner had answered.
        Client::ReadReply => &[1],
        // It may find the request, or the end of the connection first.
        _ => &[0, 1],
    }
}

/// The same for the owner's death, with what the client gets.
fn left_by_owner(step: Owner) -> &'static [(u8, Client)] {
    const NOTHING: (u8, Client) = (0, Client::Failed);
    const LOST: (u8, Client) = (1, Client::Failed);
    const DONE: (u8, Client) = (1, Client::Succeeded);
    match step {
        Owner::LoadWords | Owner::TakeData | Owner::Execute => &[NOTHING],
        Owner::GiveData | Owner::StoreReply | Owner::StoreNumber => &[LOST],
        Owner::LoadClientParked | Owner::ClearClientParked | Owner::WakeClient => &[DONE],
        // After the call, since the client was there.
        Owner::StoreEnded | Owner::ClearClientParkedAtEnd | Owner::WakeClientAtEnd => &[DONE],
        // Before the call or after it.
        _ => &[NOTHING, DONE],
    }
}

#[test]
fn after_a_death_at_any_step_nobody_hangs_and_nothing_is_done_twice_or_by_half() {
    let all = explore(&[
        State::client_step,
        State::owner_step,
        State::hangup_step,
        State::client_dies,
        State::owner_dies,
    ]);
    let mut by_client: HashMap<Client, BTreeSet<u8>> = HashMap::new();
    let mut by_owner: HashMap<Owner, BTreeSet<(u8, Client)>> = HashMap::new();
    for end in ends(&all) {
        assert!(end.executed <= 1, "{end:?}");
        assert!(matches!(end.owner, Owner::Ended | Owner::Dead), "{end:?}");
        match (end.client_died_at, end.owner_died_at) {
            (Some(step), None) => {
                by_client.entry(step).or_default().insert(end.executed);
            }
            (None, Some(step)) => {
                by_owner.entry(step).or_default().insert((end.executed, end.client));
            }
            (None, None) => assert_eq!((end.executed, end.client), (1, Client::Succeeded)),
            // Both died. Each step was checked above with one death.
            (Some(_), Some(_)) => {}
        }
    }
    for (step, left) in &by_client {
        let expected = BTreeSet::from_iter(left_by_client(*step).iter().copied());
        assert_eq!(*left, expected, "a client that dies before {step:?}");
    }
    for (step, left) in &by_owner {
        let expected = BTreeSet::from_iter(left_by_owner(*step).iter().copied());
        assert_eq!(*left, expected, "an owner that dies before {step:?}");
    }
    // Every step was the last of its side in some order.
    assert_eq!((by_client.len(), by_owner.len()), (15, 19));
}

const WRITE: Request =
    Request { op: Op::Write, flags: 3, handle: 5, closings: 3, offset: 1 << 33, len: 8 };

/// A client's stores, in order: the data, the request, the number, and the wake's.
const CLIENT_STORES: [(usize, u32); 13] = [
    (raw::DATA, 0x1111_1111),
    (raw::DATA + 4, 0x2222_2222),
    (raw::OP, Op::Write as u32),
    (raw::FLAGS, 3),
    (raw::LEN, 8),
    (raw::HANDLE, 5),
    (raw::HANDLE + 4, 0),
    (raw::OFFSET, 0),
    (raw::OFFSET + 4, 2),
    (raw::CLOSINGS, 3),
    (raw::CLOSINGS + 4, 0),
    (raw::NUMBER, 1),
    (raw::OWNER_PARKED, 0),
];

#[test]
fn the_owner_executes_all_of_a_dead_clients_request_or_nothing() {
    for is_asleep in [false, true] {
        for count in 0..=CLIENT_STORES.len() {
            let (mut line, memory) = Answerer::new().unwrap();
            let raw = RawLine::new(&memory);
            let end = line.end();
            let owner = std::thread::spawn(move || {
                let mut executed = Vec::new();
                while let Ok(request) = line.next() {
                    let mut data = [0; 8];
                    line.take(&mut data);
                    executed.push((request, data));
                    line.answer(&Reply::done(8, 0));
                }
                executed
            });
            while is_asleep && raw.load(raw::OWNER_PARKED) == 0 {
                std::thread::yield_now();
            }
            for (at, value) in &CLIENT_STORES[..count] {
                raw.store(*at, *value);
            }
            let is_asked = count >= 12;
            // It finds the request by itself.
            let begun = Instant::now();
            while is_asked && raw.load(raw::REPLY_NUMBER) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "the owner sleeps on");
                std::thread::sleep(Duration::from_millis(1));
            }
            end.end();
            let executed = owner.join().unwrap();
            let data = [0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22];
            let expected = if is_asked { vec![(WRITE, data)] } else { vec![] };
            assert_eq!(executed, expected, "after {count} stores");
            assert_eq!(raw.load(raw::ENDED), 1);
        }
    }
}

/// An owner's stores, in order: the data, the reply, the number, and the wake's.
const OWNER_STORES: [(usize, u32); 8] = [
    (raw::DATA, 0x3333_3333),
    (raw::STATUS, 0),
    (raw::RESULT, 8),
    (raw::RESULT + 4, 0),
    (raw::END, 0),
    (raw::END + 4, 3),
    (raw::REPLY_NUMBER, 1),
    (raw::CLIENT_PARKED, 0),
];

#[test]
fn a_client_gets_all_of_a_dead_owners_reply_or_an_error() {
    for is_asleep in [false, true] {
        for count in 0..=OWNER_STORES.len() {
            let (line, memory) = Answerer::new().unwrap();
            // A killed process stores nothing at its end.
            std::mem::forget(line);
            let raw = RawLine::new(&memory);
            let mut caller = Caller::new(&memory).unwrap();
            let is_dead = std::sync::atomic::AtomicBool::new(false);
            let called = std::thread::scope(|threads| {
                let client = threads.spawn(|| {
                    let is_alive = || !is_dead.load(std::sync::atomic::Ordering::SeqCst);
                    let begun = Instant::now();
                    let called = caller.call(&WRITE, is_alive);
                    assert!(begun.elapsed() < Duration::from_secs(20), "it hung");
                    called
                });
                while raw.load(raw::NUMBER) == 0 || is_asleep && raw.load(raw::CLIENT_PARKED) == 0 {
                    std::thread::yield_now();
                }
                for (at, value) in &OWNER_STORES[..count] {
                    raw.store(*at, *value);
                }
                is_dead.store(true, std::sync::atomic::Ordering::SeqCst);
                client.join().unwrap()
            });
            let expected = if count >= 7 { Ok(Reply::done(8, 3 << 32)) } else { Err(Ended) };
            assert_eq!(called, expected, "after {count} stores");
        }
    }
}
