//! `zonemode=zbd`: zones that are written from their beginning on, as in fio on a device without
//! zones.
//!
//! The fill levels cover only the writes of this run: at first all zones are empty. Emptying a zone
//! sends nothing to the device, as in fio; a trim deallocates it as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pattern::{Dir, Io, PatternSpec, Rng};
use super::source::{Source, pass_begins};
use super::spread::Spread;
use super::varied::Sizer;
use crate::job::{Job, ZoneKeys};

/// The zones of a device.
#[derive(Debug)]
struct Zones {
    zone_bytes: u64,
    writable_bytes: u64,
    open_max: usize,
    /// By zone: bytes written.
    filled: Vec<u64>,
    filled_bytes: u64,
    /// Zones being written, each with the thread that began it; kept if their number is limited.
    open: Vec<(u64, u64)>,
    /// Number of writes since a zone was emptied early.
    writes: u64,
}

impl Zones {
    fn is_full(&self, zone: u64, least_bytes: u64) -> bool {
        self.filled[zone as usize] + least_bytes > self.writable_bytes
    }

    fn empty(&mut self, zone: u64) {
        self.filled_bytes -= std::mem::take(&mut self.filled[zone as usize]);
    }

    /// Returns the zone to write instead of `zone`, so that no more zones than allowed are open at
    /// a time. `among` is the thread's zones. `pick` gets the number of open zones and chooses one.
    fn open(
        &mut self,
        zone: u64,
        owner: u64,
        owner_max: u32,
        among: &std::ops::Range<u64>,
        pick: impl Fn(usize) -> usize,
    ) -> u64 {
        if self.open_max == 0 && owner_max == 0 || self.open.iter().any(|(open, _)| *open == zone) {
            return zone;
        }
        let owned = self.open.iter().filter(|(_, of)| *of == owner).count();
        let is_room = self.open_max == 0 || self.open.len() < self.open_max;
        if is_room && (owner_max == 0 || owned < owner_max as usize) {
            self.open.push((zone, owner));
            return zone;
        }
        let usable = || self.open.iter().map(|(open, _)| *open).filter(|open| among.contains(open));
        match usable().count() {
            // All open zones are outside the thread's range: the oldest no longer counts as open.
            0 => {
                self.open.remove(0);
                self.open.push((zone, owner));
                zone
            }
            count => usable().nth(pick(count)).unwrap_or(zone),
        }
    }
}

/// A device's zones, which all threads of a run share.
#[derive(Debug, Clone)]
pub(crate) struct SharedZones(Arc<Mutex<Zones>>);

impl SharedZones {
    /// Creates empty zones of `keys` on a device of `device_bytes`; a rest at its end is not a
    /// zone.
    pub(crate) fn new(keys: &ZoneKeys, device_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Zones {
            zone_bytes: keys.size_bytes,
            writable_bytes: keys.writable_bytes(),
            open_max: keys.open_max as usize,
            filled: vec![0; (device_bytes / keys.size_bytes.max(1)) as usize],
            filled_bytes: 0,
            open: Vec::with_capacity(keys.open_max as usize),
            writes: 0,
        })))
    }

    /// Returns whether they are those of `keys`.
    pub(crate) fn are_of(&self, keys: &ZoneKeys) -> bool {
        let zones = self.locked();
        (zones.zone_bytes, zones.writable_bytes, zones.open_max)
            == (keys.size_bytes, keys.writable_bytes(), keys.open_max as usize)
    }

    fn locked(&self) -> MutexGuard<'_, Zones> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses the places and sizes of one direction, before the zones change them.
#[derive(Debug, Clone)]
struct Placer {
    sizer: Sizer,
    min_bytes: u64,
    spread: Option<Spread>,
    /// Start of the next I/O of a sequence, from the beginning of the device.
    position_bytes: u64,
}

/// The I/Os of one thread.
#[derive(Debug)]
pub(crate) struct Zoned {
    zones: SharedZones,
    keys: ZoneKeys,
    spec: PatternSpec,
    /// The thread's zones.
    among: std::ops::Range<u64>,
    owner: u64,
    trims: bool,
    mixes: bool,
    has_written: bool,
    rng: Rng,
    placers: [Placer; 2],
    left_bytes: u64,
    passes_left: Option<u64>,
}

