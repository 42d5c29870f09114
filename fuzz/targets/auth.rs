//! Runs [`meantime_fuzz::auth`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::auth::check(bytes));
