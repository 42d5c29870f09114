//! How the CPUs idle: the kernel's C-states, the governor that chooses among them, and the boot
//! options about idling.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// An idle state, as in cpuidle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct IdleState {
    /// E.g. `C6`.
    pub name: String,
    /// The driver's description.
    pub description: String,
    /// The driver's estimate of the time to leave it.
    pub exit_latency_us: u64,
    /// Minimum idle time for which it is worthwhile.
    pub residency_us: u64,
    /// Whether the administrator disabled it.
    pub disabled: bool,
}

/// The CPUs' idling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Idle {
    /// The driver of the states, e.g. `intel_idle`. `None` where the kernel has none, or hides it.
    pub driver: Option<String>,
    /// The governor that chooses among them, e.g. `menu`.
    pub governor: Option<String>,
    /// Boot options about idling.
    pub boot_options: Vec<String>,
    /// The states of the requested CPU, the shallowest first.
    pub states: Vec<IdleState>,
}

/// Prefixes of boot options for idling.
const OPTIONS: [&str; 7] = [
    "idle=",
    "nohlt",
    "cpuidle",
    "haltpoll.",
    "processor.max_cstate=",
    "intel_idle.",
    "processor.nocst",
];

impl Idle {
    /// Returns the idling of CPU `cpu`.
    pub(crate) fn probe(cpu: usize) -> Self {
        Self::probe_in(Path::new("/"), cpu)
    }

    fn probe_in(root: &Path, cpu: usize) -> Self {
        let cpus = root.join("sys/devices/system/cpu");
        let text = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        let named = |name: &str| {
            text(&cpus.join("cpuidle").join(name)).filter(|name| !name.is_empty() && name != "none")
        };
        let state = |dir: &Path| {
            let field = |name: &str| text(&dir.join(name)).unwrap_or_default();
            let number = |name: &str| field(name).parse().unwrap_or(0);
            Some(IdleState {
                name: text(&dir.join("name"))?,
                description: field("desc"),
                exit_latency_us: number("latency"),
                residency_us: number("residency"),
                disabled: number("disable") != 0,
            })
        };
        let dir = cpus.join(format!("cpu{cpu}/cpuidle"));
        let states = (0..).map_while(|nth| state(&dir.join(format!("state{nth}")))).collect();
        let options = text(&root.join("proc/cmdline")).unwrap_or_default();
        let is_about_idling = |word: &&str| OPTIONS.iter().any(|option| word.starts_with(option));
        let boot_options = options.split_whitespace().filter(is_about_idling);
        Self {
            states,
            driver: named("current_driver"),
            governor: named("current_governor").or_else(|| named("current_governor_ro")),
            boot_options: boot_options.map(str::to_owned).collect(),
        }
    }

    /// Returns a line of text, and one for each state.
    pub(crate) fn text(&self, virtual_machine: bool) -> String {
        let or_none = |words: &str| if words.is_empty() { "none" } else { words }.to_owned();
        let [driver, governor] =
            [&self.driver, &self.governor].map(|name| or_none(name.as_deref().unwrap_or_default()));
        let options = or_none(&self.boot_options.join(" "));
        let mut text =
            format!("C-states: driver {driver}, governor {governor}, boot options {options}\n");
        let columns = self.states.iter().map(|state| state.name.chars().count()).max().unwrap_or(0);
        for state in &self.states {
            let IdleState { name, description, exit_latency_us, residency_us, .. } = state;
            let disabled = if state.disabled { ", disabled" } else { "" };
            text += &format!(
                "  {name:columns$}  exit latency {exit_latency_us} µs, worth while from \
                 {residency_us} µs on{disabled} ({description})\n"
            );
        }
        text += match (self.states.is_empty(), virtual_machine) {
            (true, true) => "  none visible (a virtual machine may hide them)\n",
            (true, false) => "  none visible\n",
            (false, true) => {
                "  in a virtual machine: what the host makes of a CPU that halts is its own affair\n"
            }
            (false, false) => "",
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_laptop() {
        let root = tempfile::tempdir().unwrap();
        let cpus = "sys/devices/system/cpu";
        write(root.path(), &format!("{cpus}/cpuidle/current_driver"), "intel_idle\n");
        write(root.path(), &format!("{cpus}/cpuidle/current_governor"), "menu\n");
        write(root.path(), "proc/cmdline", "quiet idle=halt mem=1G intel_idle.max_cstate=6\n");
        for (nth, name, latency, disable) in [(0, "POLL", "0", "0"), (1, "C6", "133", "1")] {
            let dir = format!("{cpus}/cpu3/cpuidle/state{nth}");
            for (file, text) in [
                ("name", name),
                ("desc", "x"),
                ("latency", latency),
                ("residency", "400"),
                ("disable", disable),
            ] {
                write(root.path(), &format!("{dir}/{file}"), &format!("{text}\n"));
            }
        }
        let idle = Idle::probe_in(root.path(), 3);
        assert_eq!(
            (idle.driver.as_deref(), idle.governor.as_deref()),
            (Some("intel_idle"), Some("menu"))
        );
        assert_eq!(idle.boot_options, ["idle=halt", "intel_idle.max_cstate=6"]);
        assert_eq!(idle.states.len(), 2);
        assert_eq!(idle.states[1].exit_latency_us, 133);
        let text = idle.text(false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "  C6    exit latency 133 µs, worth while from 400 µs on, disabled (x)"
        );
        assert_eq!(serde_json::json!(idle)["states"][1]["disabled"], true);
    }

    #[test]
    fn nothing_to_be_seen() {
        let root = tempfile::tempdir().unwrap();
        let idle = Idle::probe_in(root.path(), 0);
        assert_eq!(idle, Idle::default());
        let second = |is_virtual| idle.text(is_virtual).lines().nth(1).unwrap().to_owned();
        assert!(second(true).contains("virtual machine") && !second(false).contains("virtual"));
    }
}
