//! Extent trees.

use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Bench, Model, PLAIN};
use crate::Error;
use crate::ops::extents;
use meantime_ext4_format::MappedExtent;

#[test]
fn nobody_gets_what_is_not_to_be_had() {
    let Some(bench) = Bench::new("8M", PLAIN) else { return };
    bench.grow();
    let mut model = Model::new();
    bench.insert(&mut model, 10..20, false);
    let insert = |logical, blocks| {
        bench.edit(|handle, inode| {
            let extent = MappedExtent { logical, blocks, physical: 7000, unwritten: false };
            extents::insert(handle, inode, extent)
        })
    };
    for (logical, blocks) in [(19, 1), (10, 1), (5, 6), (0, 100), (15, 2)] {
        assert!(matches!(insert(logical, blocks), Err(Error::Invalid(_))), "{logical} {blocks}");
    }
    assert_eq!(insert(u32::MAX, 1), Err(Error::FileTooBig));
    assert!(matches!(insert(30, 5000), Err(Error::Corrupt(_))));
    assert_eq!(bench.model(), model);
    bench.image.fsck();
}

#[test]
fn trees_of_three_levels_come_and_go() {
    for (how, kind) in [("at the end", 0), ("before all", 1), ("anywhere", 2)] {
        let Some(bench) = Bench::new("48M", PLAIN) else { return };
        bench.grow();
        let mut model = Model::new();
        let count = 29_000;
        let mut at = 7919;
        for step in 0..count {
            let block = match kind {
                0 => 2 * step,
                1 => 2 * (count - step),
                _ => {
                    at = (at + 17_389) % count;
                    2 * at
                }
            };
            bench.insert(&mut model, block..block + 1, step % 3 == 0);
        }
        assert_eq!(model.len(), count as usize);
        assert_eq!(bench.model(), model, "{how}");
        let depth = bench.depth();
        assert!(depth >= if kind == 0 { 2 } else { 3 }, "{how}: {depth}");
        bench.image.fsck();
        // The blocks are removed again, in few steps.
        bench.remove(&mut model, 10_001..count, 50);
        assert_eq!(bench.model(), model);
        bench.image.fsck();
        bench.remove(&mut model, 30..u32::MAX, 50);
        assert_eq!(bench.model(), model);
        bench.image.fsck();
        bench.remove(&mut model, 7..u32::MAX, 3);
        assert_eq!((bench.depth(), bench.free_and_own().1), (0, model.len() as u64));
        assert_eq!(bench.model(), model);
        bench.image.fsck();
    }
}

#[test]
fn blocks_may_be_of_any_size() {
    for (size, bytes, count) in [("16M", "2048", 900), ("32M", "4096", 1500), ("64M", "65536", 400)]
    {
        let Some(bench) =
            Bench::new(size, &["-b", bytes, "-O", "metadata_csum,64bit,^has_journal"])
        else {
            return;
        };
        bench.grow();
        let mut model = Model::new();
        for step in 0..count {
            let block = step * 7 % count * 2;
            bench.insert(&mut model, block..block + 1, step % 2 == 0);
        }
        assert_eq!((bench.model() == model, bench.depth() > 0), (true, true));
        bench.image.fsck();
        bench.set_written(&mut model, 100..500, false);
        bench.set_written(&mut model, 300..700, true);
        bench.remove(&mut model, 207..501, 4);
        assert_eq!(bench.model(), model);
        bench.image.fsck();
        bench.remove(&mut model, 0..u32::MAX, 4);
        assert_eq!((bench.depth(), bench.free_and_own().1), (0, 0));
        bench.image.fsck();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Range<u32>, bool),
    Remove(Range<u32>, usize),
    Set(Range<u32>, bool),
    /// Every other block: many extents in one change.
    Comb(Range<u32>),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range =
        |longest: u32| (0u32..3000, 1..longest).prop_map(|(start, blocks)| start..start + blocks);
    let step = prop_oneof![
        4 => (range(60), any::<bool>()).prop_map(|(range, unwritten)| Step::Insert(range, unwritten)),
        2 => (range(400), 1usize..30).prop_map(|(range, budget)| Step::Remove(range, budget)),
        1 => (range(3000), 1usize..30).prop_map(|(range, budget)| Step::Remove(range, budget)),
        3 => (range(400), any::<bool>()).prop_map(|(range, written)| Step::Set(range, written)),
        2 => range(700).prop_map(Step::Comb),
        1 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 1..40)
}

fn run(bench: &Bench, steps: &[Step]) -> Result<(), TestCaseError> {
    bench.grow();
    let mut model = Model::new();
    let (free, own) = bench.free_and_own();
    for step in steps {
        match step.clone() {
            Step::Insert(range, unwritten) => bench.insert(&mut model, range, unwritten),
            Step::Remove(range, budget) => bench.remove(&mut model, range, budget),
            Step::Set(range, written) => bench.set_written(&mut model, range, written),
            Step::Comb(range) => {
                for block in range.step_by(2) {
                    bench.insert(&mut model, block..block + 1, block % 4 == 0);
                }
            }
            Step::Commit => bench.image.commit(),
        }
        prop_assert_eq!(bench.model(), model.clone(), "{:?}", step);
        let now = bench.free_and_own();
        prop_assert_eq!(now.0 + now.1, free + own);
        prop_assert!(now.1 >= model.len() as u64);
    }
    bench.image.fsck();
    bench.remove(&mut model, 0..u32::MAX, 20);
    prop_assert_eq!((bench.free_and_own(), bench.depth()), ((free, own), 0));
    bench.image.fsck();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_what_was_made_of_it(
        steps in steps(),
        (size, bytes, features) in prop::sample::select(vec![
            ("16M", "1024", "metadata_csum,64bit"),
            ("16M", "1024", "^metadata_csum,^64bit"),
            ("16M", "1024", "metadata_csum,metadata_csum_seed,^64bit,^flex_bg"),
            ("32M", "2048", "metadata_csum,64bit"),
            ("64M", "4096", "metadata_csum,^64bit"),
        ]),
    ) {
        let Some(bench) = Bench::new(size, &["-b", bytes, "-O", features]) else { return Ok(()) };
        run(&bench, &steps)?;
    }
}
