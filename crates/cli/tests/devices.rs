//! `meantime devices` on whatever machine this is.

mod common;

use common::succeed;

#[test]
fn devices_are_shown_or_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeed(dir.path(), &["devices"]).stdout;
    let json: serde_json::Value =
        serde_json::from_str(&succeed(dir.path(), &["devices", "--json"]).stdout).unwrap();
    let devices = json["devices"].as_array().unwrap();
    if devices.is_empty() {
        assert!(text.contains("No NVMe controller") && text.contains("mem:1G"), "{text}");
    }
    for device in devices {
        assert!(text.contains(device["address"].as_str().unwrap()), "{text}");
    }
}
