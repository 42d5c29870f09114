//! Whole exchanges of a host with a controller, right and wrong ones.

use meantime_nvme_auth::{
    AuthError, ControllerExchange, Failure, Group, Hash, HostExchange, Key, Keys, Names, Offer,
    Outcome, Step,
};

/// A key of each form.
const KEYS: [&str; 3] = [
    "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
];

fn keys(host: &str, controller: Option<&str>) -> Keys {
    let controller = controller.map(|key| Key::parse(key).unwrap());
    Keys { host: Key::parse(host).unwrap(), controller }
}

fn names() -> Names {
    Names { host: "nqn.host".to_owned(), subsystem: "nqn.subsystem".to_owned() }
}

fn only(hash: Hash, group: Group) -> Offer {
    Offer { hashes: vec![hash], groups: vec![group] }
}

/// Both sides, and what goes between them through `change`, by its number.
fn exchange(
    host: Keys,
    controller: Keys,
    [of_host, of_controller]: [Offer; 2],
    change: impl Fn(usize, &mut Vec<u8>),
) -> (Result<(), AuthError>, Result<(), AuthError>, Outcome) {
    let mut host = HostExchange::new(host, names(), of_host, 7).unwrap();
    let mut controller = ControllerExchange::new(controller, names(), of_controller);
    let mut message = host.negotiate();
    for number in 0.. {
        assert!(number < 4, "it does not end");
        change(2 * number, &mut message);
        if let Err(error) = controller.take(&message) {
            let told = controller.message().map(|told| host.take(&told));
            let told = told.map_or(Ok(()), |told| told.map(drop));
            return (told, Err(error), controller.outcome());
        }
        let Some(mut answer) = controller.message() else {
            return (Ok(()), Ok(()), controller.outcome());
        };
        change(2 * number + 1, &mut answer);
        match host.take(&answer) {
            Ok(Step::Send(next) | Step::Done(Some(next))) => message = next,
            Ok(Step::Done(None)) => return (Ok(()), Ok(()), controller.outcome()),
            Err(error) => {
                let told = host.failure(&error).map_or(Ok(()), |told| controller.take(&told));
                return (Err(error), told, controller.outcome());
            }
        }
    }
    unreachable!()
}

