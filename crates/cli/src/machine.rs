//! Facts of the machine that every result carries (docs/benchmarks.md).

use std::fs;

use meantime_hw::cpu;
use meantime_report::figures::wrapped;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The git revision, or the version without git.
pub(crate) const REVISION: &str = env!("MEANTIME_REVISION");

/// The program with its version and revision.
pub(crate) const PROGRAM: &str = concat!("meantime ", env!("MEANTIME_VERSION"));

/// Maximum columns of a line of facts, unless a single fact is longer.
const COLUMNS_MOST: usize = 118;

/// The machine of a measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Whether a hypervisor runs this machine.
    pub virtual_machine: bool,
    /// The frequency governor of the first CPU. `None` where the kernel does not control the
    /// frequency.
    pub governor: Option<String>,
    /// The CPUs that are kept from the scheduler. The text is empty if there are none.
    pub isolcpus: String,
}

impl Machine {
    /// Probes this machine.
    pub(crate) fn probe() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo
                .lines()
                .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let flagged =
            field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
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

    /// Returns the facts in one line, or several where names are long.
    pub(crate) fn line(&self) -> String {
        let place = if self.virtual_machine { "virtual machine" } else { "no virtual machine" };
        let isolated = if self.isolcpus.is_empty() { "none" } else { &self.isolcpus };
        let facts = [
            format!("{}, {} CPU{}", self.cpu, self.cpus, if self.cpus == 1 { "" } else { "s" }),
            format!("Linux {}", self.kernel),
            place.to_owned(),
            format!("governor {}", self.governor.as_deref().unwrap_or("none")),
            format!("isolcpus {isolated}"),
            PROGRAM.to_owned(),
        ];
        wrapped(&facts.join(" · "), COLUMNS_MOST)
    }

    /// Returns the facts for JSON.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        facts.insert("revision".to_owned(), json!(REVISION));
        if let Value::Object(own) = json!(self) {
            facts.extend(own);
        }
        facts
    }
}

/// Returns the words that this command was started with, for a result's facts.
pub(crate) fn command_line() -> Value {
    let words = std::env::args_os().skip(1).map(|word| json!(word.to_string_lossy()));
    std::iter::once(json!("meantime")).chain(words).collect()
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
        let long = Machine { kernel: "6.18.44-with-a-long-name".repeat(3), ..machine };
        assert!(
            long.line().lines().count() > 1
                && long.line().lines().all(|line| line.chars().count() <= COLUMNS_MOST)
        );
        let machine = Machine::probe();
        assert!(machine.json().contains_key("revision"));
        assert!(meantime_bench::memory::available_bytes().unwrap() > 0);
    }
}
