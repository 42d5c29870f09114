//! Runs [`meantime_fuzz::job`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::job::check(bytes));
