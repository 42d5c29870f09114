//! The machine's memory.

/// Memory that programs can still have, in bytes; `None` if the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    meminfo_bytes("MemAvailable:")
}

/// The machine's memory in bytes; `None` if the kernel does not say.
pub fn total_bytes() -> Option<u64> {
    meminfo_bytes("MemTotal:")
}

fn meminfo_bytes(field: &str) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
