//! A history of writes and flushes, and the states that a power cut may leave.
//!
//! [`History::cut`] computes every state that NVMe allows the medium to be in if power fails at
//! some event: 1.4 §6.8 and §5.21.1.6 define what a flush and Force Unit Access make durable.
//! Nothing else has an order, and only the power-fail atomic unit is whole.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use meantime_ssd::Rng;
pub use meantime_ssd::record::Event;
use meantime_ssd::record::{Moment, Record, Write};

/// The granularity of writes and of the atomic unit, in bytes.
const GRANULE_BYTES: usize = 512;

/// Up to this many pieces of one unit, all subsets and orders are tried; of more, a sample.
const MOST_PIECES: usize = 6;

/// The most orders of one unit's pieces that are tried.
const MOST_ORDERS: usize = 64;

/// The properties of the device that loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOptions {
    /// Whether it has a volatile write cache: only a flush, or Force Unit Access, makes a completed
    /// write durable.
    pub volatile: bool,
    /// Power-fail atomic unit in bytes, at multiples of which it also begins; 512 or a multiple.
    /// Larger writes are torn there.
    pub unit_bytes: usize,
    /// Whether flushes work. (If not: a broken device, or a host that forgot them.)
    pub flushes: bool,
    /// Whether Force Unit Access works.
    pub fua: bool,
    /// Whether commands taken in the turn of a report count as begun before the report. (Not if
    /// several threads drive the device: one may have seen the completion already.)
    pub strict: bool,
}

impl Default for CutOptions {
    fn default() -> Self {
        Self { volatile: true, unit_bytes: GRANULE_BYTES, flushes: true, fua: true, strict: true }
    }
}

/// A piece of a write within one unit.
#[derive(Debug, Clone)]
struct Piece {
    write: usize,
    /// Granules in the unit.
    granules: std::ops::Range<usize>,
}

/// When a write began and ended, as (turn, event), whether it failed, and whether it is durable.
#[derive(Debug, Clone, Copy)]
struct Known {
    begun: u64,
    done: u64,
    failed: bool,
    durable: bool,
}

/// The possible results of a power cut at one moment.
#[derive(Debug, Clone)]
pub struct Cut {
    unit_bytes: usize,
    /// Units with one possible content, by number; not those that are unchanged.
    certain: Arc<BTreeMap<u64, Arc<[u8]>>>,
    certain_hash: u64,
    /// Units with several possible contents: the newest first, all distinct.
    open: Vec<(u64, Vec<Outcome>)>,
}

#[derive(Debug, Clone)]
struct Outcome {
    content: Arc<[u8]>,
    hash: u64,
    /// The last write in it, counted from 1; 0: none.
    newest: usize,
}

/// One state of the medium: its differences from the start of recording.
#[derive(Debug, Clone)]
pub struct State {
    unit_bytes: usize,
    certain: Arc<BTreeMap<u64, Arc<[u8]>>>,
    open: Vec<(u64, Arc<[u8]>)>,
    hash: u64,
}

/// A hash of the content of the unit at byte `offset`, suitable for summing.
pub fn content_hash(offset: u64, content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    offset.hash(&mut hasher);
    content.hash(&mut hasher);
    hasher.finish()
}

impl Known {
    /// Whether every device writes `self` before `other`.
    fn is_before(&self, other: &Self) -> bool {
        self.done < other.begun
    }
}

/// All writes and flushes since recording began.
#[derive(Debug, Clone, Default)]
pub struct History {
    writes: Vec<Write>,
    moments: Vec<Moment>,
    flushes: usize,
    turn: u64,
}

impl From<Record> for History {
    fn from(Record { writes, moments, .. }: Record) -> Self {
        let is_flush = |moment: &&Moment| matches!(moment.event, Event::FlushBegun(_));
        let flushes = moments.iter().filter(is_flush).count();
        let turn = moments.last().map_or(0, |last| last.turn);
        Self { writes, moments, flushes, turn }
    }
}

