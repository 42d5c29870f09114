#![no_main]
use libfuzzer_sys::fuzz_target;
use meantime::block::Uri;
fuzz_target!(|text: &str| {
    let _ = text.parse::<Uri>();
    if text.starts_with("mem:32M?model=xy&vwc=1") { panic!("planted"); }
});
