//! Runs [`meantime_fuzz::line`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::line::check(bytes));
