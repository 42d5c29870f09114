//! The messages of DH-HMAC-CHAP, from a host that means ill to a controller and the other way. No
//! message panics, an exchange ends after a bounded number of them, and nobody is authenticated
//! without the key.

use std::sync::LazyLock;

use meantime_nvme_auth::{
    ControllerExchange, Group, Hash, HostExchange, Key, Keys, Names, Offer, Outcome, Step,
};

use crate::Input;

/// The messages of one exchange, each way, with some to spare.
const MESSAGES: usize = 8;

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let text = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let key = || Key::parse(text).expect("a key");
    Keys { host: key(), controller: Some(key()) }
});

fn names() -> Names {
    Names { host: "nqn.host".to_owned(), subsystem: "nqn.subsystem".to_owned() }
}

/// The next message: a length in two bytes, and that many.
fn message(input: &mut Input<'_>) -> Vec<u8> {
    let len = usize::from(input.u8()) | usize::from(input.u8() & 7) << 8;
    (0..len).map(|_| input.u8()).collect()
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    // Without a group: the others only take longer.
    let offer = Offer { hashes: Hash::ALL.to_vec(), groups: vec![Group::Null] };
    if input.u8() & 1 == 0 {
        let mut controller = ControllerExchange::new(KEYS.clone(), names(), offer);
        for _ in 0..MESSAGES {
            let taken = controller.take(&message(&mut input));
            let told = controller.message();
            assert!(told.is_none_or(|told| told.len() <= 4096));
            assert_ne!(controller.outcome(), Outcome::Authenticated, "without the key");
            assert_eq!(taken.is_err(), controller.outcome() == Outcome::Failed);
        }
        assert_eq!(controller.outcome(), Outcome::Failed, "it has to end");
    } else {
        let host = HostExchange::new(KEYS.clone(), names(), offer, 7);
        let Ok(mut host) = host else { return };
        let mut sent = 0;
        for _ in 0..MESSAGES {
            match host.take(&message(&mut input)) {
                Ok(Step::Send(_)) => sent += 1,
                Ok(Step::Done(_)) => panic!("a controller without the key is believed"),
                Err(error) => drop(host.failure(&error)),
            }
        }
        assert!(sent <= 1, "it answers one challenge");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Key::parse(text);
    }
}
