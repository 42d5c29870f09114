//! Runs [`meantime_fuzz::uri`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::uri::check(bytes));
