//! Runs [`meantime_fuzz::tcp`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::tcp::check(bytes));
