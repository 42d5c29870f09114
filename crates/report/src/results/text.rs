//! The results as the table that `bench` prints.

use super::model::{Report, device_name};
use crate::figures::wrapped;
use crate::run::{Row, SLOWEST_ONE_IN, Settings, table_of};

impl Report {
    /// Returns the table that `bench` prints, the differences that prevent a comparison of its
    /// rows, and what could not be measured.
    pub fn text(&self, columns: usize) -> String {
        let mut rows = Vec::new();
        for job in &self.jobs {
            let twice = self.jobs.iter().filter(|other| other.name == job.name).count() > 1;
            let name = if twice {
                format!("{} ({})", job.name, job.workload.words())
            } else {
                job.name.clone()
            };
            for block in &job.blocks {
                let machine = block
                    .machine
                    .map_or(String::new(), |at| format!(" ({})", self.sources[at].label));
                for run in &block.runs {
                    let done = run.latency.n > 0;
                    rows.push(Row {
                        job: name.clone(),
                        device: format!("{}{machine}", block.device),
                        medium: block.medium.clone(),
                        completion: run.label.clone(),
                        // The label contains the settings.
                        settings: Settings::default(),
                        mean_ns: run.mean_ns(),
                        percentiles_ns: [50.0, 99.0, 99.9]
                            .map(|at| run.latency.known_percentile_ns(at)),
                        slowest_ns: run
                            .slowest_ns
                            .or_else(|| run.latency.slowest_1_in(SLOWEST_ONE_IN)),
                        max_ns: done.then_some(run.latency.max_ns),
                        iops: run.iops,
                        cpu_percent: run.cpu_percent,
                        iops_per_cpu_percent: run.iops_per_cpu_percent(),
                        competitor_percent: run.competitor_percent,
                        energy_uj_per_io: run.energy_uj_per_io,
                        floor_ns: run.floor_ns,
                        floor_ratio: run.floor_ratio,
                        errors: run.errors,
                    });
                }
            }
        }
        let mut text = table_of(&rows, columns);
        text += &self.warnings(columns);
        for one in &self.left_out {
            let line =
                format!("Not measured: {}, {}: {}", device_name(&one.device), one.way, one.why);
            text += &format!("\n{}\n", wrapped(&line, columns));
        }
        text
    }

    /// Returns the differences that prevent a comparison of the results, a paragraph for each;
    /// printed below the table.
    pub fn warnings(&self, columns: usize) -> String {
        let all = super::differences::warnings(self).into_iter();
        all.map(|warning| {
            format!("\n{}\n", wrapped(&format!("{} {}", warning.what, warning.so), columns))
        })
        .collect()
    }
}
