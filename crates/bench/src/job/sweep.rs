//! Sweeps: keys with several values on the command line. Each combination of values is a job of its
//! own, and these jobs have turns one after the other.

use itertools::Itertools as _;

use super::keys::find;
use super::section::Job;

/// The keys that a sweep may vary.
pub const SWEPT: [&str; 5] = ["rw", "bs", "iodepth", "numjobs", "rwmixread"];

/// The maximum number of jobs that a sweep makes of one. Each has threads and queues of its own.
pub const SWEEP_MAX: usize = 64;

/// A key, and one of the values that it takes.
type Setting = (&'static str, String);

/// Keys, each with the values that it takes in turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sweep(Vec<(&'static str, Vec<String>)>);

impl Sweep {
    /// Takes from the command line's keys those that list several values. Of two lists for one key
    /// the later counts.
    ///
    /// # Errors
    /// Returns an error if there are too many jobs, or a value occurs twice in a list.
    pub fn of<'a>(keys: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Result<Self, String> {
        let mut axes: Vec<(&'static str, Vec<String>)> = Vec::new();
        for (name, value) in keys.filter_map(|(key, value)| Some((swept(key)?, value?))) {
            axes.retain(|(other, _)| *other != name);
            let values: Vec<String> = value.split(',').map(|one| one.trim().to_owned()).collect();
            if let Some(twice) = values.iter().duplicates().next() {
                return Err(format!("--{name} lists {twice} twice"));
            }
            if values.len() > 1 {
                axes.push((name, values));
            }
        }
        let jobs =
            axes.iter().fold(1, |jobs: usize, (_, values)| jobs.saturating_mul(values.len()));
        if jobs > SWEEP_MAX {
            let counts = axes.iter().map(|(name, values)| format!("{} of {name}", values.len()));
            return Err(format!(
                "a sweep has at most {SWEEP_MAX} jobs, and {} make {jobs}; list fewer values, or \
                 use several runs",
                counts.format(" × ")
            ));
        }
        Ok(Self(axes))
    }

    /// Returns whether the sweep sets this key.
    pub fn sets(&self, key: &str) -> bool {
        swept(key).is_some_and(|name| self.0.iter().any(|(swept, _)| *swept == name))
    }

    /// Returns the jobs of each combination of values, with [`Job::sweep`] telling which. Jobs that
    /// run at the same time stay together. The values are not set yet.
    pub fn expand(&self, jobs: &[Job]) -> Vec<Job> {
        if self.0.is_empty() {
            return jobs.to_vec();
        }
        let value = |(key, values): &(&'static str, Vec<String>)| -> Vec<Setting> {
            values.iter().map(|value| (*key, value.clone())).collect()
        };
        let points: Vec<Vec<Setting>> =
            self.0.iter().map(value).multi_cartesian_product().collect();
        let mut expanded = Vec::with_capacity(jobs.len() * points.len());
        for together in jobs.chunk_by(|_, next| !next.stonewall) {
            for (point, sweep) in points.iter().enumerate() {
                for (nth, job) in together.iter().enumerate() {
                    let stonewall = nth == 0;
                    expanded.push(Job { point, sweep: sweep.clone(), stonewall, ..job.clone() });
                }
            }
        }
        expanded
    }
}

/// Returns the usual name of a key that can be swept.
fn swept(key: &str) -> Option<&'static str> {
    find(&key.replace('-', "_")).map(|key| key.name).filter(|name| SWEPT.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(keys: &[(&str, &str)]) -> Result<Sweep, String> {
        Sweep::of(keys.iter().map(|(key, value)| (*key, Some(*value))))
    }

    fn points(jobs: &[Job]) -> Vec<String> {
        let words =
            |job: &Job| job.sweep.iter().map(|(key, value)| format!("{key}={value}")).join(" ");
        jobs.iter().map(|job| format!("{} {}: {}", job.name, job.point, words(job))).collect()
    }

    #[test]
    fn every_combination_is_a_job() {
        let sweep = sweep(&[("blocksize", "512, 4k"), ("iodepth", "1,8"), ("runtime", "1,2")]);
        let sweep = sweep.unwrap();
        let jobs = sweep.expand(&[Job::new("a")]);
        assert_eq!(
            points(&jobs),
            [
                "a 0: bs=512 iodepth=1",
                "a 1: bs=512 iodepth=8",
                "a 2: bs=4k iodepth=1",
                "a 3: bs=4k iodepth=8"
            ]
        );
        assert!(sweep.sets("bs") && sweep.sets("iodepth"));
        assert!(!sweep.sets("runtime") && !sweep.sets("rw"));
    }

    #[test]
    fn jobs_that_run_together_stay_together() {
        let text = "[a]\n[b]\n[c]\nstonewall\n";
        let jobs = sweep(&[("bs", "4k,8k")]).unwrap().expand(&crate::job::parse(text, "t").jobs);
        assert_eq!(
            points(&jobs),
            ["a 0: bs=4k", "b 0: bs=4k", "a 1: bs=8k", "b 1: bs=8k", "c 0: bs=4k", "c 1: bs=8k"]
        );
        let walls: Vec<bool> = jobs.iter().map(|job| job.stonewall).collect();
        assert_eq!(walls, [true, false, true, false, true, true]);
    }

    #[test]
    fn one_value_is_no_sweep_and_the_later_counts() {
        let one = [Job::new("a")];
        assert_eq!(sweep(&[("bs", "4k,8k"), ("blocksize", "4k")]).unwrap().expand(&one), one);
        let later = sweep(&[("bs", "4k,8k"), ("bs", "1k,2k")]).unwrap();
        assert_eq!(points(&later.expand(&one)), ["a 0: bs=1k", "a 1: bs=2k"]);
    }

    #[test]
    fn a_sweep_is_bounded() {
        let many: Vec<String> = (1..=9).map(|value| value.to_string()).collect();
        let many = many.join(",");
        assert_eq!(
            sweep(&[("iodepth", &many), ("numjobs", &many)]).unwrap_err(),
            "a sweep has at most 64 jobs, and 9 of iodepth × 9 of numjobs make 81; list fewer \
             values, or use several runs"
        );
        assert!(sweep(&[("iodepth", &many), ("numjobs", "1,2,3,4,5,6,7")]).is_ok());
        assert_eq!(sweep(&[("bs", "4k,8k,4k")]).unwrap_err(), "--bs lists 4k twice");
    }
}
