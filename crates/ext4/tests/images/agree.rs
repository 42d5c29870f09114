//! Generated images, read by this crate and by the kernel: names, metadata, attributes, content,
//! holes and free space are equal, also if a journal has to be replayed first because the kernel
//! was stopped in the middle of its work.
//!
//! `MEANTIME_EXT4_IMAGES=240` sets the number of images and makes them larger (default: 32 small
//! ones); `MEANTIME_EXT4_SEED=n` sets the first seed, or that of a single image;
//! `MEANTIME_EXT4_KEEP=DIRECTORY` keeps the image that failed; `MEANTIME_EXT4_TREE=/usr` copies a
//! directory in and compares that. Needs root and loop devices.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::compare::{self, Comparison, Tally};
use meantime_ext4::MountError;
use meantime_testkit::lab::shape::Shape;
use meantime_testkit::lab::writer::{Amount, Writer};
use meantime_testkit::lab::{self, Lab};
use meantime_testkit::{Rng, setting};

/// How the kernel left an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Cleanly unmounted.
    Clean,
    /// The kernel was stopped as by a power failure. `true` means that it happened after the log
    /// was written.
    Stopped(bool),
    /// Copied while mounted, right after a sync.
    Copied,
}

/// Writes a tree to a new image, and returns how it was left.
fn generate(
    lab: &Lab,
    image: &Path,
    seed: u64,
    large: bool,
    rng: &mut Rng,
) -> Result<(Shape, Ending), String> {
    let shape = Shape::of(seed, rng);
    let arguments: Vec<&str> = shape.arguments.iter().map(String::as_str).collect();
    lab::make(image, shape.image_bytes, &arguments)?;
    if let Some(setting) = shape.tune(rng) {
        lab::run("tune2fs", ["-E".as_ref(), setting.as_ref(), image.as_os_str()])?;
    }
    let ending = match rng.below(6) {
        _ if !shape.may_crash => Ending::Clean,
        0 | 1 => Ending::Stopped(rng.one_in(2)),
        2 => Ending::Copied,
        _ => Ending::Clean,
    };
    // A long interval, so that unsynced changes are not committed.
    let options = if ending == Ending::Clean { "noatime" } else { "noatime,commit=300" };
    let mounted = lab.mount(image, true, options)?;
    let amount = Amount {
        steps: 50 + rng.below(if large { 400 } else { 90 }),
        names: match rng.below(4) {
            0 if large => 10_000 + rng.below(20_000),
            0 => 1500,
            _ => rng.below(300),
        },
        pieces: match rng.below(3) {
            0 if large => 2000 + rng.below(3000),
            0 => 500,
            _ => rng.below(300),
        },
    };
    let mut writer = Writer::new(rng, &shape, mounted.root());
    writer.write(amount);
    match ending {
        Ending::Clean => mounted.unmount()?,
        Ending::Stopped(flush) => {
            mounted.sync();
            // An open file without a name is an orphan, whose blocks the next mount frees.
            let orphan = std::fs::File::create(mounted.root().join("orphan")).and_then(|file| {
                std::fs::write(mounted.root().join("orphan"), [7; 10_000])?;
                std::fs::remove_file(mounted.root().join("orphan")).map(|()| file)
            });
            for _ in 0..10 + amount.steps / 4 {
                writer.step();
                writer.change();
                writer.remove();
            }
            let committed = !amount.steps.is_multiple_of(3);
            if committed {
                mounted.sync();
                (0..20).for_each(|_| writer.step());
            }
            mounted.shut_down(flush);
            drop(orphan);
            mounted.unmount()?;
        }
        Ending::Copied => {
            mounted.sync();
            for _ in 0..10 + amount.steps / 4 {
                writer.step();
                writer.change();
                writer.remove();
            }
            mounted.sync();
            let copy = image.with_extension("copy");
            lab::copy(image, &copy);
            mounted.unmount()?;
            std::fs::rename(&copy, image).map_err(|error| error.to_string())?;
        }
    }
    Ok((shape, ending))
}