impl History {
    /// The writes, in the order in which they began.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.moments.iter().map(|moment| moment.event)
    }

    /// Event number `at`.
    pub fn event(&self, at: usize) -> Option<Event> {
        self.moments.get(at).map(|moment| moment.event)
    }

    /// Appends an event, in a separate turn: for handmade histories.
    pub fn push(&mut self, event: Event) {
        self.turn += 1;
        self.moments.push(Moment { event, turn: self.turn });
    }

    /// Records the begin of a write, in a separate turn. Returns its number.
    pub fn begin_write(&mut self, offset: u64, data: &[u8], fua: bool) -> usize {
        self.writes.push(Write { offset, data: data.into(), fua, changed: None });
        let number = self.writes.len() - 1;
        self.push(Event::WriteBegun(number));
        number
    }

    /// Records the begin of a flush, in a separate turn. Returns its number.
    pub fn begin_flush(&mut self) -> usize {
        self.flushes += 1;
        let number = self.flushes - 1;
        self.push(Event::FlushBegun(number));
        number
    }

    /// Positions just before events that reduce the possible states, and the end: every state
    /// possible at any time is possible at one of them. `volatile`: completed writes are not
    /// durable.
    pub fn turning_points(&self, volatile: bool) -> impl Iterator<Item = usize> + '_ {
        let shrinks = move |event: Event| match event {
            Event::WriteDone(number) => !volatile || self.writes[number].fua,
            Event::FlushDone(_) => volatile,
            Event::WriteBegun(_) | Event::WriteFailed(_) | Event::FlushBegun(_) => false,
        };
        let before =
            self.events().enumerate().filter(move |(_, event)| shrinks(*event)).map(|(at, _)| at);
        before.chain([self.len()])
    }

    /// The times of each write that began among the first `at` events.
    fn known(&self, at: usize, options: &CutOptions) -> Vec<Option<Known>> {
        let at = at.min(self.moments.len());
        let mut known: Vec<Option<Known>> = vec![None; self.writes.len()];
        let mut flushes: Vec<u64> = vec![u64::MAX; self.flushes];
        // Reports of a turn come after all commands taken in it.
        let time = |moment: &Moment, position: usize, is_end: bool| match options.strict {
            true => moment.turn * 2 + u64::from(is_end),
            false => position as u64,
        };
        for (position, moment) in self.moments[..at].iter().enumerate() {
            match moment.event {
                Event::WriteBegun(number) => {
                    let begun = time(moment, position, false);
                    known[number] =
                        Some(Known { begun, done: u64::MAX, failed: false, durable: false });
                }
                Event::WriteDone(number) => {
                    if let Some(known) = &mut known[number] {
                        known.done = time(moment, position, true);
                        known.durable |=
                            !options.volatile || (self.writes[number].fua && options.fua);
                    }
                }
                Event::WriteFailed(number) => {
                    if let Some(known) = &mut known[number] {
                        (known.done, known.failed) = (time(moment, position, true), true);
                    }
                }
                Event::FlushBegun(number) => flushes[number] = time(moment, position, false),
                Event::FlushDone(number) if options.flushes => {
                    let begun = flushes[number];
                    let is_flushed = |known: &&mut Known| known.done < begun && !known.failed;
                    for known in known.iter_mut().flatten().filter(is_flushed) {
                        known.durable = true;
                    }
                }
                Event::FlushDone(_) => {}
            }
        }
        known
    }

    /// The possible results of a power cut after the first `at` events on `base`, the medium at the
    /// start of recording.
    ///
    /// # Panics
    /// If the unit is not a multiple of 512 bytes, or a write exceeds `base`.
    pub fn cut(&self, base: &[u8], at: usize, options: &CutOptions) -> Cut {
        let unit_bytes = options.unit_bytes;
        assert!(
            unit_bytes > 0 && unit_bytes.is_multiple_of(GRANULE_BYTES),
            "a unit of {unit_bytes} bytes"
        );
        let known = self.known(at, options);
        let mut units: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        for (write, _) in known.iter().enumerate().filter(|(_, known)| known.is_some()) {
            let begin = self.writes[write].offset;
            let end = begin + self.writes[write].data.len() as u64;
            assert!(end <= base.len() as u64, "a write beyond the medium");
            let mut place = begin;
            while place < end {
                let unit = place / unit_bytes as u64;
                let first = unit * unit_bytes as u64;
                let stop = end.min(first + unit_bytes as u64);
                let granules = (place - first) as usize / GRANULE_BYTES
                    ..((stop - first) as usize).div_ceil(GRANULE_BYTES);
                units.entry(unit).or_default().push(Piece { write, granules });
                place = stop;
            }
        }
        let (mut certain, mut certain_hash, mut open) = (BTreeMap::new(), 0_u64, Vec::new());
        for (unit, pieces) in units {
            let first = unit as usize * unit_bytes;
            let old = &base[first..base.len().min(first + unit_bytes)];
            let mut outcomes = self.outcomes(first, old, &pieces, &known);
            if outcomes.len() > 1 {
                outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.newest));
                open.push((unit, outcomes));
            } else if let Some(only) = outcomes.pop().filter(|only| *only.content != *old) {
                certain_hash = certain_hash.wrapping_add(only.hash);
                certain.insert(unit, only.content);
            }
        }
        Cut { unit_bytes, certain: Arc::new(certain), certain_hash, open }
    }

    /// The possible contents of the unit at byte `first`, which held `old`.
    fn outcomes(
        &self,
        first: usize,
        old: &[u8],
        pieces: &[Piece],
        known: &[Option<Known>],
    ) -> Vec<Outcome> {
        let of = |piece: &Piece| known[piece.write].expect("it has begun");
        // Pieces below a later durable one are permanently overwritten, and not considered.
        let is_gone = |piece: &&Piece| {
            !pieces.iter().any(|over| {
                of(over).durable
                    && of(piece).is_before(&of(over))
                    && over.granules.start <= piece.granules.start
                    && over.granules.end >= piece.granules.end
            })
        };
        let pieces: Vec<&Piece> = pieces.iter().filter(is_gone).collect();
        let optional: Vec<usize> = (0..pieces.len()).filter(|n| !of(pieces[*n]).durable).collect();
        let orders = orders(pieces.len(), |a, b| of(pieces[a]).is_before(&of(pieces[b])));
        let mut found: HashMap<Vec<(usize, bool)>, ()> = HashMap::new();
        let mut rng = Rng::new(first as u64);
        let is_few = optional.len() <= MOST_PIECES;
        let subsets = if is_few { 1_u64 << optional.len() } else { 2 * optional.len() as u64 };
        let granules = old.len().div_ceil(GRANULE_BYTES);
        for order in &orders {
            for subset in 0..subsets {
                // With too many pieces to try all: each as the last one, and a random selection.
                let any = rng.next_u64();
                let is_there = |n: usize| match optional.iter().position(|o| *o == n) {
                    Some(bit) if is_few => subset >> bit & 1 == 1,
                    Some(bit) if subset < optional.len() as u64 => (bit as u64) < subset + 1,
                    Some(bit) => any >> (bit % 64) & 1 == 1,
                    None => true,
                };
                let mut winners = vec![(0, false); granules];
                for n in order.iter().copied().filter(|n| is_there(*n)) {
                    winners[pieces[n].granules.clone()].fill((pieces[n].write + 1, false));
                }
                found.insert(winners, ());
            }
        }
        // A buffer that changed while the device used it: either content is possible.
        let written = |winners: &Vec<(usize, bool)>| -> Vec<Vec<(usize, bool)>> {
            let changed = |write: usize| write > 0 && self.writes[write - 1].changed.is_some();
            if !winners.iter().any(|(write, _)| changed(*write)) {
                return vec![winners.clone()];
            }
            let late = winners.iter().map(|(write, _)| (*write, changed(*write))).collect();
            vec![winners.clone(), late]
        };
        let mut outcomes: Vec<Outcome> = Vec::new();
        for winners in found.keys().flat_map(written) {
            let mut content = old.to_vec();
            for (granule, (write, late)) in
                winners.iter().enumerate().filter(|(_, winner)| winner.0 > 0)
            {
                let write = &self.writes[*write - 1];
                let data =
                    if *late { write.changed.as_ref().unwrap_or(&write.data) } else { &write.data };
                let begin = granule * GRANULE_BYTES;
                let from = first + begin - write.offset as usize;
                let bytes = GRANULE_BYTES.min(data.len() - from).min(content.len() - begin);
                content[begin..begin + bytes].copy_from_slice(&data[from..from + bytes]);
            }
            if outcomes.iter().any(|outcome| *outcome.content == *content) {
                continue;
            }
            let hash = if content == old { 0 } else { content_hash(first as u64, &content) };
            let newest = winners.iter().map(|(write, _)| *write).max().unwrap_or(0);
            outcomes.push(Outcome { content: content.into(), hash, newest });
        }
        // (Independent of the map's order.)
        outcomes.sort_by_key(|outcome| (outcome.newest, outcome.hash));
        outcomes
    }
}

