//! Damaged tables: whatever bytes are on a disk, there is a list or an error. Nothing panics,
//! reads beyond the disk, without end, or into unbounded memory.
//!
//! `MEANTIME_DISK_MUTATIONS=1000000` is a long run (default 20,000).

use meantime_partitions::{Size, TableKind};
use meantime_testkit::disk::{Entry, Seen, check, fix_sums, write_gpt, write_record};
use meantime_testkit::{Rng, setting};

/// A disk, and the bytes of it that are worth changing.
struct Base {
    name: &'static str,
    disk: Vec<u8>,
    block: usize,
    places: Vec<std::ops::Range<usize>>,
}

fn entry(kind: u8, first: u64, last: u64) -> Entry {
    Entry { kind, first, last }
}

fn bases() -> Vec<Base> {
    let mut bases = Vec::new();
    for (name, block, blocks) in [("GPT, 512", 512, 200), ("GPT, 4096", 4096, 40)] {
        let mut disk = vec![0; block * blocks];
        let last = blocks as u64 - 16_384 / block as u64 - 2;
        let middle = last / 2 + 2;
        write_gpt(&mut disk, block, &[entry(1, middle, last), entry(1, last - 1, last)]);
        let end = disk.len();
        let backup = end - block - 16_384;
        let places = vec![
            446..512,
            block..block + 92,
            2 * block..2 * block + 512,
            end - block..end - block + 92,
            backup..backup + 512,
        ];
        bases.push(Base { name, disk, block, places });
    }
    let mut hybrid = bases[0].disk.clone();
    write_record(&mut hybrid, 0, 1, &[entry(0x83, 50, 60), entry(0xEE, 1, 199)]);
    let places = bases[0].places.clone();
    bases.push(Base { name: "hybrid", disk: hybrid, block: 512, places });
    for (name, block) in [("MBR, 512", 512), ("MBR, 4096", 4096)] {
        let mut disk = vec![0; block * 40];
        write_record(
            &mut disk,
            0,
            7,
            &[entry(0x83, 2, 9), entry(0xC, 9, 12), entry(5, 20, 39), entry(0x82, 14, 15)],
        );
        let record = 440..512;
        let mut places = vec![record];
        for n in 0..4 {
            let link = entry(5, 4 * (n + 1), 4 * (n + 1) + 3);
            let at = (20 + 4 * n as usize) * block;
            let entries = [entry(0x83, 1, 2), link];
            write_record(&mut disk, at, 0, &entries[..if n == 3 { 1 } else { 2 }]);
            places.push(at + 446..at + 512);
        }
        bases.push(Base { name, disk, block, places });
    }
    bases
}

fn size(base: &Base) -> Size {
    let blocks = (base.disk.len() / base.block) as u64;
    Size { block_bytes: base.block as u32, blocks }
}

/// Values at which numbers wrap, or change their meaning.
const EDGES: [u64; 10] = [0, 1, 2, 0x7F, 0xFF, 0xFFFF_FFFF, 1 << 31, 1 << 63, u64::MAX, 92];

fn damage(rng: &mut Rng, base: &Base) -> Vec<u8> {
    let mut disk = base.disk.clone();
    for _ in 0..1 + rng.below(4) {
        let place = base.places[rng.below(base.places.len() as u64) as usize].clone();
        let at = place.start + rng.below(place.len() as u64) as usize;
        let aligned = at & !3;
        match rng.below(5) {
            0 => disk[at] = rng.next() as u8,
            1 => disk[at] ^= 1 << rng.below(8),
            2 => {
                let bytes = EDGES[rng.below(10) as usize].to_le_bytes();
                let len = (if rng.one_in(2) { 4 } else { 8 }).min(disk.len() - aligned);
                disk[aligned..aligned + len].copy_from_slice(&bytes[..len]);
            }
            3 => {
                // Small numbers are blocks of the disk.
                let bytes = (rng.below(256) as u32).to_le_bytes();
                disk[aligned..aligned + 4].copy_from_slice(&bytes);
            }
            _ => {
                let from = base.places[rng.below(base.places.len() as u64) as usize].clone();
                let len = from.len().min(disk.len() - place.start);
                disk.copy_within(from.start..from.start + len, place.start);
            }
        }
    }
    match rng.below(30) {
        // No boot record.
        0 => disk.swap(510, 511),
        // Wrong checksums.
        1..10 => {}
        _ => fix_sums(&mut disk, base.block),
    }
    disk
}

