//! A TCP proxy that is slow: `cargo run -p meantime-testkit --example proxy -- LISTEN TARGET
//! MICROSECONDS [AWAKE_MICROSECONDS]`, with addresses as `127.0.0.1:4421`.
//!
//! Both directions are delayed; a second number keeps it looking for so long after anything has
//! happened, instead of sleeping. Prints each second how late it was. Ends with its standard input.

use std::io::Read;
use std::time::Duration;

use meantime_testkit::proxy::{Direction, Proxy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, target, delay, awake @ ..] = &words[..] else {
        return Err("LISTEN TARGET MICROSECONDS [AWAKE_MICROSECONDS]".into());
    };
    let proxy = Proxy::listen(listen.parse()?, target.parse()?, 1)?;
    proxy.delay(Duration::from_micros(delay.parse()?));
    if let Some(awake) = awake.first() {
        proxy.stay_awake(Duration::from_micros(awake.parse()?));
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let late = proxy.lateness();
        let [up, down] =
            [Direction::Up, Direction::Down].map(|direction| proxy.delivered(direction));
        println!(
            "{} chunks, late by {:?}, 1 in 100 by {:?}, at most {:?}; {up} bytes up, {down} down",
            late.chunks, late.median, late.p99, late.max
        );
    }
}
