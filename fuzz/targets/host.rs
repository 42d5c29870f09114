//! Runs [`meantime_fuzz::host`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::host::check(bytes));