#[test]
fn bases_are_sound() {
    for base in bases() {
        let Seen { table, .. } = check(&base.disk, size(&base));
        let table = table.unwrap_or_else(|| panic!("{}: a table", base.name));
        let (kind, count) =
            if base.name.starts_with("MBR") { (TableKind::Mbr, 8) } else { (TableKind::Gpt, 2) };
        assert_eq!((table.kind, table.partitions.len()), (kind, count), "{}", base.name);
    }
}

#[test]
fn mutated_tables() {
    let bases = bases();
    let (mut tables, mut damaged, mut none) = (0, 0, 0);
    for seed in 0..setting("MEANTIME_DISK_MUTATIONS").unwrap_or(20_000) {
        let mut rng = Rng::new(seed);
        let base = &bases[rng.below(bases.len() as u64) as usize];
        let disk = damage(&mut rng, base);
        let mut size = size(base);
        match rng.below(20) {
            0 => size.blocks = rng.below(size.blocks + 1),
            1 => size.blocks = EDGES[rng.below(10) as usize],
            2 => {
                size.block_bytes = [0, 1, 511, 513, 4096, 1 << 31, u32::MAX][rng.below(7) as usize]
            }
            _ => {}
        }
        let result = std::panic::catch_unwind(|| check(&disk, size));
        let seen = result.unwrap_or_else(|_| panic!("seed {seed}: {} of {size:?}", base.name));
        assert!(seen.bytes <= 4 << 20, "seed {seed}: {} bytes", seen.bytes);
        match seen {
            Seen { table: Some(_), .. } => tables += 1,
            Seen { damaged: Some(_), .. } => damaged += 1,
            _ => none += 1,
        }
    }
    // It has been through all of them.
    assert!(tables.min(damaged).min(none) > 0, "{tables}, {damaged}, {none}");
}

/// Bytes by chance, which mostly have the mark of a boot record and a possible first entry.
#[test]
fn random_bytes() {
    for seed in 0..setting("MEANTIME_DISK_MUTATIONS").unwrap_or(20_000) / 10 {
        let mut rng = Rng::new(seed);
        let mut disk = vec![0; 40 << 10];
        disk.fill_with(|| rng.next() as u8);
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        if rng.one_in(2) {
            [446, 462, 478, 494].into_iter().for_each(|at| disk[at] &= 0x80);
            disk[450] = [5, 0xEE, 0x83][rng.below(3) as usize];
        }
        check(&disk, Size { block_bytes: 512, blocks: 80 });
    }
}

/// The most that a disk can ask for: arrays of 1 MiB in both copies.
#[test]
fn the_largest_tables() {
    let mut disk = vec![0; 8 << 20];
    write_gpt(&mut disk, 512, &[]);
    let last = disk.len() - 512;
    for header in [512, last] {
        disk[header + 80..header + 84].copy_from_slice(&8192u32.to_le_bytes());
        disk[header + 72..header + 80].copy_from_slice(&100u64.to_le_bytes());
    }
    for n in 0..8192 {
        let at = 100 * 512 + 128 * n;
        disk[at..at + 16].fill(1);
        disk[at + 32..at + 40].copy_from_slice(&(4000 + n as u64).to_le_bytes());
        disk[at + 40..at + 48].copy_from_slice(&(4000 + n as u64).to_le_bytes());
        disk[at + 56..at + 128].fill(0x26);
    }
    fix_sums(&mut disk, 512);
    let size = Size { block_bytes: 512, blocks: 16_384 };
    let seen = check(&disk, size);
    assert_eq!(seen.table.unwrap().partitions.len(), 8192);
    assert!(seen.bytes < 3 << 20, "{}", seen.bytes);
}
