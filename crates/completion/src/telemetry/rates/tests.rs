use super::*;

fn queue(id: u64, figures: QueueFigures) -> QueueState {
    QueueState { id, device: "mem:1M".into(), thread: "t".into(), policy: "poll".into(), figures }
}

fn figures(thread_id: u64, published_ms: u64, ended: u64, cpu_ms: u64) -> QueueFigures {
    QueueFigures {
        ended,
        thread_id,
        thread_cpu_ns: cpu_ms * 1_000_000,
        published_ns: published_ms * 1_000_000,
        ..QueueFigures::default()
    }
}

fn snapshot(now_ms: u64, queues: Vec<QueueState>) -> Snapshot {
    Snapshot { now_ns: now_ms * 1_000_000, queues }
}

/// By hand: 500 I/Os, 100 sleeps, 5 of them too long, 20 timed at 10 µs each, within half a
/// second, of which 100 ms CPU.
#[test]
fn rates_are_those_of_the_interval() {
    let first = QueueFigures {
        sleeps: 10,
        oversleeps: 5,
        timed: 2,
        timed_sum_ns: 99_999,
        ..figures(7, 980, 1_000, 40)
    };
    let second = QueueFigures {
        sleeps: 110,
        oversleeps: 10,
        timed: 22,
        timed_sum_ns: 299_999,
        fallbacks: 3,
        ..figures(7, 1_480, 1_500, 140)
    };
    let before = snapshot(1_000, vec![queue(1, first)]);
    let after = snapshot(1_500, vec![queue(1, second)]);
    let expected = QueueRates {
        id: 1,
        iops: 1_000.0,
        mean_ns: Some(10_000.0),
        cpu_percent: Some(20.0),
        cpu_per_io_ns: Some(200_000.0),
        sleep_percent: Some(20.0),
        oversleep_percent: Some(5.0),
        fallbacks_per_s: 6.0,
    };
    assert_eq!(rates(&before, &after), [expected]);
}

/// By hand: one thread, two channels in turn; the first was used up to 1.1 s, the second after
/// that. 400 + 600 I/Os in 0.5 s, of which the thread ran 0.25 s.
#[test]
fn a_threads_cpu_is_shared_by_its_channels() {
    let before =
        snapshot(1_000, vec![queue(1, figures(7, 990, 100, 50)), queue(2, figures(7, 500, 0, 20))]);
    let after = snapshot(
        1_500,
        vec![queue(1, figures(7, 1_100, 500, 90)), queue(2, figures(7, 1_490, 600, 300))],
    );
    let rates = rates(&before, &after);
    for (rate, iops) in rates.iter().zip([800.0, 1_200.0]) {
        assert_eq!((rate.iops, rate.cpu_percent), (iops, Some(50.0)));
        assert_eq!(rate.cpu_per_io_ns, Some(250_000.0));
    }
}

#[test]
fn idle_time_counts_and_an_idle_channel_has_no_rates() {
    // Idle throughout: nothing was published.
    let idle = snapshot(1_000, vec![queue(1, figures(7, 100, 50, 9))]);
    let later = Snapshot { now_ns: 2_000_000_000, ..idle.clone() };
    let rate = rates(&idle, &later)[0];
    assert_eq!(
        (rate.iops, rate.cpu_percent, rate.cpu_per_io_ns, rate.mean_ns),
        (0.0, Some(0.0), None, None)
    );
    // Idle until the snapshot, then 100 I/Os until 2 s: not averaged over the time since 0.1 s.
    let busy = snapshot(2_000, vec![queue(1, figures(7, 2_000, 150, 509))]);
    let rate = rates(&idle, &busy)[0];
    assert_eq!((rate.iops, rate.cpu_percent), (100.0, Some(50.0)));
    // 50 I/Os up to 1.1 s, and nothing until 2 s.
    let start = snapshot(1_000, vec![queue(1, figures(7, 1_000, 50, 9))]);
    let ended = snapshot(2_000, vec![queue(1, figures(7, 1_100, 100, 59))]);
    assert_eq!(rates(&start, &ended)[0].iops, 50.0);
    // Never used; and not in the earlier snapshot.
    let new = snapshot(2_000, vec![queue(2, figures(0, 1_900, 0, 0))]);
    assert_eq!(rates(&start, &new), [QueueRates { id: 2, ..QueueRates::default() }]);
}
