//! Runs [`meantime_fuzz::meeting`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::meeting::check(bytes));