impl Zoned {
    /// Creates the I/Os of `job` on `zones`, in the whole zones within the range of `spec`.
    pub(crate) fn new(job: &Job, spec: PatternSpec, zones: SharedZones) -> Self {
        let keys = job.zones;
        let zone_bytes = keys.size_bytes.max(1);
        let end_bytes = spec.offset_bytes + spec.range_bytes;
        // As in fio a job that only reads may begin within a zone.
        let first = match job.changes() {
            true => spec.offset_bytes.div_ceil(zone_bytes),
            false => spec.offset_bytes / zone_bytes,
        };
        let among = first..(end_bytes / zone_bytes).max(first);
        let begin_bytes = spec.offset_bytes.max(first * zone_bytes);
        let room_bytes = (among.end * zone_bytes).saturating_sub(begin_bytes);
        let given = spec.pass_bytes != spec.range_bytes;
        let spec = PatternSpec {
            offset_bytes: begin_bytes,
            range_bytes: room_bytes,
            pass_bytes: if given { spec.pass_bytes } else { room_bytes },
            ..spec
        };
        let mut rng = Rng::new(spec.seed);
        let placer = |direction: usize, rng: &mut Rng| {
            let (sizes, random) = (job.sizes_of(direction), &job.random);
            let min_bytes = sizes.min_bytes();
            let places = (spec.range_bytes / min_bytes).max(1);
            let (of, once) = (&random.distribution, !random.norandommap);
            let spread = || Spread::new(of, places, min_bytes, direction, once, rng);
            Placer {
                spread: spec.random.then(spread),
                sizer: Sizer::new(&sizes),
                min_bytes,
                position_bytes: spec.offset_bytes,
            }
        };
        let placers = [0, 1].map(|direction| placer(direction, &mut rng));
        Self {
            zones,
            keys,
            among,
            owner: spec.seed,
            trims: job.trims(),
            mixes: job.rw.is_mixed(),
            has_written: false,
            rng,
            placers,
            left_bytes: spec.pass_bytes,
            passes_left: spec.passes.map(|passes| passes.saturating_sub(1)),
            spec,
        }
    }

    /// Returns the place and size of a write: at the fill level of its zone.
    fn write(&self, at_bytes: u64, bytes: u64) -> (u64, u64) {
        let least_bytes = self.placers[1].min_bytes;
        let mut zones = self.zones.locked();
        let (offset_bytes, range_bytes) = (self.spec.offset_bytes, self.spec.range_bytes);
        let pick = |count: usize| {
            let share = u128::from(at_bytes - offset_bytes) * count as u128
                / u128::from(range_bytes.max(1));
            (share as usize).min(count - 1)
        };
        let wanted = at_bytes / self.keys.size_bytes;
        let zone = zones.open(wanted, self.owner, self.keys.open_max_of_thread, &self.among, pick);
        let threshold =
            u128::from(range_bytes) * u128::from(self.keys.reset_threshold_ppm) / 1_000_000;
        let mut resets = zones.is_full(zone, least_bytes);
        if self.keys.reset_frequency_ppm > 0 && u128::from(zones.filled_bytes) >= threshold {
            zones.writes += 1;
            if zones.writes * self.keys.reset_frequency_ppm >= 1_000_000 {
                (zones.writes, resets) = (0, true);
            }
        }
        if resets {
            zones.empty(zone);
        }
        let filled_bytes = zones.filled[zone as usize];
        let room_bytes = zones.writable_bytes - filled_bytes;
        let bytes = bytes.min(room_bytes) / least_bytes * least_bytes;
        zones.filled[zone as usize] += bytes;
        zones.filled_bytes += bytes;
        if zones.is_full(zone, least_bytes) {
            zones.open.retain(|(open, _)| *open != zone);
        }
        (zone * self.keys.size_bytes + filled_bytes, bytes)
    }

    /// Returns the place and size of a read of written data; `None` if there is none.
    fn read(&self, at_bytes: u64, bytes: u64) -> Option<(u64, u64)> {
        let zone_bytes = self.keys.size_bytes;
        let least_bytes = self.placers[0].min_bytes;
        let random = self.spec.random;
        let zones = self.zones.locked();
        let begins = at_bytes / zone_bytes;
        let (mut zone, mut at_bytes) = (begins, at_bytes);
        let filled = |zone: u64| zones.filled[zone as usize];
        let is_beyond = !random && at_bytes + least_bytes > zone * zone_bytes + filled(zone);
        if filled(zone) < least_bytes || is_beyond {
            zone = self.nearest(zone, |zone| filled(zone) >= least_bytes)?;
            if !random {
                at_bytes = zone * zone_bytes;
            }
        }
        let (start_bytes, filled_bytes) = (zone * zone_bytes, filled(zone));
        if filled_bytes <= bytes {
            at_bytes = start_bytes;
        } else if random {
            let within = (at_bytes - begins * zone_bytes) % (filled_bytes - bytes);
            at_bytes = start_bytes + within / least_bytes * least_bytes;
        }
        let bytes = bytes.min(start_bytes + filled_bytes - at_bytes) / least_bytes * least_bytes;
        Some((at_bytes, bytes))
    }

