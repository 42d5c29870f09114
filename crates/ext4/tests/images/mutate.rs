//! Damages an image.

use meantime_testkit::Rng;
use meantime_testkit::damage::regions::{Base, Kind, Region};
use meantime_testkit::damage::sums;

/// An image that can be damaged and restored.
pub(crate) struct Patient {
    pub image: Vec<u8>,
    /// The overwritten bytes, latest last.
    undo: Vec<(usize, Vec<u8>)>,
}

/// The damage done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damage {
    pub regions: Vec<Region>,
    /// Whether checksums were corrected afterwards.
    pub fixed: bool,
}

impl Patient {
    pub(crate) fn new(base: &Base) -> Self {
        Self { image: base.image.clone(), undo: Vec::new() }
    }

    /// Undoes all damage.
    pub(crate) fn heal(&mut self) {
        while let Some((offset, bytes)) = self.undo.pop() {
            self.image[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Damages one to three structures of `base`.
    pub(crate) fn damage(&mut self, base: &Base, rng: &mut Rng) -> Damage {
        let mut damage = Damage { regions: Vec::new(), fixed: rng.one_in(2) };
        for _ in 0..1 + rng.below(8) / 6 {
            // Choose a kind first: there are many inodes, and one superblock.
            let kind = rng.below(9);
            let wanted = |region: &&Region| match region.kind {
                Kind::Superblock => kind == 0,
                Kind::Group(_) => kind == 1,
                Kind::Inode(_) => kind == 2 || kind == 3,
                Kind::Extents(_) | Kind::Pointers => kind == 4,
                Kind::Directory(_) => kind == 5 || kind == 6,
                Kind::Attributes(_) => kind == 7,
                Kind::Journal => kind == 8,
                Kind::Data => false,
            };
            let count = base.regions.iter().filter(wanted).count() as u64;
            let chosen = if count > 0 {
                base.regions.iter().filter(wanted).nth(rng.below(count) as usize)
            } else {
                None
            };
            let region = *chosen
                .unwrap_or_else(|| &base.regions[rng.below(base.regions.len() as u64) as usize]);
            let old = self.image[region.offset..region.offset + region.bytes].to_vec();
            self.undo.push((region.offset, old));
            for _ in 0..1 + rng.below(3) {
                self.change(base, &region, rng);
            }
            damage.regions.push(region);
        }
        if damage.fixed {
            for region in &damage.regions {
                sums::fix(
                    &base.seeds,
                    region,
                    &mut self.image[region.offset..region.offset + region.bytes],
                );
            }
        }
        damage
    }

    fn change(&mut self, base: &Base, region: &Region, rng: &mut Rng) {
        let bytes = region.bytes;
        // The first fields of a structure determine how it is read.
        let at =
            if rng.one_in(2) { rng.below(bytes.min(160) as u64) } else { rng.below(bytes as u64) }
                as usize;
        let area = &mut self.image[region.offset..region.offset + bytes];
        match rng.below(8) {
            0 => area[at] ^= 1 << rng.below(8),
            1 => area[at..]
                .iter_mut()
                .take(1 + rng.below(8) as usize)
                .for_each(|byte| *byte = rng.next() as u8),
            2 | 3 => {
                // A number, little-endian or big-endian as in the structure.
                let (value, width) =
                    (interesting(base, region, rng), [2, 4, 4, 8][rng.below(4) as usize]);
                let at = at & !(width.min(4) - 1);
                if at + width <= bytes {
                    let big = region.kind == Kind::Journal;
                    let value = if big { value.to_be_bytes() } else { value.to_le_bytes() };
                    let value = if big { &value[8 - width..] } else { &value[..width] };
                    area[at..at + width].copy_from_slice(value);
                }
            }
            4 => {
                let value = i16::from_le_bytes([area[at & !1], area[(at & !1) + 1]]);
                let value = value.wrapping_add(rng.below(9) as i16 - 4).to_le_bytes();
                area[at & !1..(at & !1) + 2].copy_from_slice(&value);
            }
            5 => {
                // Copies a part of the structure to another place in it.
                let length = 1 + rng.below(64.min(bytes as u64)) as usize;
                let (from, to) = (
                    rng.below((bytes - length + 1) as u64),
                    rng.below((bytes - length + 1) as u64),
                );
                area.copy_within(from as usize..from as usize + length, to as usize);
            }
            6 => area[at..].iter_mut().take(1 + rng.below(64) as usize).for_each(|byte| *byte = 0),
            _ => {
                // Puts another structure in its place.
                let other = base.regions[rng.below(base.regions.len() as u64) as usize];
                let length = other.bytes.min(bytes);
                area[..length].copy_from_slice(&base.image[other.offset..other.offset + length]);
            }
        }
    }
}

/// A number that is meaningful, or nearly so.
fn interesting(base: &Base, region: &Region, rng: &mut Rng) -> u64 {
    let block = base.regions.iter().map(|region| region.bytes).max().unwrap_or(1024) as u64;
    let other = base.regions[rng.below(base.regions.len() as u64) as usize];
    match rng.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.below(16),
        3 => 1 << rng.below(64),
        4 => (1 << rng.below(64)) - 1,
        5 => region.offset as u64 / block,
        6 => other.offset as u64 / block,
        7 => u64::from(other.ino.unwrap_or(2)),
        8 => u64::from(region.ino.unwrap_or(2)),
        9 => base.device_bytes / block + rng.below(3) - 1,
        10 => rng.next(),
        _ => [0xf30a, 0xef53, 0xea02_0000, 0x9839_3bc0, 0x8000, 0x7fff, 0x8001]
            [rng.below(7) as usize],
    }
}
