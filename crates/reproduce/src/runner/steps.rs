//! An experiment's steps: commands, with the figures that they give.

use super::{Bench, RunError, values};
use crate::experiment::{Experiment, Leg, Step};
use crate::measured::add_line;

/// The costs that the simulator charges.
const SIMULATED: &str = "A server without a hypervisor: a sleeper runs 1.5 to 3 µs after its time, \
                         a sleep costs 1.2 µs of CPU, a switch between threads 0.6 µs";

impl Bench<'_> {
    /// Measures one repetition of `experiment`.
    ///
    /// # Errors
    /// Returns an error if a command fails that may not, or the machine lacks something.
    pub fn measure(&mut self, experiment: &Experiment) -> Result<(), RunError> {
        if experiment.leg == Leg::Device {
            self.device = self.options.device.as_deref();
        }
        if let Some(times) = experiment.cell_times.filter(|_| !self.is_quick()) {
            self.cell_s = self.options.cell_s * times;
        }
        for line in &experiment.inputs {
            add_line(&mut self.measured.inputs, line.replace("{simulated}", SIMULATED));
        }
        if let Some(disk) = &experiment.disk {
            let path = self.choose_disk(&experiment.id);
            self.prepare(&format!("fs mkfs -b 4K file:{path}?create={}", disk.size))?;
            if let Some(job) = &disk.data {
                let null = self.resolved("{disk:null}:/data");
                self.prepare(&format!("bench --device {null} --completion poll {job}"))?;
            }
        }
        for what in &experiment.requires {
            self.prepare(&what.run).map_err(|error| match error {
                RunError::Interrupted => error,
                _ => RunError::Missing(what.or.clone()),
            })?;
        }
        for (name, text) in &experiment.files {
            self.write(name, text)?;
        }
        for line in &experiment.prepare {
            self.prepare(line)?;
        }
        for kernel in &experiment.guest {
            self.guest(kernel)?;
        }
        for step in &experiment.steps {
            self.step(step)?;
        }
        for (name, quantity) in &experiment.derived {
            self.derive(name, quantity);
        }
        Ok(())
    }

    /// Takes the figures of one boot of a kernel in the virtual machine. They are named
    /// `KERNEL/CONTROLLER/BYTES/WAY/…`; the controllers and ways are those of
    /// `scripts/guest/bench/ways.sh`.
    fn guest(&mut self, kernel: &str) -> Result<(), RunError> {
        let boot = self.runner.guest(kernel, self.repetition)?;
        for line in &boot.about {
            add_line(&mut self.measured.inputs, line.clone());
        }
        for cell in &boot.cells {
            values::guest(&mut self.measured, kernel, cell);
        }
        self.boots.push(boot);
        Ok(())
    }

    /// Returns the arguments of a command.
    fn arguments(&self, line: &str) -> Vec<String> {
        let mut args: Vec<String> =
            line.split_whitespace().map(|word| self.resolved(word)).collect();
        match args[0].as_str() {
            "bench" => {
                let has_job_file = args.get(1).is_some_and(|arg| !arg.starts_with("--"));
                args.insert(if has_job_file { 2 } else { 1 }, "--no-control".to_owned());
            }
            "waits" => args.insert(1, "--simulate=bare-metal".to_owned()),
            _ => {}
        }
        args
    }

    /// Runs a command without figures, of `meantime` or of another program.
    fn prepare(&mut self, line: &str) -> Result<(), RunError> {
        let args = self.arguments(line);
        match args[0].as_str() {
            "bench" => self.runner.json(&args).map(drop),
            "fs" | "run" => self.runner.text("meantime", &args).map(drop),
            program => self.runner.text(program, &args[1..]).map(drop),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), RunError> {
        for line in &step.run {
            match (self.command(step, line), &step.may_fail) {
                (Err(RunError::Failed { message, .. }), Some(note))
                    if message.contains(&step.saying) =>
                {
                    self.leave_out(note, &message);
                    if let Some(instead) = &step.instead {
                        self.command(step, instead)?;
                    }
                }
                (done, _) => done?,
            }
        }
        Ok(())
    }

    /// Says what is not measured here, and why.
    fn leave_out(&mut self, note: &str, message: &str) {
        add_line(&mut self.measured.left_out, note.replace("{message}", message));
    }

    /// Runs a command, and takes its figures.
    fn command(&mut self, step: &Step, line: &str) -> Result<(), RunError> {
        let mut args = self.arguments(line);
        let cell = ["--runtime".to_owned(), format!("{}ms", (self.cell_s * 1e3).round())];
        let values = match args[0].as_str() {
            "bench" => {
                args.push("--time-based".to_owned());
                args.extend(cell);
                values::bench
            }
            "anatomy" => {
                args.extend(cell);
                values::anatomy
            }
            "waits" => values::waits,
            "calibrate" => {
                if self.is_quick() && !args.contains(&"--quick".to_owned()) {
                    args.push("--quick".to_owned());
                }
                values::calibrate
            }
            _ => {
                let text = self.runner.text("meantime", &args)?;
                values::db_bench(&mut self.measured, &step.name, &text);
                return Ok(());
            }
        };
        let report = self.runner.json(&args)?;
        values(&mut self.measured, &step.name, &report);
        if let (Some(why), Some(note)) = (values::not_held(&report), &step.may_fail) {
            self.leave_out(note, why);
        }
        Ok(())
    }
}
