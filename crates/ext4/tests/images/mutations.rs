//! Damaged images: whatever bytes are on the disk, every query returns a result or an error that
//! says what is wrong and where. Nothing panics, reads without end or beyond the device, or takes
//! unbounded memory. Where checksums cover the change, no result differs without an error.
//!
//! `MEANTIME_EXT4_MUTATIONS=10000000` is the long run (default 50,000), `MEANTIME_EXT4_SEED=n` sets
//! the first seed. Failing images are kept in `MEANTIME_EXT4_KEEP=DIRECTORY`, and
//! `MEANTIME_EXT4_IMAGE=FILE` walks one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mutate::{Damage, Patient};
use meantime_ext4::format::VolumeOptions;
use meantime_testkit::damage::memory::Memory;
use meantime_testkit::damage::regions::{Base, Kind, Region};
use meantime_testkit::damage::walk::{Walk, walk};
use meantime_testkit::lab::shape::Shape;
use meantime_testkit::lab::writer::{Amount, Writer};
use meantime_testkit::lab::{self, Lab};
use meantime_testkit::{Rng, setting};

/// The most bytes that a walk may hold: attribute values may have 16 MiB, and a map a million
/// extents.
const HELD_BYTES_MAX: i64 = 96 << 20;

/// An image that the kernel wrote and, if it has a journal, was stopped in.
fn written(lab: &Lab, seed: u64) -> Result<Base, String> {
    let mut rng = Rng::new(seed);
    let shape = Shape::tiny(seed, &mut rng);
    let image = lab.path("base.img");
    let arguments: Vec<&str> = shape.arguments.iter().map(String::as_str).collect();
    lab::make(&image, shape.image_bytes, &arguments)?;
    let mounted =
        lab.mount(&image, true, if shape.may_crash { "noatime,commit=300" } else { "noatime" })?;
    let mut writer = Writer::new(&mut rng, &shape, mounted.root());
    writer.write(Amount { steps: 24, names: 70, pieces: 200 });
    if shape.may_crash {
        mounted.sync();
        (0..10).for_each(|_| writer.step());
        mounted.shut_down(true);
    }
    mounted.unmount()?;
    let bytes = std::fs::read(&image).map_err(|error| error.to_string())?;
    Ok(Base::new(format!("{} {}", shape.name, shape.block_bytes), bytes))
}

fn bases() -> Result<Vec<Base>, String> {
    let directory =
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|error| error.to_string())?;
    let mut bases = meantime_testkit::damage::base::all(directory.path())?;
    // This runs in a thread of its own, and only that thread sees the mounts.
    let written = std::thread::spawn(|| match Lab::new(env!("CARGO_TARGET_TMPDIR")) {
        Ok(lab) => (0..12).map(|seed| written(&lab, seed).expect("an image")).collect(),
        Err(why) => {
            println!("without images that the kernel wrote: {why}");
            Vec::new()
        }
    });
    bases.extend(written.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    Ok(bases)
}

/// Whether a checksum of 32 bits covers every byte of the damage.
fn is_covered(base: &Base, patient: &Patient, damage: &Damage) -> bool {
    let small_inodes = base
        .regions
        .iter()
        .any(|region| matches!(region.kind, Kind::Inode(_)) && region.bytes == 128);
    // The superblock's field that enables checksums is covered only while it enables them. An older
    // superblock, of which the journal may have a copy, is as valid as this one.
    let (superblock, before) = (&patient.image[1024..2048], &base.image[1024..2048]);
    let says_so = superblock[0x65] & 0x04 != 0;
    let older = superblock != before
        && superblock[1020..]
            == meantime_testkit::damage::sums::crc(!0, &superblock[..1020]).to_le_bytes();
    // A directory or tree block is valid in the place of another one of the same inode: its number
    // is not in the checksum.
    let bytes = |image: &[u8], region: &Region| image[region.offset..][..region.bytes].to_vec();
    let is_another = |region: &Region| {
        let now = bytes(&patient.image, region);
        let same_owner = |other: &&Region| {
            other.ino.is_some() && other.ino == region.ino && other.bytes == region.bytes
        };
        now != bytes(&base.image, region)
            && base.regions.iter().filter(same_owner).any(|other| bytes(&base.image, other) == now)
    };
    base.seeds.metadata_csum
        && says_so
        && !older
        && !damage.regions.iter().any(is_another)
        && !small_inodes
        && !damage.fixed
        && damage.regions.iter().all(|region| match region.kind {
            Kind::Superblock
            | Kind::Inode(_)
            | Kind::Extents(_)
            | Kind::Directory(_)
            | Kind::Attributes(_) => true,
            Kind::Group(_) | Kind::Pointers | Kind::Journal | Kind::Data => false,
        })
}