#[test]
fn both_sides_agree_with_each_hash_and_group() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            for key in KEYS {
                for controller in [None, Some(KEYS[1])] {
                    let offers = [only(hash, group), only(hash, group)];
                    let both = || keys(key, controller);
                    let ended = exchange(both(), both(), offers, |_, _| ());
                    assert_eq!(
                        ended,
                        (Ok(()), Ok(()), Outcome::Authenticated),
                        "{hash:?} {group:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_long_groups_work_too() {
    for group in [Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192] {
        let offers = [only(Hash::Sha256, group), only(Hash::Sha256, group)];
        let both = || keys(KEYS[0], Some(KEYS[1]));
        let ended = exchange(both(), both(), offers, |_, _| ());
        assert_eq!(ended, (Ok(()), Ok(()), Outcome::Authenticated), "{group:?}");
    }
}

#[test]
fn who_has_another_key_is_refused_by_the_other_side() {
    let offers = || [Offer::default(), Offer::default()];
    let ended = exchange(keys(KEYS[0], None), keys(KEYS[1], None), offers(), |_, _| ());
    let told = Err(AuthError::Ended(Failure::Failed));
    assert_eq!(ended, (told, Err(AuthError::WrongResponse), Outcome::Failed));
    // The host's key is right, and the controller's is not.
    let (host, controller) = (keys(KEYS[0], Some(KEYS[1])), keys(KEYS[0], Some(KEYS[2])));
    let ended = exchange(host, controller, offers(), |_, _| ());
    let told = Err(AuthError::Ended(Failure::Failed));
    assert_eq!(ended, (Err(AuthError::WrongResponse), told, Outcome::Failed));
    // The controller has none to prove.
    let (host, controller) = (keys(KEYS[0], Some(KEYS[1])), keys(KEYS[0], None));
    let (of_host, of_controller, outcome) = exchange(host, controller, offers(), |_, _| ());
    assert!(of_host.is_err() && matches!(of_controller, Err(AuthError::Unusable(_))));
    assert_eq!(outcome, Outcome::Failed);
}

#[test]
fn algorithms_without_a_common_one_are_refused() {
    let pairs = [
        [only(Hash::Sha256, Group::Null), only(Hash::Sha512, Group::Null)],
        [only(Hash::Sha256, Group::Null), only(Hash::Sha256, Group::Ffdhe2048)],
    ];
    for offers in pairs {
        let ended = exchange(keys(KEYS[0], None), keys(KEYS[0], None), offers, |_, _| ());
        assert!(matches!(ended.1, Err(AuthError::Unusable(_))), "{ended:?}");
        assert_eq!(ended.2, Outcome::Failed);
    }
}

/// Somebody between the two offers less than the host, or chooses what it did not offer.
#[test]
fn a_downgrade_is_noticed() {
    let strong = || Offer { hashes: vec![Hash::Sha512], groups: vec![Group::Ffdhe2048] };
    let ended = exchange(
        keys(KEYS[0], None),
        keys(KEYS[0], None),
        [strong(), Offer::default()],
        |number, message| {
            if number == 0 {
                // One hash and one group: SHA-256 and none.
                (message[12], message[12 + 30]) = (1, 0);
            }
        },
    );
    assert!(matches!(ended.0, Err(AuthError::Unusable(_))), "{ended:?}");
    assert_eq!(ended.2, Outcome::Failed);
}

/// Each changed byte that is not reserved ends the exchange, and none is authenticated.
#[test]
fn no_changed_message_leads_to_success() {
    let both = || keys(KEYS[1], Some(KEYS[2]));
    let offer = || only(Hash::Sha256, Group::Null);
    // The lengths of the messages, and what of each is reserved, or says what is in a list.
    let messages = [(72, vec![]), (48, vec![2, 3, 7]), (80, vec![2, 3, 7, 9]), (48, vec![])];
    for (number, (len, reserved)) in messages.into_iter().enumerate() {
        let free: Vec<usize> = match number {
            // Reserved, beyond the lists' lengths, or how many protocols follow the first.
            0 => [2, 3, 7, 9].into_iter().chain(13..42).chain(43..72).collect(),
            3 => [2, 3, 7].into_iter().chain(9..16).collect(),
            _ => reserved,
        };
        for at in (0..len).filter(|at| !free.contains(at)) {
            let ended = exchange(both(), both(), [offer(), offer()], |of, message| {
                if of == number {
                    assert_eq!(message.len(), len, "message {number}");
                    message[at] ^= 0x80;
                }
            });
            let is_failed = ended.0.is_err() || ended.1.is_err();
            // Any value but 0 says that the host's challenge is there.
            let is_flag = (number, at) == (2, 8) || (number, at) == (3, 8);
            assert!(is_failed || is_flag, "message {number}, byte {at}: {ended:?}");
        }
    }
}

/// A recorded reply does not answer another challenge.
#[test]
fn a_replayed_reply_is_refused() {
    let offer = || only(Hash::Sha256, Group::Null);
    let mut host = HostExchange::new(keys(KEYS[0], None), names(), offer(), 7).unwrap();
    let controller = || ControllerExchange::new(keys(KEYS[0], None), names(), offer());
    let (mut first, mut second) = (controller(), controller());
    let negotiate = host.negotiate();
    first.take(&negotiate).unwrap();
    let Step::Send(reply) = host.take(&first.message().unwrap()).unwrap() else { panic!() };
    first.take(&reply).unwrap();
    assert_eq!(first.outcome(), Outcome::Authenticated);
    second.take(&negotiate).unwrap();
    second.message().unwrap();
    assert_eq!(second.take(&reply), Err(AuthError::WrongResponse));
    // Nor is it taken twice.
    assert!(first.message().is_some());
    assert!(first.take(&reply).is_err());
    assert_eq!(first.outcome(), Outcome::Failed);
}

#[test]
fn messages_out_of_turn_end_the_exchange() {
    let offer = || only(Hash::Sha256, Group::Null);
    let host = HostExchange::new(keys(KEYS[0], None), names(), offer(), 7).unwrap();
    let negotiate = host.negotiate();
    let mut controller = ControllerExchange::new(keys(KEYS[0], None), names(), offer());
    controller.take(&negotiate).unwrap();
    // The challenge was not fetched.
    assert!(matches!(controller.take(&negotiate), Err(AuthError::Message(_))));
    assert_eq!(controller.outcome(), Outcome::Failed);
    let mut host = HostExchange::new(keys(KEYS[0], None), names(), offer(), 7).unwrap();
    assert!(matches!(host.take(&negotiate), Err(AuthError::Message(_))));
    assert!(matches!(host.take(&[]), Err(AuthError::Message(_))));
}