/// Compares `image` with the kernel's view of it.
fn compare(lab: &Lab, image: &Path, ending: Ending, rng: &mut Rng) -> Result<Tally, String> {
    // The kernel replays a copy, because it needs to write to it.
    let oracle = image.with_extension("oracle");
    if ending != Ending::Clean {
        lab::copy(image, &oracle);
        lab.mount(&oracle, true, "")?.unmount()?;
    }
    let mounted = lab.mount(if ending == Ending::Clean { image } else { &oracle }, false, "")?;
    let before = std::fs::metadata(image)
        .and_then(|meta| meta.modified())
        .map_err(|error| error.to_string())?;
    let ours = match compare::mount(image, rng) {
        Ok(ours) => ours,
        // An image is refused by name, and nothing wrong is read.
        Err(MountError::Unsupported { unsupported, .. })
            if unsupported.what.contains("fast_commit") =>
        {
            println!("  not compared: {unsupported}");
            return Ok(Tally::default());
        }
        Err(error) => panic!("{error}"),
    };
    let recovered = ours.info().recovered;
    if ending == Ending::Clean {
        assert_eq!(recovered, None, "nothing to recover");
    }
    compare::check(&ours);
    let mut comparison = Comparison::new(&ours, mounted.root(), rng);
    comparison.usage(ending == Ending::Clean);
    comparison.tree();
    let mut tally = comparison.tally;
    tally.recovered = u64::from(recovered.is_some());
    drop(ours);
    mounted.unmount()?;
    let after = std::fs::metadata(image)
        .and_then(|meta| meta.modified())
        .map_err(|error| error.to_string())?;
    assert_eq!(before, after, "the image was written to");
    let _ = std::fs::remove_file(&oracle);
    Ok(tally)
}

fn image(lab: &Lab, seed: u64, large: bool) -> Tally {
    let mut rng = Rng::new(seed.wrapping_mul(0x1234_5678_9abc_def1) ^ 0xe4);
    let image = lab.path(&format!("{seed}.img"));
    let result = catch_unwind(AssertUnwindSafe(|| {
        let (shape, ending) = generate(lab, &image, seed, large, &mut rng).expect("an image");
        println!(
            "image {seed}: {}, {} B blocks, {} B inodes, {ending:?}",
            shape.name, shape.block_bytes, shape.inode_bytes
        );
        compare(lab, &image, ending, &mut rng).expect("the kernel takes it")
    }));
    match result {
        Ok(tally) => {
            std::fs::remove_file(&image).expect("the image is removed");
            tally
        }
        Err(panic) => {
            if let Some(keep) = std::env::var_os("MEANTIME_EXT4_KEEP") {
                let kept = PathBuf::from(keep).join(format!("{seed}.img"));
                lab::copy(&image, &kept);
                println!("kept: {}", kept.display());
            }
            let size = if large { "MEANTIME_EXT4_LARGE=1 " } else { "" };
            println!(
                "again: {size}MEANTIME_EXT4_IMAGES=1 MEANTIME_EXT4_SEED={seed} cargo test -p meantime-ext4 --test images agree"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn images_read_as_the_kernel_reads_them() {
    let lab = match Lab::new(env!("CARGO_TARGET_TMPDIR")) {
        Ok(lab) => lab,
        Err(why) => return println!("skipped: {why}"),
    };
    let count = setting("MEANTIME_EXT4_IMAGES").unwrap_or(32);
    let first = setting("MEANTIME_EXT4_SEED").unwrap_or(1);
    let large = setting("MEANTIME_EXT4_LARGE").map_or(count > 32, |large| large > 0);
    let mut tally = Tally::default();
    for seed in first..first + count {
        tally.add(image(&lab, seed, large));
    }
    println!("{tally:?}");
    // Most seeds of the default run are known to leave something to replay.
    assert!(count < 32 || tally.recovered * 10 > count, "{tally:?}");
}

#[test]
fn a_copied_tree_reads_as_the_kernel_reads_it() {
    let Some(tree) = std::env::var_os("MEANTIME_EXT4_TREE") else {
        return println!("skipped: no MEANTIME_EXT4_TREE");
    };
    let lab = Lab::new(env!("CARGO_TARGET_TMPDIR")).expect("loop mounts");
    let size = lab::run("du", ["-s".as_ref(), "-B1".as_ref(), tree.as_os_str()]).expect("its size");
    let bytes: u64 =
        size.split_whitespace().next().and_then(|size| size.parse().ok()).expect("a number");
    let image = lab.path("tree.img");
    lab::make(&image, (bytes + bytes / 4 + (256 << 20)).next_multiple_of(1 << 20), &[])
        .expect("an image");
    let mounted = lab.mount(&image, true, "noatime").expect("a mount");
    let copied = std::process::Command::new("cp").arg("-a").arg(&tree).arg(mounted.root()).status();
    assert!(copied.expect("cp").success(), "cp -a");
    mounted.unmount().expect("unmounted");
    let tally =
        compare(&lab, &image, Ending::Clean, &mut Rng::new(1)).expect("the kernel takes it");
    println!("{tally:?}");
}
