use super::Alert;
use std::cell::Cell;

#[test]
fn only_a_sleeper_is_signalled() {
    let (alert, signals, slept) = (Alert::default(), Cell::new(0), Cell::new(0));
    let raise = || alert.raise(|| signals.set(signals.get() + 1));
    raise();
    alert.sleep(|| slept.set(slept.get() + 1));
    assert_eq!((signals.get(), slept.get()), (0, 0));
    assert!(alert.take() && !alert.take());
    alert.sleep(|| {
        slept.set(slept.get() + 1);
        raise();
        raise();
    });
    assert_eq!((signals.get(), slept.get()), (1, 1));
    assert!(alert.is_raised());
}
