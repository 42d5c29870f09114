//! The costs of waiting and of the host's own steps.

use super::competition::Competition;
use super::distribution::Distribution;
use crate::published::WakeCosts;
use meantime_completion::adaptive::SleepCosts;
use meantime_completion::calibrate::Times;
use meantime_random::Rng;

/// A machine's costs of waiting. The thread runs during all of these times, unless a field says
/// otherwise.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The time from the timer's expiry until the sleeper runs, in ns.
    pub timer_wake: Distribution,
    /// The time from the completion until a thread that is blocked for the interrupt runs, in ns.
    pub interrupt_wake: Distribution,
    /// The CPU time of one sleep, before and after it, in ns. It is part of the time until the
    /// sleeper runs, and is not added to it.
    pub sleep_cpu_ns: u64,
    /// CPU of blocking for an interrupt, in ns.
    pub interrupt_cpu_ns: u64,
    /// A switch from one thread to another on the same CPU, in ns, for the published rules that use
    /// it.
    pub context_switch_ns: u64,
    /// One poll of a completion queue, in ns.
    pub look_ns: u64,
    /// One reading of the clock, in ns.
    pub clock_ns: u64,
    /// A system call that does not block, in ns. It reads an eventfd that has a signal, or the
    /// thread's CPU time.
    pub syscall_ns: u64,
    /// Building one command and putting it into the queue, in ns.
    pub submit_ns: u64,
    /// Ringing the doorbell, in ns. The device begins after it.
    pub doorbell_ns: u64,
    /// Taking one completion and giving the caller its result, in ns.
    pub reap_ns: u64,
    /// The work of a learning policy once in each wait, before it, while the device works, in ns.
    pub plan_ns: u64,
    /// The work of a learning policy once for each I/O, after its completion was found, in ns.
    pub learn_ns: u64,
    /// The part of the sleep for the I/O before it by which an I/O takes longer.
    pub slowed_by_sleep: f64,
    /// The competition for the CPU.
    pub competition: Competition,
}

impl Machine {
    /// Returns a server without a hypervisor, on which wake-ups take 1.5 to 3 µs.
    pub fn bare_metal() -> Self {
        let wake = Distribution::uniform(1_500, 3_000);
        Self {
            timer_wake: wake.clone(),
            interrupt_wake: wake,
            sleep_cpu_ns: 1_200,
            interrupt_cpu_ns: 1_200,
            context_switch_ns: 600,
            look_ns: 3,
            clock_ns: 10,
            syscall_ns: 200,
            submit_ns: 120,
            doorbell_ns: 80,
            reap_ns: 80,
            plan_ns: 15,
            learn_ns: 15,
            slowed_by_sleep: 0.0,
            competition: Competition::None,
        }
    }

    /// Returns a virtual machine, in which every sleep goes through the hypervisor and takes 13 µs
    /// ± 0.7, and occasionally 10 µs more.
    pub fn vm() -> Self {
        let usual = Distribution::lognormal(13_000, 0.7 / 13.0);
        let timer_wake =
            Distribution::mixed(&[(0.97, usual.clone()), (0.03, usual.plus_ns(10_000))]);
        Self { interrupt_wake: timer_wake.clone(), timer_wake, ..Self::bare_metal() }
            .with_vm_costs()
    }

    /// Returns a machine with measured wake-ups ([`calibrate`](meantime_completion::calibrate)).
    /// The rest is as in [`Machine::vm`].
    pub fn this_vm(timer: &Times, interrupt: &Times) -> Self {
        let of = |times: &Times| {
            let last = times.count().saturating_sub(1).max(1) as f64;
            let samples = (0..times.count()).map(|i| times.quantile_ns(i as f64 / last)).collect();
            Distribution::of_samples(samples)
        };
        Self { timer_wake: of(timer), interrupt_wake: of(interrupt), ..Self::bare_metal() }
            .with_vm_costs()
    }

    fn with_vm_costs(self) -> Self {
        Self {
            sleep_cpu_ns: 3_000,
            interrupt_cpu_ns: 3_000,
            context_switch_ns: 1_500,
            syscall_ns: 300,
            ..self
        }
    }

    /// Returns what calibration at start-up would find, from as many sleeps.
    pub(super) fn sleep_costs(&self, seed: u64) -> SleepCosts {
        const SLEEPS: usize = 24;
        let mut random = Rng::new(seed ^ 0xca11);
        let late_ns: Vec<u32> =
            (0..SLEEPS).map(|_| self.timer_wake.draw_ns(&mut random) as u32).collect();
        SleepCosts::of(
            &late_ns,
            self.sleep_cpu_ns as u32,
            self.interrupt_wake.quantile_ns(0.5) as u32,
        )
    }

    /// Returns the same costs for the published rules.
    pub(super) fn wake_costs(&self) -> WakeCosts {
        let late_ns = self.timer_wake.quantile_ns(0.5);
        let interrupt_ns = late_ns.saturating_sub(self.context_switch_ns);
        WakeCosts { context_switch_ns: self.context_switch_ns, interrupt_ns }
    }

    /// Returns the time of a polled I/O besides the device time and the last look, in ns:
    /// submission, doorbell, reaping.
    pub fn host_path_ns(&self) -> u64 {
        self.submit_ns + self.doorbell_ns + self.reap_ns
    }
}
