use super::*;

fn mine(telemetry: &Telemetry) -> Option<Arc<ChannelControl>> {
    channel(telemetry.control().id())
}

#[test]
fn a_channel_is_listed_until_it_is_dropped() {
    let first = Telemetry::new("mem:1M", Policy::Poll, 5);
    let second = Telemetry::new("mem:2M", Policy::HybridHalfMean, 6);
    assert!(second.control().id() > first.control().id());
    let seen = mine(&second).unwrap();
    assert_eq!((seen.device(), seen.state().policy.as_str()), ("mem:2M", "hybrid"));
    assert_eq!(seen.state().figures.published_ns, 6);
    drop(second);
    assert!(seen.is_closed());
    assert!(
        channels().iter().all(|control| control.id() != seen.id()),
        "although a reader still has it"
    );
    assert!(mine(&first).is_some());
    assert_eq!(seen.ask(Policy::Poll).unwrap_err(), AskError::Closed { id: seen.id() });
}

#[test]
fn what_is_published_is_seen_with_its_thread() {
    let mut telemetry = Telemetry::new("mem:1M", Policy::Poll, 0);
    assert!(!telemetry.is_due(PUBLISH_INTERVAL_NS - 1) && telemetry.is_due(PUBLISH_INTERVAL_NS));
    let publisher = std::thread::Builder::new().name("publisher".into());
    let published = publisher.spawn(move || {
        let figures = QueueFigures { ended: 7, sleeps: 3, ..QueueFigures::default() };
        telemetry.publish(1_000, Policy::HybridFixed(2_000), &figures);
        let state = telemetry.control().state();
        (telemetry, state)
    });
    let (telemetry, state) = published.unwrap().join().unwrap();
    assert_eq!(
        (state.figures.ended, state.figures.sleeps, state.figures.published_ns),
        (7, 3, 1_000)
    );
    assert_eq!((state.policy.as_str(), state.thread.as_str()), ("hybrid=2us", "publisher"));
    assert!(state.figures.thread_id > 0);
    assert!(
        !telemetry.is_due(PUBLISH_INTERVAL_NS + 999)
            && telemetry.is_due(PUBLISH_INTERVAL_NS + 1_000)
    );
}

#[test]
fn a_change_is_taken_and_answered() {
    let mut telemetry = Telemetry::new("mem:1M", Policy::Poll, 0);
    let control = Arc::clone(telemetry.control());
    assert_eq!(telemetry.take_request(), None);
    let asked = control.ask(Policy::HybridHalfMean).unwrap();
    assert_eq!(control.ask(Policy::Poll).unwrap_err(), AskError::Busy { id: control.id() });
    assert_eq!(asked.answer(), None);
    assert_eq!(telemetry.take_request(), Some(Policy::HybridHalfMean));
    telemetry.answer(Ok::<(), &str>(()));
    assert_eq!(asked.wait(Duration::ZERO), Ok(()));

    let asked = control.ask(Policy::Interrupt).unwrap();
    assert_eq!(telemetry.take_request(), Some(Policy::Interrupt));
    telemetry.answer(Err("it has no vector"));
    assert_eq!(asked.wait(Duration::ZERO), Err(AskError::Refused("it has no vector".into())));
}

#[test]
fn an_idle_channel_loses_the_request_and_a_closed_one_says_so() {
    let mut telemetry = Telemetry::new("mem:1M", Policy::Poll, 0);
    let control = Arc::clone(telemetry.control());
    let asked = control.ask(Policy::HybridHalfMean).unwrap();
    assert_eq!(asked.wait(Duration::from_millis(2)), Err(AskError::Idle { id: control.id() }));
    assert_eq!(telemetry.take_request(), None, "withdrawn: nothing changes later, unheard");

    let asked = control.ask(Policy::HybridHalfMean).unwrap();
    assert_eq!(telemetry.take_request(), Some(Policy::HybridHalfMean));
    assert_eq!(asked.wait(Duration::ZERO), Err(AskError::Unanswered { id: control.id() }));
    telemetry.answer(Ok::<(), &str>(()));

    let asked = control.ask(Policy::HybridHalfMean).unwrap();
    drop(telemetry);
    assert_eq!(asked.wait(Duration::ZERO), Err(AskError::Closed { id: control.id() }));
}

/// Every published state has one number throughout, including its text.
#[test]
fn a_state_is_never_torn() {
    let mut telemetry = Telemetry::new("mem:1M", Policy::HybridFixed(1), 0);
    let control = Arc::clone(telemetry.control());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !control.is_closed() {
                    let QueueState { policy, figures, .. } = control.state();
                    let number = figures.ended;
                    assert_eq!((figures.waits, figures.expected_low_ns), (number, number));
                    assert!(
                        number == 0 || policy == format!("hybrid={number}ns"),
                        "{policy}: {number}"
                    );
                }
            });
        }
        for number in (1..20_000u32).filter(|number| number % 1_000 != 0) {
            let figures = QueueFigures::from_values([number.into(); QueueFigures::NAMES.len()]);
            telemetry.publish(number.into(), Policy::HybridFixed(number), &figures);
        }
        drop(telemetry);
    });
}

#[test]
fn many_askers_and_one_channel_neither_lose_nor_mix_answers() {
    let mut telemetry = Telemetry::new("mem:1M", Policy::Poll, 0);
    let control = Arc::clone(telemetry.control());
    std::thread::scope(|scope| {
        let askers: Vec<_> = (1..=3u32)
            .map(|asker| {
                let control = &control;
                scope.spawn(move || {
                    let mut answered = 0;
                    for n in 0..500 {
                        let ns = asker * 10_000_001 + n;
                        let asked = loop {
                            match control.ask(Policy::HybridFixed(ns)) {
                                Err(AskError::Busy { .. }) => std::thread::yield_now(),
                                other => break other.unwrap(),
                            }
                        };
                        // Some requests are abandoned midway.
                        if n % 5 == 0 {
                            continue;
                        }
                        while asked.answer().is_none() {
                            std::thread::yield_now();
                        }
                        let error = asked.answer().unwrap().unwrap_err();
                        assert_eq!(error, AskError::Refused(Policy::HybridFixed(ns).to_string()));
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        while !askers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            if let Some(policy) = telemetry.take_request() {
                telemetry.answer(Err(policy));
            }
        }
        assert_eq!(askers.into_iter().map(|asker| asker.join().unwrap()).sum::<u32>(), 3 * 400);
    });
}
