//! `zonemode` and related keys: a device divided into zones.

use super::validate::Contradictions;
use super::{Extent, Job};

/// `zonemode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMode {
    /// Not divided.
    None,
    /// A part of each zone is accessed, then the next zone.
    Strided,
    /// Zones are written from their beginning on, as on a zoned device.
    Zbd,
}

/// `zonemode`, `zonesize` and related keys. Sizes are in bytes; 0: not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneKeys {
    /// `None`: strided if there is a size.
    pub mode: Option<ZoneMode>,
    /// Strided: amount transferred in each zone. Zoned: length of a zone.
    pub size_bytes: u64,
    /// Strided: length of a zone; 0: the amount transferred in it.
    pub range_bytes: u64,
    /// Strided: distance between two zones.
    pub skip_bytes: u64,
    /// Zoned: writable length of a zone; 0: to its end.
    pub capacity_bytes: u64,
    /// Zoned: the maximum number of open zones; 0: any number.
    pub open_max: u32,
    /// Zoned: the maximum number of open zones of one thread.
    pub open_max_of_thread: u32,
    /// Zoned: reads go anywhere, not only to written blocks.
    pub reads_anywhere: bool,
    /// Zoned: from this fill level on (part of the range in millionths) writes empty zones.
    pub reset_threshold_ppm: u64,
    /// Zoned: the part of the writes, in millionths, that first empty their zone.
    pub reset_frequency_ppm: u64,
}

impl ZoneKeys {
    /// Returns the mode, set or implied.
    pub fn mode(&self) -> ZoneMode {
        let meant = if self.size_bytes > 0 { ZoneMode::Strided } else { ZoneMode::None };
        self.mode.unwrap_or(meant)
    }

    /// Returns the length of a strided zone.
    pub(crate) fn strided_range_bytes(&self) -> u64 {
        if self.range_bytes > 0 { self.range_bytes } else { self.size_bytes }
    }

    /// Returns the writable length of a zone.
    pub(crate) fn writable_bytes(&self) -> u64 {
        if self.capacity_bytes > 0 { self.capacity_bytes } else { self.size_bytes }
    }
}

impl Job {
    /// Converts sizes in zones (`8z`) to bytes, once all keys are known.
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

    /// Checks `zonemode` and related keys for contradictions.
    pub(super) fn check_zones(&self, wrong: &mut Contradictions) {
        let zones = &self.zones;
        let extents = [
            ("offset", Some(self.offset)),
            ("size", self.size),
            ("io_size", self.io_size),
            ("filesize", self.filesize),
            ("offset_increment", Some(self.places.offset_increment)),
        ];
        for (key, extent) in extents {
            let is_wrong = matches!(extent, Some(Extent::Zones(_))) && zones.size_bytes == 0;
            let what = format!("{key} counts zones (z), which needs zonesize=");
            wrong.add_if(is_wrong, key, what);
        }
        let mode = zones.mode();
        if mode == ZoneMode::None {
            let what = "zonesize with zonemode=none has no meaning; leave one out";
            wrong.add_if(zones.size_bytes > 0, "zonesize", what);
            return;
        }
        if zones.size_bytes == 0 {
            let what = "zonemode needs zonesize=: the device has no zones of its own";
            wrong.add_if(true, "zonemode", what);
            return;
        }
        wrong.add_if(
            self.verify != super::Verify::None,
            "verify",
            "verify writes each block once before it checks, and zonemode writes some more often \
             or not at all; leave one out",
        );
        let block_bytes = self.bs_max_bytes();
        let (key, set_bytes, zone_bytes) = match mode {
            ZoneMode::Zbd => ("zonecapacity", zones.capacity_bytes, zones.writable_bytes()),
            _ => ("zonerange", zones.range_bytes, zones.strided_range_bytes()),
        };
        let is_too_long = mode == ZoneMode::Zbd && zone_bytes > zones.size_bytes;
        wrong.add_if(is_too_long, "zonecapacity", "zonecapacity is more than zonesize");
        wrong.add_if(
            zone_bytes < block_bytes && !is_too_long,
            if set_bytes > 0 { key } else { "zonesize" },
            format!("a zone is smaller than one block of {block_bytes} bytes"),
        );
        if mode == ZoneMode::Zbd {
            wrong.add_if(
                self.trims() && (self.bs_write_bytes != zones.size_bytes || self.writes()),
                "bs",
                "with zonemode=zbd a trim empties one zone: say rw=trim or randtrim, and bs= as \
                 zonesize=",
            );
            wrong.add_if(
                self.places.skip_bytes != 0 || self.places.run > 1,
                "rw",
                "with zonemode=zbd writes go on where a zone is filled to; leave the number after \
                 rw out",
            );
            wrong.add_if(
                self.align_bytes(0).or(self.align_bytes(1)).is_some(),
                "blockalign",
                "with zonemode=zbd zones are filled without gaps; leave it out",
            );
        }
    }
}
