//! What the user writes on one line: device URIs, sizes, completion policies. No text may panic,
//! and what is accepted must be what the documentation says it is.

use meantime_block::{KernelEngine, SoftUri, Uri, parse_bytes};
use meantime_completion::Policy;

/// What holds of every accepted URI.
fn check_soft(soft: &SoftUri) {
    assert!(!soft.model.is_empty());
    assert!(matches!(soft.lba_bytes, 512 | 4096));
    assert!((1..=1024).contains(&soft.namespaces) && (1..=soft.namespaces).contains(&soft.nsid));
    assert!(soft.mdts_bytes.is_none_or(|bytes| bytes.is_power_of_two() && bytes >= 4096));
    assert!(soft.cpu.is_none_or(|cpu| cpu < 1024));
    assert!(soft.queues != Some(0) && soft.vectors != Some(0));
}

fn check_uri(text: &str) {
    let uri = match text.parse::<Uri>() {
        Ok(uri) => uri,
        Err(error) => {
            assert_eq!(error.uri, text);
            assert!(!error.what.is_empty());
            return;
        }
    };
    let again = uri.to_string().parse::<Uri>().expect("what is printed can be read");
    match (&uri, &again) {
        (Uri::Mem { bytes, soft }, Uri::Mem { bytes: same_bytes, soft: same }) => {
            assert!(*bytes > 0 && bytes.is_multiple_of(4096 * u64::from(soft.namespaces)));
            assert!(soft.create_bytes.is_none());
            assert_eq!((bytes, &soft.model), (same_bytes, &same.model));
            check_soft(soft);
        }
        (Uri::File { path, soft }, Uri::File { path: same_path, soft: same }) => {
            assert!(!path.as_os_str().is_empty() && soft.namespaces == 1);
            assert!(soft.create_bytes.is_none_or(|bytes| bytes > 0 && bytes.is_multiple_of(4096)));
            assert_eq!((path, &soft.model), (same_path, &same.model));
            check_soft(soft);
        }
        (Uri::Kernel { path, kernel }, Uri::Kernel { path: same_path, .. }) => {
            assert!(!path.as_os_str().is_empty());
            assert!(
                kernel.create_bytes.is_none_or(|bytes| bytes > 0 && bytes.is_multiple_of(4096))
            );
            assert!(kernel.lba_bytes.is_none_or(|bytes| matches!(bytes, 512 | 4096)));
            assert!(kernel.fixed != Some(true) || kernel.engine == KernelEngine::IoUring);
            assert_eq!(path, same_path);
        }
        (Uri::Vfio { address, nvme }, Uri::Vfio { address: same_address, nvme: same }) => {
            assert!(address.device < 32 && address.function < 8);
            assert_eq!((address, nvme.nsid), (same_address, same.nsid));
        }
        (Uri::VfioUser { path, nvme }, Uri::VfioUser { path: same_path, nvme: same }) => {
            assert!(!path.as_os_str().is_empty() && !nvme.no_iommu);
            assert_eq!((path, nvme.nsid), (same_path, same.nsid));
        }
        (Uri::Tcp { address, tcp }, Uri::Tcp { address: same_address, tcp: same }) => {
            assert!(!address.host.is_empty() && address.port > 0 && !address.nqn.is_empty());
            assert!((100..=55_000).contains(&tcp.kato_ms));
            assert!(tcp.loss_ms.is_none_or(|ms| ms <= 127_000));
            assert_eq!((address, tcp.nsid), (same_address, same.nsid));
        }
        _ => panic!("{uri:?} became {again:?}"),
    }
}

/// The same in arithmetic that cannot overflow.
fn bytes_by_hand(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mut number: u128 = 0;
    for digit in text[..digits].bytes() {
        number = (number * 10 + u128::from(digit - b'0')).min(1 << 64);
    }
    let power = match &*text[digits..].to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kib" => 1,
        "m" | "mib" => 2,
        "g" | "gib" => 3,
        "t" | "tib" => 4,
        _ => return None,
    };
    if digits == 0 { None } else { u64::try_from(number << (10 * power)).ok() }
}

fn check_policy(text: &str) {
    let policy = match text.parse::<Policy>() {
        Ok(policy) => policy,
        Err(error) => return assert!(error.to_string().contains("hybrid=<time>")),
    };
    if let Policy::HybridFixed(ns) = policy {
        assert!((1..=1_000_000_000).contains(&ns));
    }
    assert_eq!(policy.to_string().parse(), Ok(policy));
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_uri(text);
    assert_eq!(parse_bytes(text), bytes_by_hand(text));
    check_policy(text);
}
