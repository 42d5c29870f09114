//! The energy that the processors use, from their own counters, which the kernel's powercap
//! interface reads (RAPL of Intel and AMD).

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel lists the counters.
const POWERCAP: &str = "/sys/class/powercap";

/// The energy counters of all processor packages of this machine.
#[derive(Debug)]
pub struct EnergyMeter {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    /// The file with the energy used, in µJ.
    counter: PathBuf,
    /// The largest value of the counter, in µJ; it then restarts at 0.
    range_uj: u64,
}

/// The counters' values at one moment.
#[derive(Debug, Clone)]
pub struct EnergyReading(Vec<u64>);

impl EnergyMeter {
    /// Finds the counters. Returns `None` if there are none, as in most virtual machines, or if
    /// this user may not read them: since Linux 5.10 only root may.
    pub fn open() -> Option<Self> {
        Self::open_in(Path::new(POWERCAP))
    }

    fn open_in(directory: &Path) -> Option<Self> {
        let text = |path: PathBuf| fs::read_to_string(path).ok();
        let number = |path: PathBuf| text(path)?.trim().parse().ok();
        let mut packages = Vec::new();
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let zone = entry.path();
            // Parts of a package have zones of their own, which the package's figure includes. Some
            // machines list each package twice, once for each way to its registers.
            let again = entry.file_name().to_string_lossy().starts_with("intel-rapl-mmio");
            let name = text(zone.join("name")).unwrap_or_default();
            if again || !name.starts_with("package-") {
                continue;
            }
            let range_uj = number(zone.join("max_energy_range_uj"))?;
            packages.push(Package { counter: zone.join("energy_uj"), range_uj });
        }
        let meter = Self { packages };
        (!meter.packages.is_empty() && meter.read().is_some()).then_some(meter)
    }

    /// Reads the counters; `None` if one cannot be read.
    pub fn read(&self) -> Option<EnergyReading> {
        let read = |package: &Package| -> Option<u64> {
            fs::read_to_string(&package.counter).ok()?.trim().parse().ok()
        };
        self.packages.iter().map(read).collect::<Option<_>>().map(EnergyReading)
    }

    /// Returns the energy used between two readings, in µJ. Each counter may have restarted once in
    /// between; at 200 W that takes 20 minutes.
    pub fn used_uj(&self, from: &EnergyReading, until: &EnergyReading) -> u64 {
        let pairs = self.packages.iter().zip(from.0.iter().zip(&until.0));
        pairs
            .map(|(package, (from, until))| match until.checked_sub(*from) {
                Some(used) => used,
                None => package.range_uj.saturating_sub(*from) + until,
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(directory: &Path, zone: &str, name: &str, energy_uj: &str) {
        let zone = directory.join(zone);
        fs::create_dir_all(&zone).unwrap();
        for (file, text) in
            [("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", "1000")]
        {
            fs::write(zone.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn packages_are_added_up_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        zone(at, "intel-rapl:0", "package-0", "100");
        zone(at, "intel-rapl:0:0", "core", "70");
        zone(at, "intel-rapl:1", "package-1", "990");
        zone(at, "intel-rapl-mmio:0", "package-0", "100");
        fs::create_dir(at.join("intel-rapl")).unwrap();
        let meter = EnergyMeter::open_in(at).unwrap();
        let before = meter.read().unwrap();
        zone(at, "intel-rapl:0", "package-0", "150");
        // The counter has restarted.
        zone(at, "intel-rapl:1", "package-1", "20");
        assert_eq!(meter.used_uj(&before, &meter.read().unwrap()), 50 + 30);
        assert_eq!(meter.used_uj(&before, &before), 0);
    }

    #[test]
    fn a_machine_without_counters_has_no_meter() {
        let dir = tempfile::tempdir().unwrap();
        assert!(EnergyMeter::open_in(dir.path()).is_none());
        assert!(EnergyMeter::open_in(&dir.path().join("missing")).is_none());
        // This user may not read the second one.
        zone(dir.path(), "intel-rapl:0", "package-0", "100");
        fs::remove_file(dir.path().join("intel-rapl:0/energy_uj")).unwrap();
        assert!(EnergyMeter::open_in(dir.path()).is_none());
    }
}
