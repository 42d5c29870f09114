//! Runs the `meantime` command, and gives what it measured names.

mod commands;
mod values;

use serde_json::Value;
use thiserror::Error;

use crate::experiment::Leg;
use crate::guest::Booted;
use crate::measured::Measured;

pub use commands::Commands;

/// Why an experiment could not be measured.
#[derive(Debug, Error)]
pub enum RunError {
    /// A command failed; its message.
    #[error("`{command}` failed: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// What it wrote to standard error, or how it ended.
        message: String,
    },
    /// The machine does not have what the experiment needs.
    #[error("{0}")]
    Missing(String),
    /// A signal ended the run.
    #[error("ended by a signal")]
    Interrupted,
}

/// Runs commands. Tests have one of their own, so measuring code cannot tell where figures are
/// from.
pub trait Runner {
    /// Runs `meantime` with `args` and `--json -`, and returns the JSON.
    ///
    /// # Errors
    /// Returns an error if the command fails, or its output is no JSON.
    fn json(&mut self, args: &[String]) -> Result<Value, RunError>;

    /// Runs `meantime` with `args`, and returns its standard output.
    ///
    /// # Errors
    /// Returns an error if the command fails.
    fn text(&mut self, args: &[String]) -> Result<String, RunError>;

    /// Runs another program of this machine with `args`, and returns its standard output.
    ///
    /// # Errors
    /// Returns [`RunError::Missing`] if there is no such program, and an error if it fails.
    fn program(&mut self, name: &str, args: &[String]) -> Result<String, RunError>;

    /// Returns what the `at`th boot of a kernel measured in the virtual machine.
    ///
    /// # Errors
    /// Returns [`RunError::Missing`] if there was no such boot.
    fn guest(&mut self, kernel: &str, at: usize) -> Result<Booted, RunError>;
}

/// The device and the time that experiments have.
#[derive(Debug, Clone)]
pub struct Target {
    /// The leg.
    pub leg: Leg,
    /// The user's device, of [`Leg::Device`].
    pub device: Option<String>,
    /// A directory for files that experiments make.
    pub scratch: String,
    /// Time to measure each cell of a repetition, in seconds.
    pub cell_s: f64,
    /// The number of the repetition, from 0.
    pub repetition: usize,
}

