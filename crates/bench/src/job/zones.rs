//! `zonemode` and its kind: a device divided into zones.

use super::{Extent, Job};

/// `zonemode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMode {
    /// Not divided.
    None,
    /// So much of each zone is accessed, then the next one.
    Strided,
    /// Zones are written from their beginning on, as those of a zoned device.
    Zbd,
}

/// `zonemode`, `zonesize` and what belongs to them. Sizes are in bytes; 0: not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneKeys {
    /// `None`: strided if there is a size.
    pub mode: Option<ZoneMode>,
    /// Strided: transfer so much in each zone. Zoned: a zone is so long.
    pub size_bytes: u64,
    /// Strided: a zone is so long; 0: as much as is transferred in it.
    pub range_bytes: u64,
    /// Strided: so much lies between two zones.
    pub skip_bytes: u64,
    /// Zoned: a zone can be written so far; 0: to its end.
    pub capacity_bytes: u64,
    /// Zoned: the number of zones written at a time; 0: any number.
    pub open_max: u32,
    /// Zoned: the number of them for one thread.
    pub open_max_of_thread: u32,
    /// Zoned: reads go anywhere, not only where something was written.
    pub reads_anywhere: bool,
    /// Zoned: with this part of the range written, in millionths, …
    pub reset_threshold_ppm: u64,
    /// … this part of the writes, in millionths, empties its zone before.
    pub reset_frequency_ppm: u64,
}

impl ZoneKeys {
    /// The mode, said or meant.
    pub fn mode(&self) -> ZoneMode {
        let meant = if self.size_bytes > 0 { ZoneMode::Strided } else { ZoneMode::None };
        self.mode.unwrap_or(meant)
    }

    /// How long a strided zone is.
    pub(crate) fn strided_range_bytes(&self) -> u64 {
        if self.range_bytes > 0 { self.range_bytes } else { self.size_bytes }
    }

    /// How far a zone can be written.
    pub(crate) fn writable_bytes(&self) -> u64 {
        if self.capacity_bytes > 0 { self.capacity_bytes } else { self.size_bytes }
    }
}

impl Job {
    /// Makes bytes of sizes that are numbers of zones (`8z`), once all keys are known.
    pub fn settle_zones(&mut self) {
        let zone_bytes = self.zones.size_bytes;
        if zone_bytes == 0 {
            return;
        }
        let settle = |extent: &mut Extent| {
            if let Extent::Zones(count) = *extent {
                *extent = Extent::Bytes(count.saturating_mul(zone_bytes));
            }
        };
        settle(&mut self.offset);
        settle(&mut self.places.offset_increment);
        [&mut self.size, &mut self.io_size, &mut self.filesize]
            .into_iter()
            .flatten()
            .for_each(settle);
    }

    /// What `zonemode` and its kind contradict.
    pub(super) fn check_zones(&self, wrong: &mut Vec<(&'static str, String)>) {
        let zones = &self.zones;
        let mut fail = |key: &'static str, what: &str| wrong.push((key, what.to_owned()));
        for key in ["offset", "size", "io_size", "filesize", "offset_increment"] {
            let extent = match key {
                "offset" => Some(self.offset),
                "size" => self.size,
                "io_size" => self.io_size,
                "filesize" => self.filesize,
                _ => Some(self.places.offset_increment),
            };
            if matches!(extent, Some(Extent::Zones(_))) && zones.size_bytes == 0 {
                fail(key, &format!("{key} counts zones (z), which needs zonesize="));
            }
        }
        let mode = zones.mode();
        if mode == ZoneMode::None {
            if zones.size_bytes > 0 {
                fail("zonesize", "zonesize with zonemode=none has no meaning; leave one out");
            }
            return;
        }
        if zones.size_bytes == 0 {
            let what = "zonemode needs zonesize=: the device has no zones of its own";
            fail("zonemode", what);
            return;
        }
        if self.verify != super::Verify::None {
            let what = "verify writes each block once before it checks, and zonemode writes some \
                        more often or not at all; leave one out";
            fail("verify", what);
        }
        let block_bytes = self.bs_max_bytes();
        match mode {
            ZoneMode::Strided if zones.strided_range_bytes() < block_bytes => {
                let key = if zones.range_bytes > 0 { "zonerange" } else { "zonesize" };
                fail(key, &format!("a zone is smaller than one block of {block_bytes} bytes"));
            }
            ZoneMode::Zbd => {
                if zones.writable_bytes() > zones.size_bytes {
                    fail("zonecapacity", "zonecapacity is more than zonesize");
                } else if zones.writable_bytes() < block_bytes {
                    let key = if zones.capacity_bytes > 0 { "zonecapacity" } else { "zonesize" };
                    fail(key, &format!("a zone is smaller than one block of {block_bytes} bytes"));
                }
                if self.trims() && (self.bs_write_bytes != zones.size_bytes || self.writes()) {
                    let what = "with zonemode=zbd a trim empties one zone: say rw=trim or randtrim, \
                                and bs= as zonesize=";
                    fail("bs", what);
                }
                if self.places.skip_bytes != 0 || self.places.run > 1 {
                    fail(
                        "rw",
                        "with zonemode=zbd writes go on where a zone is filled to; leave the \
                                number after rw out",
                    );
                }
                if self.align_bytes(0).or(self.align_bytes(1)).is_some() {
                    fail(
                        "blockalign",
                        "with zonemode=zbd zones are filled without gaps; leave it out",
                    );
                }
            }
            _ => {}
        }
    }
}
