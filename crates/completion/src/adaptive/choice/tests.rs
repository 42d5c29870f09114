use super::*;

const MS: u64 = 1_000_000;

/// A device of `device_ns` on a machine that wakes in `late_ns`, where planned sleeps leave
/// `planned_cpu_ns` of spinning.
fn outlook(device_ns: f32, late_ns: f32, planned_cpu_ns: f32) -> Outlook {
    Outlook {
        device_ns,
        planned_cpu_ns,
        planned_late_ns: 0.0,
        sleep_cpu_ns: 2_000.0,
        interrupt_late_ns: late_ns,
        interrupt_seen_ns: late_ns,
        in_flight: 1.0,
        late_part: 0.03,
        can_plan: true,
        can_interrupt: true,
    }
}

impl WaitChoice {
    fn chooses(&self, outlook: &Outlook, can_interrupt: bool) -> Mode {
        let outlook = Outlook { can_interrupt, ..*outlook };
        self.choose(&self.candidates(0, &outlook), &outlook)
    }
}

#[test]
fn the_cheapest_within_the_latency() {
    let choice = WaitChoice::default();
    // 3 % of 100 µs are 3 µs: an interrupt 2 µs late is within, and cheaper than the spinning
    // after a sleep.
    assert_eq!(choice.chooses(&outlook(100_000.0, 2_000.0, 10_000.0), true), Mode::Interrupt);
    assert_eq!(choice.chooses(&outlook(100_000.0, 2_000.0, 10_000.0), false), Mode::Planned);
    assert_eq!(choice.chooses(&outlook(100_000.0, 4_000.0, 10_000.0), true), Mode::Planned);
    // Many in flight share the spinning: that is cheaper than an interrupt for each.
    let deep = Outlook { in_flight: 32.0, ..outlook(100_000.0, 2_000.0, 10_000.0) };
    assert_eq!(choice.chooses(&deep, true), Mode::Planned);
}

#[test]
fn a_small_saving_changes_nothing() {
    let choice = WaitChoice { mode: Mode::Poll, ..WaitChoice::default() };
    assert_eq!(choice.chooses(&outlook(10_000.0, 5_000.0, 9_100.0), true), Mode::Poll);
    assert_eq!(choice.chooses(&outlook(10_000.0, 5_000.0, 8_900.0), true), Mode::Planned);
    let choice = WaitChoice { mode: Mode::Interrupt, ..WaitChoice::default() };
    // A slight excess is kept, more is not.
    assert_eq!(choice.chooses(&outlook(100_000.0, 3_500.0, 10_000.0), true), Mode::Interrupt);
    assert_eq!(choice.chooses(&outlook(100_000.0, 3_700.0, 10_000.0), true), Mode::Planned);
}

/// A thread that gets a part of its CPU, and always wants to run.
fn with_share(share: f32) -> WaitChoice {
    let mut choice = WaitChoice { mode: Mode::Poll, ..WaitChoice::default() };
    let (mut now_ns, mut ran_ns, mut waited_ns) = (5_000 * MS, 0, 0);
    for _ in 0..200 {
        choice.sample(now_ns, ran_ns, 0, || Some(waited_ns));
        now_ns += 10 * MS;
        ran_ns += (share * 1e7) as u64;
        waited_ns += ((1.0 - share) * 1e7) as u64;
    }
    // The interrupt was tried.
    choice.interrupt_cpu_ns = 2_000.0;
    assert!(share == 1.0 || (choice.share.share() - share).abs() < 0.01);
    choice
}

#[test]
fn with_a_part_of_the_cpu_the_fastest_way_uses_little_of_it() {
    // Spinning for 20 µs takes 100; an interrupt, 15 µs late, takes 35.
    let fast = outlook(20_000.0, 15_000.0, 20_000.0);
    assert_eq!(with_share(1.0).chooses(&fast, true), Mode::Poll);
    assert_eq!(with_share(0.2).chooses(&fast, true), Mode::Interrupt);
    // Half of a CPU: 40 µs or 35.
    assert_eq!(with_share(0.5).chooses(&fast, true), Mode::Interrupt);
    assert_eq!(with_share(0.7).chooses(&fast, true), Mode::Poll);
    // A sleep that leaves little to spin is as good as with the whole CPU.
    let slow = outlook(100_000.0, 15_000.0, 18_000.0);
    assert_eq!(with_share(0.2).chooses(&slow, true), Mode::Planned);
    assert_eq!(with_share(0.1).chooses(&slow, true), Mode::Interrupt);
    // A wake-up costs more CPU than the whole wait.
    let fastest = outlook(1_500.0, 15_000.0, 1_500.0);
    assert_eq!(with_share(0.2).chooses(&fastest, true), Mode::Poll);
    // Not tried before.
    let untried = WaitChoice { interrupt_cpu_ns: 0.0, ..with_share(0.2) };
    assert_eq!(untried.chooses(&fastest, true), Mode::Interrupt);
    assert_eq!(untried.chooses(&fastest, false), Mode::Poll);
}

