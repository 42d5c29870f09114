//! Hosts and our own target that authenticate each other (DH-HMAC-CHAP).

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use meantime_block::open_nvme;
use meantime_completion::Policy;
use meantime_ssd::tcp::{Keys, Target, TargetOptions};
use meantime_ssd::{Medium, SsdConfig};

use crate::{channel, options, verify};

const BYTES: u64 = 16 << 20;

/// Keys without and with a hash.
const FIRST: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const SECOND: &str = "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const THIRD: &str = "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// A file of keys, which is removed.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("meantime-keys-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn target(keys: &File) -> Target {
    let mut options = TargetOptions::default();
    options.keys = Keys::read(&keys.0).unwrap();
    let config = SsdConfig::with_namespace(BYTES, 512);
    Target::start(config, Medium::dram(BYTES).unwrap(), options).unwrap()
}

fn uri(target: &Target, host: &str, keys: Option<&File>) -> String {
    let keys = keys.map(|keys| format!("&dhchap_keys={}", keys.0.display())).unwrap_or_default();
    format!("nvme+tcp://{}/{}?hostnqn={host}{keys}", target.addr(), meantime_ssd::tcp::DEFAULT_NQN)
}

/// Why `host` cannot open the target.
fn refusal(target: &Target, host: &str, keys: Option<&File>) -> String {
    open_nvme(&uri(target, host, keys), &options()).map(drop).unwrap_err().to_string()
}

#[test]
fn a_host_with_its_key_uses_every_queue() {
    for (name, line) in [
        ("host", format!("nqn.host {FIRST}")),
        ("both", format!("nqn.other {THIRD}\nnqn.host {SECOND} {THIRD}")),
    ] {
        let keys = File::new(name, &line);
        let target = target(&keys);
        let device = open_nvme(&uri(&target, "nqn.host", Some(&keys)), &options()).unwrap();
        for policy in [Policy::Poll, Policy::Interrupt] {
            verify(&mut channel(&device, policy));
        }
        assert_eq!(target.handle().tcp_counters().authentications_failed, 0);
    }
}

#[test]
fn who_cannot_prove_himself_is_told_why() {
    let keys = File::new("right", &format!("nqn.host {FIRST} {SECOND}"));
    let target = target(&keys);
    let said = refusal(&target, "nqn.host", None);
    assert!(said.contains("DH-HMAC-CHAP") && said.contains("dhchap_keys=FILE"), "{said}");
    let wrong = File::new("wrong", &format!("nqn.host {THIRD}"));
    let said = refusal(&target, "nqn.host", Some(&wrong));
    assert!(said.contains("as nqn.host") && said.contains("it has another key"), "{said}");
    let said = refusal(&target, "nqn.unknown", Some(&keys));
    assert!(said.contains("no line for nqn.unknown"), "{said}");
    let unknown = File::new("unknown", &format!("nqn.unknown {FIRST}"));
    let said = refusal(&target, "nqn.unknown", Some(&unknown));
    assert!(said.contains("does not allow this host"), "{said}");
    // The host's key is right, and the target's is not.
    let other = File::new("other", &format!("nqn.host {FIRST} {THIRD}"));
    let said = refusal(&target, "nqn.host", Some(&other));
    assert!(said.contains("the other side does not know the key"), "{said}");
    let refused = target.handle().refused_hosts();
    let why: Vec<&str> = refused.iter().map(|one| one.why.as_str()).collect();
    assert!(why.contains(&"there is no key for it (--dhchap-keys)"), "{why:?}");
    assert!(why.contains(&"authentication: the other side does not know the key"), "{why:?}");
    // None of that harms one that can.
    let device = open_nvme(&uri(&target, "nqn.host", Some(&keys)), &options()).unwrap();
    verify(&mut channel(&device, Policy::Poll));
}

/// A target that asks for nothing may be an impostor.
#[test]
fn a_host_that_checks_the_target_does_not_use_another() {
    let config = SsdConfig::with_namespace(BYTES, 512);
    let medium = Medium::dram(BYTES).unwrap();
    let target = Target::start(config, medium, TargetOptions::default()).unwrap();
    let both = File::new("checks", &format!("nqn.host {FIRST} {SECOND}"));
    let said = refusal(&target, "nqn.host", Some(&both));
    assert!(said.contains("Authentication Send"), "{said}");
    // One that only has a key of its own needs none here.
    let own = File::new("own", &format!("nqn.host {FIRST}"));
    let device = open_nvme(&uri(&target, "nqn.host", Some(&own)), &options()).unwrap();
    verify(&mut channel(&device, Policy::Poll));
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let keys = File::new("mode", &format!("nqn.host {FIRST}"));
    let target = target(&keys);
    std::fs::set_permissions(&keys.0, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = refusal(&target, "nqn.host", Some(&keys));
    assert!(said.contains("chmod 600") && !said.contains("AAEC"), "{said}");
}