/// One repetition of an experiment.
pub struct Bench<'a> {
    runner: &'a mut dyn Runner,
    target: &'a Target,
    measured: Measured,
    /// Time for each cell, in seconds.
    cell_s: f64,
    /// The boots that it used.
    booted: Vec<Booted>,
    /// Files to remove at the end.
    temporary: Vec<String>,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        for path in &self.temporary {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<'a> Bench<'a> {
    /// Creates one.
    pub fn new(runner: &'a mut dyn Runner, target: &'a Target) -> Self {
        Self {
            runner,
            target,
            measured: Measured::default(),
            cell_s: target.cell_s,
            booted: Vec::new(),
            temporary: Vec::new(),
        }
    }

    /// Returns what was measured.
    pub fn finish(mut self) -> Measured {
        std::mem::take(&mut self.measured)
    }

    /// Returns the boots that it used.
    pub(crate) fn booted(&self) -> &[Booted] {
        &self.booted
    }

    /// Returns the leg's device: a software SSD of this model, or the user's device.
    pub fn device(&self, model: &str) -> String {
        match &self.target.device {
            Some(device) => device.clone(),
            None => format!("mem:256M?model={model}"),
        }
    }

    /// Returns the path of a file for experiments.
    pub fn scratch(&self, name: &str) -> String {
        format!("{}/{name}", self.target.scratch)
    }

    /// Returns the path of a file in memory, where there is such a place, that is not there now. It
    /// is removed at the end of the repetition.
    pub fn memory(&mut self, name: &str) -> String {
        let shared = format!("/dev/shm/meantime-{}-{name}", std::process::id());
        // A name that is there may be a link that somebody else put there.
        let path = match std::fs::File::create_new(&shared) {
            Ok(_) => shared,
            Err(_) => self.scratch(name),
        };
        let _ = std::fs::remove_file(&path);
        self.temporary.push(path.clone());
        path
    }

    /// Writes a file for the experiment, and returns its path.
    ///
    /// # Errors
    /// Returns [`RunError::Missing`] if it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<String, RunError> {
        let path = self.scratch(name);
        std::fs::write(&path, text)
            .map_err(|error| RunError::Missing(format!("cannot write {path}: {error}")))?;
        Ok(path)
    }

    /// Adds a sample.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.measured.add(name, value);
    }

    /// Adds the quotient of two samples of this repetition, if both were measured.
    pub fn add_ratio(&mut self, name: impl Into<String>, one: &str, other: &str) {
        let other = self.last(other).filter(|other| *other != 0.0);
        if let Some((one, other)) = self.last(one).zip(other) {
            self.add(name, one / other);
        }
    }

    /// Returns a sample of this repetition.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.measured.samples(name).last().copied()
    }

    /// Returns a curve of this repetition.
    pub fn curve(&self, name: &str) -> Option<&[(f64, f64)]> {
        self.measured.curves.get(name).map(Vec::as_slice)
    }

    /// Says what is not measured here, and why.
    pub fn leave_out(&mut self, what: impl Into<String>) {
        self.measured.left_out.push(what.into());
    }

    /// Says an input of a simulation, or a fact of the machine.
    pub fn input(&mut self, line: impl Into<String>) {
        let line = line.into();
        if !self.measured.inputs.contains(&line) {
            self.measured.inputs.push(line);
        }
    }

    /// Runs a command with `--json -` and returns its JSON.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn json(&mut self, args: &[&str]) -> Result<Value, RunError> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.runner.json(&args)
    }

    /// Runs a command and returns its standard output.
    ///
    /// # Errors
    /// As [`Runner::text`].
    pub fn text(&mut self, args: &[&str]) -> Result<String, RunError> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.runner.text(&args)
    }

    /// Runs another program of this machine.
    ///
    /// # Errors
    /// As [`Runner::program`].
    pub fn program(&mut self, name: &str, args: &[&str]) -> Result<String, RunError> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.runner.program(name, &args)
    }

    /// Takes the figures of one boot of a kernel in the virtual machine. They are named
    /// `KERNEL/CONTROLLER/BYTES/WAY/…`, as those of [`Self::bench`]; the kernel's ways also have
    /// `interrupts_ratio`, interrupts for each read. The controllers and ways are those of
    /// `scripts/guest/bench/ways.sh`.
    ///
    /// # Errors
    /// As [`Runner::guest`].
    pub fn guest(&mut self, kernel: &str) -> Result<(), RunError> {
        let booted = self.runner.guest(kernel, self.target.repetition)?;
        for line in &booted.about {
            self.input(line);
        }
        for cell in &booted.cells {
            values::guest(&mut self.measured, kernel, cell);
        }
        self.booted.push(booted);
        Ok(())
    }

    /// Runs `meantime bench` on `device` with the policies of `completion` for a cell's time.
    /// Figures are named `LABEL/POLICY/…`: `mean_ns`, `sd_ns`, `p50_ns`, `p99_ns`, `p999_ns`,
    /// `tail_ns` (the slowest 1 in 6,000), `max_ns`, `rate_iops`, `cpu_percent`, `rival_percent`;
    /// `usr_percent`, `sys_percent`, `typical_ns` (the mean without the slowest tenth),
    /// `submit_mean_ns`, `sync_mean_ns`, `durable_ns` (a write and its flush, as `typical_ns`), and
    /// the driver's and file system's counters; curves `LABEL/POLICY`. Of mixed jobs also `read_…`
    /// and `write_…`. `LABEL/dma_bytes` is the memory that the device may reach.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn bench(
        &mut self,
        label: &str,
        device: &str,
        completion: &str,
        args: &[&str],
    ) -> Result<(), RunError> {
        let all = ["bench", "--no-control", "--device", device, "--completion", completion];
        let report = self.timed(&[&all[..], args, &["--time-based"]].concat())?;
        values::bench(&mut self.measured, label, &report);
        Ok(())
    }

    /// Runs `meantime bench` with a job file, in which each job has its device and its way to wait,
    /// for a cell's time. Figures are named as those of [`Self::bench`], with the job's name behind
    /// the label if there are several.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn jobs(&mut self, label: &str, file: &str, args: &[&str]) -> Result<(), RunError> {
        let report =
            self.timed(&[&["bench", file, "--no-control"], args, &["--time-based"]].concat())?;
        values::bench(&mut self.measured, label, &report);
        Ok(())
    }

    /// Runs `meantime anatomy` on `device`. Figures are named `LABEL/POLICY/BYTES/…`: `total_ns`,
    /// `device_ns`, `host_ns` with `_sd`, each part, and beside a second program `ta_ns`, `td_ns`,
    /// `tb_ns`, `tu_ns`, `share_percent`, `speed_percent`.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn anatomy(
        &mut self,
        label: &str,
        device: &str,
        completion: &str,
        args: &[&str],
    ) -> Result<(), RunError> {
        let all = ["anatomy", "--device", device, "--completion", completion];
        let report = self.timed(&[&all[..], args].concat())?;
        values::anatomy(&mut self.measured, label, &report);
        Ok(())
    }

    /// Runs `meantime waits --simulate`, with a server's costs of waking up (bare metal). Figures
    /// are named `LABEL/CELL/POLICY/…`: `mean_ns`, `cpu_percent`.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn simulate(
        &mut self,
        label: &str,
        policies: &str,
        times: &str,
        shapes: &str,
    ) -> Result<(), RunError> {
        self.simulated(label, &["--policies", policies, "--times", times, "--shapes", shapes])
    }

    /// As [`Self::simulate`], of one cell, with the I/Os of `trace` instead of the cell's own: for
    /// what needs more I/Os than those.
    ///
    /// # Errors
    /// As [`Runner::json`].
    pub fn replay(
        &mut self,
        label: &str,
        policies: &str,
        (time_us, shape): (&str, &str),
        trace: &[(u32, u64)],
    ) -> Result<(), RunError> {
        let mut text = String::new();
        for (bytes, ns) in trace {
            text += &format!("read {bytes} {ns}\n");
        }
        self.file(&format!("{time_us}us-{shape}.trace"), &text)?;
        let directory = self.target.scratch.clone();
        let args = ["--policies", policies, "--times", time_us, "--shapes", shape];
        self.simulated(label, &[&args[..], &["--replay", &directory]].concat())
    }

    /// Multiplies the time of each further cell of this repetition by `times`, unless the run is
    /// quick. For events that few I/Os meet.
    pub fn take_longer(&mut self, times: f64) {
        if !self.is_quick() {
            self.cell_s = self.target.cell_s * times;
        }
    }

    /// Whether the run is a short one.
    pub fn is_quick(&self) -> bool {
        self.target.cell_s < 0.5
    }

    /// Runs a command for a cell's time.
    fn timed(&mut self, args: &[&str]) -> Result<Value, RunError> {
        let runtime = format!("{}ms", (self.cell_s * 1e3).round());
        self.json(&[args, &["--runtime", &runtime]].concat())
    }

    fn simulated(&mut self, label: &str, args: &[&str]) -> Result<(), RunError> {
        let report = self.json(&[&["waits", "--simulate=bare-metal"], args].concat())?;
        self.input(
            "A server without a hypervisor: a sleeper runs 1.5 to 3 µs after its time, a sleep \
             costs 1.2 µs of CPU, a switch between threads 0.6 µs",
        );
        values::waits(&mut self.measured, label, &report);
        Ok(())
    }
}
