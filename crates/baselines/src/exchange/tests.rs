use super::*;

const SMALL: ExchangeOptions =
    ExchangeOptions { sockets: 1, medium_bytes: 1 << 20, server_cpu: None };
const TIME: Duration = Duration::from_millis(20);

/// Checks that a burst's answers have the numbers and the payloads that were asked for. Returns how
/// many came.
fn check(exchange: &mut Exchange, payload_bytes: usize) -> usize {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut numbers = Vec::new();
    for line in &mut exchange.lines {
        assert!(line.seen.len().is_multiple_of(HEADER_BYTES + payload_bytes));
        let before = numbers.len();
        for answer in line.seen.chunks(HEADER_BYTES + payload_bytes) {
            numbers.push(word(answer));
            let payload = &answer[HEADER_BYTES..];
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
    // Of many in flight, most began before the burst: they may take longer than it does.
    assert!(burst.median_ns > 0 && burst.wall_ns > 0 && burst.rate() > 0.0, "{burst:?}");
    assert!(burst.wall_ns >= TIME.as_nanos() as u64, "{burst:?}");
}

#[test]
fn one_at_a_time() {
    let mut exchange = Exchange::start(&SMALL).unwrap();
    for payload_bytes in [4096, 512] {
        let load = Load { payload_bytes, outstanding: 1 };
        let burst = exchange.burst(&load, TIME).unwrap();
        plausible(&burst);
        assert!(burst.median_ns <= burst.wall_ns, "{burst:?}");
        assert!(check(&mut exchange, payload_bytes) as u64 > burst.exchanges);
    }
}

#[test]
fn several_on_several_sockets() {
    let options = ExchangeOptions { sockets: 4, ..SMALL };
    let mut exchange = Exchange::start(&options).unwrap();
    for (payload_bytes, outstanding) in [(4096, 8), (512, 1), (65_536, 16), (8, OUTSTANDING_MAX)] {
        let load = Load { payload_bytes, outstanding };
        let burst = exchange.burst(&load, TIME).unwrap();
        plausible(&burst);
        assert!(check(&mut exchange, payload_bytes) as u64 > burst.exchanges);
    }
}

#[test]
fn an_end_is_an_error() {
    let mut exchange = Exchange::start(&SMALL).unwrap();
    // The server refuses a request outside its medium.
    exchange.options.medium_bytes *= 1000;
    let load = Load { payload_bytes: 1 << 20, outstanding: 1 };
    assert!(exchange.burst(&load, TIME).is_err());
    assert!(exchange.burst(&load, TIME).is_err());
}

#[test]
fn without_that_cpu_it_does_not_start() {
    let options = ExchangeOptions { server_cpu: Some(1023), ..SMALL };
    assert!(Exchange::start(&options).is_err());
}
