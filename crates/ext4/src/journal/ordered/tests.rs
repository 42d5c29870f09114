use super::*;

#[test]
fn a_transaction_waits_for_all_its_data() {
    let ordered = Arc::new(Ordered::default());
    assert!(ordered.is_done() && !ordered.is_unflushed());
    let (first, second) = (ordered.token(), ordered.token());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ordered.wait(&GroupCommit::default()));
        first.end(Ok(()));
        assert!(!ordered.is_done());
        scope.spawn(|| second.end(Ok(())));
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert!(ordered.is_unflushed());
}

#[test]
fn what_never_ends_is_an_error() {
    let ordered = Arc::new(Ordered::default());
    std::mem::forget(ordered.token());
    let waited = ordered.wait_at_most(&GroupCommit::default(), Duration::from_millis(1));
    assert!(
        matches!(&waited, Err(Error::Resources(what)) if what.contains("never ended")),
        "{waited:?}"
    );
}

#[test]
fn a_thread_that_panics_ends_its_data() {
    let ordered = Arc::new(Ordered::default());
    let token = ordered.token();
    let panicked = std::thread::spawn(move || {
        let _token = token;
        panic!("while it has a token");
    });
    assert!(panicked.join().is_err());
    assert!(matches!(ordered.wait(&GroupCommit::default()), Err(Error::Invalid(_))));
}

#[test]
fn what_was_not_written_is_an_error() {
    let ordered = Arc::new(Ordered::default());
    drop(ordered.token());
    assert!(matches!(ordered.wait(&GroupCommit::default()), Err(Error::Invalid(_))));
    let ordered = Arc::new(Ordered::default());
    ordered.token().end(Err(Error::NoAttribute));
    ordered.token().end(Err(Error::NotFound));
    assert_eq!(ordered.wait(&GroupCommit::default()), Err(Error::NoAttribute));
}
