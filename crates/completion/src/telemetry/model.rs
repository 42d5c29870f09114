//! Loom models of what a channel shares with other threads: a state is read consistently, and every
//! request gets exactly its own answer.
//!
//! Run by `make loom`.

use super::request::{Progress, RequestCell};
use super::words::SeqWords;
use loom::sync::Arc;

#[test]
fn what_is_read_is_whole() {
    loom::model(|| {
        let words = Arc::new(SeqWords::<2>::new([0, 0]));
        let writer = {
            let words = Arc::clone(&words);
            loom::thread::spawn(move || {
                words.write(&[1, 1]);
                words.write(&[2, 2]);
            })
        };
        let first = words.read();
        let second = words.read();
        assert!(first[0] == first[1] && second[0] == second[1], "{first:?} {second:?}");
        assert!(second[0] >= first[0]);
        writer.join().unwrap();
        assert_eq!(words.read(), [2, 2]);
    });
}

/// The asker checks once and leaves, whatever state the channel is in; the next asker gets the
/// answer to its own request only.
#[test]
fn an_answer_is_that_of_the_request() {
    loom::model(|| {
        let cell = Arc::new(RequestCell::new());
        let channel = {
            let cell = Arc::clone(&cell);
            loom::thread::spawn(move || {
                for _ in 0..2 {
                    if let Some(request) = cell.take() {
                        cell.answer(&request);
                    }
                }
            })
        };
        let mut refused = 0;
        for request in ["first", "second"] {
            if !cell.ask(request) {
                // Refused only while the channel handles the abandoned request.
                refused += 1;
                continue;
            }
            if let Progress::Answered(answer) = cell.progress() {
                assert_eq!(answer, Err(request.to_owned()));
            }
            let withdrawn = cell.leave();
            assert!(!withdrawn || cell.progress() == Progress::Waiting);
        }
        channel.join().unwrap();
        assert!(refused < 2);
        assert!(cell.ask("third"), "free in the end");
        assert_eq!(cell.take().as_deref(), Some("third"));
    });
}
