//! Runs [`meantime_fuzz::driver`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::driver::check(bytes));