/// Damages `base` by `seed` and walks it.
fn case(
    base: &Base,
    patient: &mut Patient,
    intact: &Walk,
    seed: u64,
    kinds: &mut BTreeMap<String, u64>,
) {
    let mut rng = Rng::new(seed);
    let damage = patient.damage(base, &mut rng);
    let device_bytes =
        if rng.one_in(50) { rng.below(base.device_bytes) } else { base.device_bytes };
    let options = VolumeOptions {
        ignore_checksums: !damage.fixed && rng.one_in(3),
        superblock: rng.one_in(100).then(|| rng.below(20_000)),
    };
    // Walk everything, or only the damaged inodes.
    let owners: Vec<u32> = damage.regions.iter().filter_map(|region| region.ino).collect();
    let all = owners.is_empty() || rng.one_in(8);
    let usual = device_bytes == base.device_bytes && options == VolumeOptions::default();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let memory = Memory::new(&patient.image, device_bytes);
        let (walk, held) =
            crate::memory_use::measure(|| walk(&memory, options, (!all).then_some(&owners[..])));
        assert!(held < HELD_BYTES_MAX, "{held} bytes held at once");
        assert!(
            !(usual && all && is_covered(base, patient, &damage))
                || walk.errors > 0
                || walk.digest == intact.digest,
            "another answer, and no error"
        );
        walk
    }));
    match result {
        Ok(walk) => {
            let outcome = match (walk.opened, walk.errors > 0) {
                (false, _) => "refused",
                (true, true) => "errors",
                (true, false) => "as if nothing were",
            };
            *kinds
                .entry(format!("{}{outcome}", if damage.fixed { "fixed: " } else { "" }))
                .or_default() += 1;
        }
        Err(panic) => {
            println!("{}: seed {seed}: {damage:?} {options:?}, {device_bytes} bytes", base.name);
            if let Some(keep) = std::env::var_os("MEANTIME_EXT4_KEEP") {
                let path =
                    PathBuf::from(keep).join(format!("{}-{seed}.img", base.name.replace(' ', "-")));
                let mut image = patient.image.clone();
                image.resize(device_bytes as usize, 0);
                std::fs::write(&path, image).expect("the image is kept");
                println!("kept: {}", path.display());
            }
            std::panic::resume_unwind(panic);
        }
    }
    patient.heal();
}

#[test]
fn damage_is_answered_with_errors() {
    let bases = match bases() {
        Ok(bases) => bases,
        Err(why) => return println!("skipped: {why}"),
    };
    let count = setting("MEANTIME_EXT4_MUTATIONS").unwrap_or(50_000);
    let first = setting("MEANTIME_EXT4_SEED").unwrap_or(0);
    let walks: Vec<Walk> = bases
        .iter()
        .map(|base| {
            let intact =
                walk(&Memory::new(&base.image, base.device_bytes), VolumeOptions::default(), None);
            assert!(intact.opened && intact.errors == 0, "{} is intact: {intact:?}", base.name);
            println!(
                "{}: {} structures, {} inodes, {} reads",
                base.name,
                base.regions.len(),
                intact.inodes,
                intact.reads
            );
            intact
        })
        .collect();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    std::thread::scope(|scope| {
        let worker = || {
            let mut kinds = BTreeMap::new();
            let mut patients: Vec<Patient> = bases.iter().map(Patient::new).collect();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return kinds;
                }
                let at = (seed % bases.len() as u64) as usize;
                case(&bases[at], &mut patients[at], &walks[at], seed, &mut kinds);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            let kinds = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            kinds.into_iter().for_each(|(kind, times)| *all.entry(kind).or_default() += times);
        }
    });
    println!("{count} mutations: {all:?}");
    assert!(
        ["refused", "errors", "fixed: errors"]
            .iter()
            .all(|kind| all.get(*kind).is_some_and(|times| *times > 0))
    );
}

#[test]
fn one_image() {
    let Some(path) = std::env::var_os("MEANTIME_EXT4_IMAGE") else {
        return println!("skipped: no MEANTIME_EXT4_IMAGE");
    };
    let image = std::fs::read(path).expect("the image");
    for ignore_checksums in [false, true] {
        let options = VolumeOptions { ignore_checksums, superblock: None };
        println!("{:?}", walk(&Memory::new(&image, image.len() as u64), options, None));
    }
}
