use super::*;

#[test]
fn groups_keep_the_mean() {
    let samples: Vec<u32> = (0..64).map(|n| 1_000 + 10 * n).collect();
    let lateness = Lateness::of(&samples);
    assert_eq!(lateness.groups[0], 1_035.0);
    let mean = lateness.groups.iter().sum::<f32>() / GROUPS as f32;
    assert_eq!(mean, 1_315.0);
}

#[test]
fn few_samples_stand_for_several_groups() {
    assert_eq!(Lateness::of(&[7]).groups, [7.0; GROUPS]);
    assert_eq!(Lateness::of(&[2, 1]).groups, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
}

#[test]
fn being_preempted_is_not_waking_late() {
    let mut samples = vec![1_000; 63];
    samples.push(3_000_000);
    let lateness = Lateness::of(&samples);
    assert_eq!(lateness.groups[7], (7.0 * 1_000.0 + 4_000.0) / 8.0);
}

#[test]
fn lengths_are_told_apart_and_kept_current() {
    assert_eq!([0, 8_000, 8_001, 32_000, 128_000, 1 << 40].map(length_of), [0, 0, 1, 1, 2, 3]);
    let mut wake = WakeCost::new(SleepCosts::of(&[1_000], 500, 1_000));
    for _ in 0..KEPT {
        wake.record(Wake { slept_ns: 20_000, late_ns: 5_000, cpu_ns: 0 });
    }
    assert_eq!(wake.groups(20_000), &[5_000.0; GROUPS]);
    assert_eq!(wake.groups(2_000), &[1_000.0; GROUPS]);
}

/// By hand: a moment in which sleeps are dear; then they are not made, but for four probes of
/// weight 8, which are half of what is remembered, and a sixteenth of the CPU time is left.
#[test]
fn a_bad_moment_is_soon_forgotten() {
    let mut wake = WakeCost::new(SleepCosts::of(&[13_000], 12_000, 1_000));
    for _ in 0..KEPT {
        wake.record(Wake { slept_ns: 60_000, late_ns: 50_000, cpu_ns: 60_000 });
    }
    assert!(wake.cpu_ns() > 55_000.0 && wake.groups(60_000)[0] == 50_000.0);
    wake.pays(1);
    let mut probes = Vec::new();
    for n in 1..1_000 {
        let now_ns = n * 1_000_000;
        if wake.is_due(now_ns, 40_000) {
            probes.push(n);
            wake.record(Wake { slept_ns: 40_000, late_ns: 13_000, cpu_ns: 12_000 });
        }
        if probes.len() == 4 {
            break;
        }
    }
    // After 8, 16, 32 and 64 I/Os of a ms.
    assert_eq!(probes, [9, 26, 59, 124]);
    assert!(wake.cpu_ns() < 16_000.0);
    assert_eq!(wake.groups(60_000)[3], 13_000.0);
    // In the long run seldom.
    let seldom = (124..3_000).filter(|n| wake.is_due(n * 1_000_000, 40_000)).count();
    assert!((18..=23).contains(&seldom), "{seldom}");
}

#[test]
fn interrupts_are_as_late_as_half_of_them() {
    let mut wake = WakeCost::new(SleepCosts::of(&[1_000], 500, 13_000));
    let seen_ns = |wake: &WakeCost| wake.interrupt_late_ns(80_000).1;
    for n in 0..3_000u32 {
        // One in ten finds its CPU taken.
        wake.interrupted(80_000, if n % 10 == 0 { 3e6 } else { 33_000.0 });
    }
    assert!((30_000.0..36_000.0).contains(&seen_ns(&wake)));
    // The decision after the last one counts as one with interrupts.
    for _ in 0..1_000 {
        wake.forget_interrupts();
    }
    assert!((seen_ns(&wake) - 13_000.0).abs() < 10.0);
}

/// Signals are 30 µs late, and 3 were measured. By hand: an I/O of 80 ± 5 µs is concluded to take
/// longer by what is missing, so all that are seen take less, until about that is found.
#[test]
fn signals_that_are_later_than_measured_are_found() {
    let mut wake = WakeCost::new(SleepCosts::of(&[13_000], 500, 3_000));
    assert_eq!(wake.signalled_late_ns(80_000), 3_000.0);
    for n in 0..400 {
        let missing_ns = 30_000.0 - wake.signalled_late_ns(80_000);
        let seen_ns = 80_000.0 + [-5_000.0, -2_000.0, 0.0, 2_000.0, 5_000.0][n % 5];
        wake.signals_are(seen_ns < 80_000.0 + missing_ns, 80_000, 5_000.0);
    }
    let late_ns = wake.signalled_late_ns(80_000);
    assert!((26_000.0..34_000.0).contains(&late_ns), "{late_ns}");
}

#[test]
fn this_machine_has_costs() {
    let costs = SleepCosts::of_this_machine();
    assert!(costs.late_ns.iter().all(|late| !late.is_empty()));
    assert!(costs.cpu_ns > 0);
}
