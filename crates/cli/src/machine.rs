//! Facts of the machine that every result carries (DESIGN §7).

use std::fs;

use meantime::hw::cpu;
use serde_json::{Map, Value, json};

/// The git revision, or the version where there was no git.
pub const REVISION: &str = env!("MEANTIME_REVISION");

/// What the figures were measured on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Whether a hypervisor runs this machine.
    pub virtual_machine: bool,
    /// The frequency governor of the first CPU; `None` where the kernel has no say in it.
    pub governor: Option<String>,
    /// CPUs kept from the scheduler; empty for none.
    pub isolcpus: String,
}

impl Machine {
    /// This one.
    pub fn probe() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let flagged = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: cpu::allowed().len(),
            kernel: read("/proc/sys/kernel/osrelease"),
            virtual_machine: flagged || !read("/sys/hypervisor/type").is_empty(),
            governor: Some(governor).filter(|governor| !governor.is_empty()),
            isolcpus: read("/sys/devices/system/cpu/isolated"),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let place = if self.virtual_machine { "virtual machine" } else { "no virtual machine" };
        let isolated = if self.isolcpus.is_empty() { "none" } else { &self.isolcpus };
        format!(
            "{}, {} CPU{} · Linux {} · {place} · governor {} · isolcpus {isolated} · meantime {}",
            self.cpu,
            self.cpus,
            if self.cpus == 1 { "" } else { "s" },
            self.kernel,
            self.governor.as_deref().unwrap_or("none"),
            env!("MEANTIME_VERSION"),
        )
    }

    /// The same for programs.
    pub fn json(&self) -> Map<String, Value> {
        let facts = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "revision": REVISION,
            "cpu": self.cpu,
            "cpus": self.cpus,
            "kernel": self.kernel,
            "virtual_machine": self.virtual_machine,
            "governor": self.governor,
            "isolcpus": self.isolcpus,
        });
        match facts {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

/// Memory that programs can still have, in bytes; `None` if the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    let meminfo = read("/proc/meminfo");
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::probe();
        assert!(machine.cpus > 0 && !machine.cpu.is_empty() && !machine.kernel.is_empty());
        assert!(machine.line().contains(REVISION));
        assert!(machine.json().contains_key("revision"));
        assert!(available_bytes().unwrap() > 0);
    }
}
