//! Runs [`meantime_fuzz::served`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::served::check(bytes));