/// Orders of `count` pieces in which none comes after one that it `is_before`; the first is the
/// order in which they began.
fn orders(count: usize, is_before: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut orders = Vec::new();
    let mut order = Vec::new();
    fn extend(
        order: &mut Vec<usize>,
        count: usize,
        is_before: &impl Fn(usize, usize) -> bool,
        orders: &mut Vec<Vec<usize>>,
    ) {
        if orders.len() >= MOST_ORDERS {
            return;
        }
        if order.len() == count {
            orders.push(order.clone());
            return;
        }
        for next in 0..count {
            let is_free = |n: usize| !order.contains(&n);
            if is_free(next) && !(0..count).any(|n| n != next && is_free(n) && is_before(n, next)) {
                order.push(next);
                extend(order, count, is_before, orders);
                order.pop();
            }
        }
    }
    extend(&mut order, count, &is_before, &mut orders);
    orders
}

impl Cut {
    /// The number of states, at most `u64::MAX`.
    pub fn count(&self) -> u64 {
        self.open.iter().fold(1_u64, |all, (_, outcomes)| all.saturating_mul(outcomes.len() as u64))
    }

    fn state(&self, mut choose: impl FnMut(&[Outcome]) -> usize) -> State {
        let mut hash = self.certain_hash;
        let mut open = Vec::with_capacity(self.open.len());
        for (unit, outcomes) in &self.open {
            let outcome = &outcomes[choose(outcomes).min(outcomes.len() - 1)];
            hash = hash.wrapping_add(outcome.hash);
            open.push((*unit, Arc::clone(&outcome.content)));
        }
        State { unit_bytes: self.unit_bytes, certain: Arc::clone(&self.certain), open, hash }
    }

