//! The machine's memory.

/// Returns the memory in bytes that programs can still allocate, or `None` if the kernel does not
/// report it.
pub fn available_bytes() -> Option<u64> {
    meminfo_bytes("MemAvailable:")
}

/// Returns the machine's memory in bytes, or `None` if the kernel does not report it.
pub fn total_bytes() -> Option<u64> {
    meminfo_bytes("MemTotal:")
}

fn meminfo_bytes(field: &str) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
