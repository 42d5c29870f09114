use super::*;

const SMALL: ExchangeOptions = ExchangeOptions {
    sockets: 1,
    request_bytes: 72,
    header_bytes: 24,
    medium_bytes: 1 << 20,
    server_cpu: None,
};

/// Checks that a burst's answers have the numbers and the payloads that were asked for. Returns how
/// many came.
fn check(exchange: &mut Exchange, payload_bytes: usize) -> usize {
    let header_bytes = exchange.options.header_bytes;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut numbers = Vec::new();
    for line in &mut exchange.lines {
        assert!(line.seen.len().is_multiple_of(header_bytes + payload_bytes));
        let before = numbers.len();
        for answer in line.seen.chunks(header_bytes + payload_bytes) {
            numbers.push(word(answer));
            let payload = &answer[header_bytes..];
            let first = word(payload);
            assert!(first.is_multiple_of(payload_bytes as u64) && first < SMALL.medium_bytes);
            assert!((first..).step_by(8).zip(payload.chunks(8)).all(|(at, got)| word(got) == at));
        }
        assert!(numbers[before..].is_sorted(), "a socket answers in order");
        line.seen.clear();
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

fn plausible(burst: &Burst) {
    // (Of many in flight, most began before the burst: they may take longer than it does.)
    assert!(burst.median_ns > 0 && burst.wall_ns > 0 && burst.rate() > 0.0, "{burst:?}");
    assert!(burst.cpu_ns_each().iter().all(|ns| *ns > 0.0), "{burst:?}");
}

#[test]
fn one_at_a_time() {
    let mut exchange = Exchange::start(&SMALL).unwrap();
    for payload_bytes in [4096, 512] {
        let load = Load { payload_bytes, outstanding: 1 };
        let burst = exchange.burst(&load, Length::Exchanges(100)).unwrap();
        assert_eq!(burst.exchanges, 100);
        plausible(&burst);
        assert!(burst.median_ns <= burst.wall_ns, "{burst:?}");
        assert_eq!(check(&mut exchange, payload_bytes), 110);
    }
}

#[test]
fn several_on_several_sockets() {
    let options = ExchangeOptions { sockets: 4, ..SMALL };
    let mut exchange = Exchange::start(&options).unwrap();
    for (payload_bytes, outstanding) in [(4096, 8), (512, 1), (65_536, 16), (8, OUTSTANDING_MAX)] {
        let load = Load { payload_bytes, outstanding };
        let burst = exchange.burst(&load, Length::Exchanges(3000)).unwrap();
        assert!(burst.exchanges >= 3000);
        plausible(&burst);
        assert!(check(&mut exchange, payload_bytes) >= 3300);
    }
}

#[test]
fn for_a_time() {
    let mut exchange = Exchange::start(&ExchangeOptions { request_bytes: 24, ..SMALL }).unwrap();
    let load = Load { payload_bytes: 4096, outstanding: 4 };
    let time = Duration::from_millis(20);
    let burst = exchange.burst(&load, Length::Time(time)).unwrap();
    assert!(burst.wall_ns >= time.as_nanos() as u64);
    plausible(&burst);
}

#[test]
fn an_end_is_an_error() {
    let mut exchange = Exchange::start(&SMALL).unwrap();
    // The server refuses what is outside its medium.
    exchange.options.medium_bytes *= 1000;
    let load = Load { payload_bytes: 1 << 20, outstanding: 1 };
    assert!(exchange.burst(&load, Length::Exchanges(100)).is_err());
    assert!(exchange.burst(&load, Length::Exchanges(1)).is_err());
}

#[test]
fn without_that_cpu_it_does_not_start() {
    let options = ExchangeOptions { server_cpu: Some(1023), ..SMALL };
    assert!(Exchange::start(&options).is_err());
}