    /// The state with all writes.
    pub fn newest(&self) -> State {
        self.state(|_| 0)
    }

    /// The state with only the durable writes.
    pub fn oldest(&self) -> State {
        self.state(|outcomes| outcomes.len() - 1)
    }

    /// All states if there are at most `most`; otherwise about `most` of them: everything, nothing,
    /// everything but one unit, nothing but one, whole writes, and random mixtures.
    pub fn states<'c>(&'c self, most: u64, rng: &'c mut Rng) -> impl Iterator<Item = State> + 'c {
        let all = self.count();
        let is_all = all <= most;
        (0..all.min(most))
            .map(move |number| if is_all { self.numbered(number) } else { self.some(number, rng) })
    }

    fn numbered(&self, mut number: u64) -> State {
        self.state(|outcomes| {
            let choice = number % outcomes.len() as u64;
            number /= outcomes.len() as u64;
            choice as usize
        })
    }

    fn some(&self, number: u64, rng: &mut Rng) -> State {
        match number {
            0 => return self.newest(),
            1 => return self.oldest(),
            _ => {}
        }
        // States that differ in one unit are soon exhausted.
        let style = if number < 4 * self.open.len() as u64 { number % 4 } else { 2 + number % 2 };
        match style {
            // All but one unit, one alone.
            style @ (0 | 1) => {
                let odd = rng.below(self.open.len() as u64) as usize;
                let mut at = 0;
                self.state(|outcomes| {
                    at += 1;
                    let last = outcomes.len() - 1;
                    if (at - 1 == odd) == (style == 0) { last } else { 0 }
                })
            }
            // Whole writes.
            2 => {
                let seed = rng.next_u64();
                let is_there = |write: usize| {
                    write == 0
                        || Rng::new(seed ^ (write as u64).wrapping_mul(0x9e37_79b9)).next_u64() & 1
                            == 0
                };
                self.state(|outcomes| {
                    let found = outcomes.iter().position(|outcome| is_there(outcome.newest));
                    found.unwrap_or(outcomes.len() - 1)
                })
            }
            _ => {
                // The fraction of written pieces varies, too.
                let ppm = [20_000, 120_000, 500_000, 880_000, 980_000][rng.below(5) as usize];
                self.state(|outcomes| {
                    if rng.chance_ppm(ppm) { 0 } else { rng.below(outcomes.len() as u64) as usize }
                })
            }
        }
    }
}

impl State {
    /// Equal for equal contents (and the same start).
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Actual or possible differences from the start: byte offsets and contents.
    pub fn changes(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        let unit_bytes = self.unit_bytes as u64;
        let certain = self.certain.iter().map(|(unit, content)| (*unit, content));
        let open = self.open.iter().map(|(unit, content)| (*unit, content));
        certain.chain(open).map(move |(unit, content)| (unit * unit_bytes, &**content))
    }

    /// The medium's bytes, for `base` at the start.
    pub fn on(&self, base: &[u8]) -> Vec<u8> {
        let mut bytes = base.to_vec();
        for (offset, content) in self.changes() {
            bytes[offset as usize..offset as usize + content.len()].copy_from_slice(content);
        }
        bytes
    }
}
