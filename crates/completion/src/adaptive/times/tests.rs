use super::*;

#[test]
fn bins_rise_and_are_narrow() {
    let mut last = 0;
    for ns in (1..30_000_000u64).step_by(97) {
        let bin = bin_of(ns);
        assert!(bin >= last && bin < BINS);
        last = bin;
    }
    assert_eq!(bin_of(256), 0);
    assert_eq!(bin_of(512), BINS_PER_OCTAVE);
    assert_eq!(bin_of(u64::MAX), BINS - 1);
    assert_eq!(bin_of(10_000), bin_of(10_020));
    assert_ne!(bin_of(10_000), bin_of(10_500));
}

#[test]
fn a_constant_is_one_point_exactly_there() {
    let mut times = Times::default();
    (0..1_000).for_each(|_| times.exactly(10_037));
    let support = times.support();
    assert_eq!(support.count, 1);
    assert!((support.ns[0] - 10_037.0).abs() < 1.0 && (support.mass[0] - 1.0).abs() < 1e-5);
}

/// By hand: 10, 20, 30 µs seen exactly, and one that took at most 25. From above: 30 is one of
/// four, 1/4. The upper limit leaves the count below 25; of the two left 20 is one, and gets
/// half of the rest, 3/8; 10 gets the other half. So the upper limit counts as half a 20 and
/// half a 10.
#[test]
fn an_upper_limit_counts_as_those_below_it() {
    let mut times = Times::default();
    // Weights differ by 0.4 % per observation: the figures are good to 2 %.
    times.exactly(10_000);
    times.exactly(20_000);
    times.exactly(30_000);
    times.at_most(25_000);
    let support = times.support();
    let masses: Vec<f32> = support.points().map(|(_, mass)| mass).collect();
    let expected = [0.375, 0.375, 0.25];
    for (mass, expected) in masses.iter().zip(expected) {
        assert!((mass - expected).abs() < 0.01, "{masses:?}");
    }
}

#[test]
fn oversleeps_do_not_inflate() {
    let mut times = Times::default();
    (0..20).for_each(|_| times.exactly(10_000));
    let before = times.support().mean_ns();
    (0..2_000)
        .for_each(|n| if n % 32 == 0 { times.exactly(10_000) } else { times.at_most(25_000) });
    let after = times.support().mean_ns();
    assert!((after - before).abs() < 1.0, "{before} {after}");
}

#[test]
fn a_change_takes_over_after_forgetting() {
    let mut times = Times::default();
    (0..1_000).for_each(|_| times.exactly(10_000));
    times.forget();
    (0..3).for_each(|_| times.exactly(60_000));
    let mean_ns = times.support().mean_ns();
    assert!(mean_ns > 58_000.0, "{mean_ns}");
    assert!(times.count() < 5.0);
}

#[test]
fn wide_distributions_keep_their_mean_in_few_points() {
    let mut times = Times::default();
    let mut sum = 0;
    for n in 0..256u64 {
        let ns = 1_000 + n * n * 150;
        times.exactly(ns);
        sum += ns;
    }
    let support = times.support();
    assert!(support.count <= MAX_POINTS);
    // The newest weigh more than the oldest.
    let mean_ns = support.mean_ns();
    assert!(mean_ns > sum as f32 / 256.0 && mean_ns < 1.5 * sum as f32 / 256.0);
    assert!((support.points().map(|(_, mass)| mass).sum::<f32>() - 1.0).abs() < 1e-3);
    assert!(support.points().zip(support.points().skip(1)).all(|(a, b)| a.0 < b.0));
}

#[test]
fn parts_of_a_distribution() {
    let support = Support::of(&[(10.0, 0.5), (20.0, 0.25), (100.0, 0.25)]);
    assert_eq!(support.mean_below_ns(5.0), None);
    assert_eq!(support.mean_below_ns(15.0), Some(10.0));
    assert!((support.mean_below_ns(30.0).unwrap() - 40.0 / 3.0).abs() < 1e-4);
    assert_eq!(
        [0.0, 0.66, 0.67, 1.0].map(|draw| support.draw_between_ns(0.0, 30.0, draw)),
        [10.0, 10.0, 20.0, 20.0].map(Some)
    );
    assert_eq!(support.draw_between_ns(30.0, 120.0, 0.3), Some(100.0));
    assert_eq!(support.draw_between_ns(30.0, 90.0, 0.3), None);
    assert_eq!(support.quantile_ns(0.5), 10.0);
    assert_eq!(support.quantile_ns(0.51), 20.0);
    assert_eq!(support.quantile_ns(1.0), 100.0);
}