    /// Returns the zone that a trim empties, with written data in it; `None` if there is none.
    fn trim(&self, at_bytes: u64) -> Option<(u64, u64)> {
        let mut zones = self.zones.locked();
        let mut zone = at_bytes / self.keys.size_bytes;
        if self.spec.random && zones.filled[zone as usize] == 0 {
            zone = self.nearest(zone, |zone| zones.filled[zone as usize] > 0)?;
        }
        zones.empty(zone);
        zones.open.retain(|(open, _)| *open != zone);
        Some((zone * self.keys.size_bytes, self.keys.size_bytes))
    }

    /// Returns the next zone that is `good`; at random the nearest.
    fn nearest(&self, zone: u64, good: impl Fn(u64) -> bool) -> Option<u64> {
        let farthest = self.among.end.checked_sub(self.among.start)?;
        (1..=farthest).find_map(|distance| {
            let after =
                Some(zone + distance).filter(|zone| self.among.contains(zone) && good(*zone));
            let before = || zone.checked_sub(distance).filter(|_| self.spec.random);
            after.or_else(|| before().filter(|zone| self.among.contains(zone) && good(*zone)))
        })
    }
}

impl Source for Zoned {
    fn begin_pass(&mut self) -> bool {
        if !pass_begins(&mut self.passes_left) {
            return false;
        }
        self.left_bytes = self.spec.pass_bytes;
        for placer in &mut self.placers {
            placer.position_bytes = self.spec.offset_bytes;
        }
        true
    }

    fn next_in_pass(&mut self) -> Option<Io> {
        if self.among.is_empty() {
            return None;
        }
        let mut dir = self.spec.direction(&mut self.rng);
        if self.trims {
            dir = Dir::Trim;
        } else if dir == Dir::Read && self.mixes && !self.has_written && !self.keys.reads_anywhere {
            // There is nothing to read yet.
            dir = Dir::Write;
        }
        let placer = &mut self.placers[usize::from(dir != Dir::Read)];
        if self.left_bytes < placer.min_bytes {
            return None;
        }
        let end_bytes = self.among.end * self.keys.size_bytes;
        let mut at_bytes = match &mut placer.spread {
            Some(spread) => self.spec.offset_bytes + spread.next(&mut self.rng) * placer.min_bytes,
            None => placer.position_bytes,
        };
        let writable_bytes = self.keys.writable_bytes();
        if placer.spread.is_none()
            && dir == Dir::Write
            && at_bytes % self.keys.size_bytes >= writable_bytes
        {
            // Skips the part of a zone that cannot be written.
            let next_bytes = at_bytes.next_multiple_of(self.keys.size_bytes);
            self.left_bytes = self.left_bytes.saturating_sub(next_bytes - at_bytes);
            at_bytes = next_bytes;
        }
        if at_bytes + placer.min_bytes > end_bytes {
            // The sequence begins again.
            at_bytes = self.spec.offset_bytes;
        }
        if self.left_bytes < placer.min_bytes {
            return None;
        }
        let bytes = placer.sizer.within(self.left_bytes, &mut self.rng).unwrap_or(placer.min_bytes);
        let placed = match dir {
            Dir::Write => Some(self.write(at_bytes, bytes)),
            Dir::Read if self.keys.reads_anywhere => {
                Some((at_bytes, bytes.min(end_bytes - at_bytes)))
            }
            Dir::Read => self.read(at_bytes, bytes),
            Dir::Trim => self.trim(at_bytes),
        };
        let Some((at_bytes, bytes)) = placed else {
            self.left_bytes = 0;
            return None;
        };
        self.has_written |= dir == Dir::Write;
        self.placers[usize::from(dir != Dir::Read)].position_bytes = at_bytes + bytes;
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        Some(Io { dir, lba: at_bytes >> self.spec.block_shift, bytes: bytes as usize, ioprio: 0 })
    }
}

#[cfg(test)]
mod tests;