/// What an I/O takes by one way to wait: in all, of CPU, and waiting for the CPU, in ns.
#[derive(Clone, Copy)]
struct Took(u64, u64, u64);

/// Simulates a thread for `ms`. Its I/Os take `took` by each [`Mode`]. Returns the part of the
/// time for which each mode was chosen.
fn lives(choice: &mut WaitChoice, from_ms: u64, ms: u64, took: [Took; 3]) -> [f32; 3] {
    let mut parts = [0.0; 3];
    let (mut ran_ns, mut waited_ns) = (from_ms * MS, from_ms * MS);
    for look in from_ms / 4..(from_ms + ms) / 4 {
        let Took(io_ns, cpu_ns, wait_ns) = took[choice.mode as usize];
        let ios = 4 * MS / io_ns;
        (ran_ns, waited_ns) = (ran_ns + ios * cpu_ns, waited_ns + ios * wait_ns);
        choice.ios = ios as u32;
        parts[choice.mode as usize] += 4.0 / ms as f32;
        if choice.sample(look * 4 * MS, ran_ns, 0, || Some(waited_ns)) {
            let late_ns = 8_000.0;
            choice.decide(look * 4 * MS, &outlook(10_000.0, late_ns, 10_000.0));
        }
    }
    parts
}

#[test]
fn what_was_measured_counts_more_than_what_was_expected() {
    // The SSD's thread shares the CPU. With half of it, spinning should be the worst.
    let spun = Took(30_000, 15_000, 15_000);
    let ssds = [spun, spun, Took(45_000, 15_000, 10_000)];
    let mut choice = WaitChoice::default();
    let [poll, adaptive, interrupt] = lives(&mut choice, 8, 10_000, ssds);
    assert!(interrupt < 0.06 && poll + adaptive > 0.94, "{poll} {adaptive} {interrupt}");
    // All takes twice as long, since the program does more: nothing is tried for that alone.
    let slower = ssds.map(|Took(io, cpu, wait)| Took(2 * io, 2 * cpu, 2 * wait));
    let before = choice.changes();
    let [.., interrupt] = lives(&mut choice, 10_008, 3_000, slower);
    assert!(interrupt < 0.06 && choice.changes() - before <= 4, "{interrupt}");
    // Others want the CPU, and have it.
    let spun = Took(200_000, 20_000, 180_000);
    let others = [spun, spun, Took(40_000, 15_000, 10_000)];
    let [.., interrupt] = lives(&mut choice, 13_008, 5_000, others);
    assert!(interrupt > 0.85, "{interrupt}");
    // They are gone: spinning is tried again.
    let [.., interrupt] = lives(&mut choice, 18_008, 100_000, ssds);
    assert!(interrupt < 0.6, "{interrupt}");
}

#[test]
fn shows_why() {
    let mut choice = with_share(0.2);
    let fast = outlook(20_000.0, 15_000.0, 20_000.0);
    choice.decide(9_000 * MS, &fast);
    let mut figures = QueueFigures::default();
    choice.show(choice.mode, &mut figures);
    assert_eq!((figures.way, figures.way_since_ns), (3, 9_000 * MS));
    assert!((198..=202).contains(&figures.cpu_share_permille));
    // Spinning for 20 µs takes 100, an interrupt 35.
    assert!((98_000..102_000).contains(&figures.poll_ns), "{figures:?}");
    assert_eq!((figures.interrupt_ns, figures.interrupt_cpu_ns), (35_000, 2_000));
    let mut none = QueueFigures::default();
    choice.decide(9_100 * MS, &Outlook { can_interrupt: false, can_plan: false, ..fast });
    choice.show(choice.mode, &mut none);
    assert_eq!((none.interrupt_ns, none.planned_ns, none.interrupt_cpu_ns), (0, 0, 0));
}

#[test]
fn looks_every_few_ms_and_decides_less_often() {
    let mut choice = WaitChoice::default();
    let (mut looks, mut decisions) = (0, 0);
    for us in 1..5_000_000u64 {
        let now_ns = 7_000_000_000 + us * 1_000;
        if choice.is_due(now_ns) {
            looks += 1;
            if choice.sample(now_ns, us * 900, 0, || Some(us)) {
                decisions += 1;
                let usual = outlook(100_000.0, 2_000.0, 10_000.0);
                choice.decide(now_ns, &Outlook { can_interrupt: decisions % 2 == 0, ..usual });
            }
        }
    }
    assert!((1_240..=1_250).contains(&looks), "{looks}");
    // Often at first.
    assert!((8..=16).contains(&decisions) && choice.changes() >= 3, "{decisions}");
}
