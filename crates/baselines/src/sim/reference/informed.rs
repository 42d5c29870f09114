//! Finds the least cost over all plans that know only distributions, by backward dynamic
//! programming.
//!
//! Let T be the device time of a class, F its distribution function, W the wake cost, c the CPU of
//! a sleep, and λ the price of lateness. V(t) is the least cost from t on, times P(T > t), which
//! avoids divisions by probabilities. At t, with the I/O not complete:
//!
//! - spin to the next point t': V(t') + E[min(T, t') - t; T > t];
//! - sleep until s, for any s > t: c P(T > t) + E[ λ (s + W - T)+ ; T > t ] + E[ V(s + W) ].
//!
//! With A(x) = E[(x - T)+] the middle term is λ (E[A(s + W)] - F(t)(s + E[W]) + M(t)), where
//! M(t) = E[T; T ≤ t]. So the cost of sleeping is B(s) - λ F(t) s and terms without s, where
//! B(s) = E[V(s + W) + λ A(s + W)] does not depend on t. The best s at t is found on the lower
//! convex hull of the points (s, B(s)), which grows as t goes backwards. The whole takes
//! n (|W| + log n) steps instead of n² |W|.
//!
//! For a percentile the price μ is on being found beyond the limit X instead:
//! μ P(s + W > X) (F(X) - F(t))+, for I/Os that would have been in time. It has the same form, with
//! P(s + W > X) in the place of s.

use super::grid::{Known, Wake, step_ns};
use super::schedule::Schedule;
use super::search::Expected;
use super::{Solve, after_wake_ns, limit_ns};
use crate::sim::distribution::Distribution;
use crate::sim::machine::Machine;
use crate::sim::trace::Trace;
use meantime_completion::{Class, Goal};

/// All classes of a trace.
#[derive(Debug)]
pub(super) struct Problem {
    classes: Vec<OneClass>,
}

#[derive(Debug)]
struct OneClass {
    class: Class,
    share: f64,
    step_ns: f64,
    known: Known,
    wake: Wake,
    /// CPU of a sleep, in steps.
    sleep_cpu: f64,
    /// The first point at which a sleep can begin.
    start: usize,
    /// Time in ns between the grid point `start` and the actual start.
    before_start_ns: f64,
    limit: Option<Limit>,
}

#[derive(Debug)]
struct Limit {
    /// The last point at which a sleeper may find the completion.
    point: usize,
    /// P(T ≤ limit).
    done: f64,
}

/// A schedule for each class.
pub(super) type Plan = Vec<(Class, Schedule)>;

impl Problem {
    pub(super) fn new(trace: &Trace, machine: &Machine, goal: Goal) -> Self {
        let mut times: Vec<(Class, Vec<u64>)> = Vec::new();
        for io in &trace.ios {
            let class = Trace::class_at_depth_1(io);
            match times.iter_mut().find(|(known, _)| *known == class) {
                Some((_, times)) => times.push(io.device_ns),
                None => times.push((class, vec![io.device_ns])),
            }
        }
        let all = trace.ios.len() as f64;
        let limit_ns = limit_ns(goal, machine);
        let one = |(class, times): (Class, Vec<u64>)| {
            let (share, times) = (times.len() as f64 / all, Distribution::of_samples(times));
            OneClass::new(class, share, &times, machine, limit_ns)
        };
        Self { classes: times.into_iter().map(one).collect() }
    }
}

impl Solve for Problem {
    type Plan = Plan;

    fn solve(&self, price: f64) -> (Plan, Expected) {
        let mut sum = Expected::default();
        let plan = self.classes.iter().map(|one| {
            let (schedule, expected) = one.solve(price);
            sum.add(one.share, &expected);
            (one.class, schedule)
        });
        (plan.collect(), sum)
    }
}

impl OneClass {
    fn new(
        class: Class,
        share: f64,
        times: &Distribution,
        machine: &Machine,
        limit_ns: Option<f64>,
    ) -> Self {
        let longest_ns = times.quantile_ns(1.0);
        let step_ns = step_ns(times.quantile_ns(0.5), longest_ns);
        let wake = Wake::new(&machine.timer_wake, after_wake_ns(machine), step_ns);
        let known = Known::new(times, step_ns, wake.most + 1);
        let limit = limit_ns.map(|limit_ns| {
            let in_time_ns = limit_ns - machine.look_ns as f64;
            let in_time = times.samples_ns().partition_point(|ns| *ns as f64 <= in_time_ns);
            Limit {
                point: (limit_ns / step_ns).max(0.0) as usize,
                done: in_time as f64 / times.samples_ns().len() as f64,
            }
        });
        Self {
            class,
            share,
            step_ns,
            wake,
            sleep_cpu: (machine.sleep_cpu_ns + after_wake_ns(machine)) as f64 / step_ns,
            start: (after_wake_ns(machine) as f64 / step_ns) as usize,
            before_start_ns: after_wake_ns(machine) as f64 % step_ns,
            known,
            limit,
        }
    }

    /// Returns the share of I/Os that end beyond the limit only because of a sleep that began at
    /// `point`: P(T in time; T > t).
    fn in_time(&self, point: usize) -> f64 {
        self.limit.as_ref().map_or(0.0, |limit| (limit.done - self.known.done[point]).max(0.0))
    }

    fn solve(&self, price: f64) -> (Schedule, Expected) {
        let Self { known, wake, .. } = self;
        let (late_price, beyond_price) =
            if self.limit.is_some() { (0.0, price) } else { (price, 0.0) };
        let last = known.last;
        let mut ahead = vec![Expected::default(); last + wake.most + 2];
        // For each end, this is the cost of a sleep, whenever it begins, and its share beyond the
        // limit.
        let mut sleeps = vec![(Expected::default(), 0.0); last + 1];
        let mut actions = vec![0u32; last + 1];
        let mut hull = Hull::default();
        let cost = |of: &Expected| of.cpu + late_price * of.late + beyond_price * of.beyond;
        for t in (0..last).rev() {
            let s = t + 1;
            let (mut sleep, mut share_beyond) = (Expected::default(), 0.0);
            for &(w, p) in &wake.steps {
                let x = s + w;
                if x <= last {
                    sleep.add(p, &ahead[x]);
                    sleep.late += p * known.late(x);
                } else {
                    sleep.late += p * (x as f64 - known.moment[last]);
                }
                if self.limit.as_ref().is_some_and(|limit| x > limit.point) {
                    share_beyond += p;
                }
            }
            // The place does not fall as s decreases.
            let place = if self.limit.is_some() { -share_beyond } else { -(s as f64) };
            hull.push(place, cost(&sleep), s);
            sleeps[s] = (sleep, share_beyond);
            let slope = late_price * known.done[t] - beyond_price * self.in_time(t);
            let s = hull.lowest(slope);
            let (sleep, share_beyond) = &sleeps[s];
            let asleep = Expected {
                cpu: self.sleep_cpu * known.left(t) + sleep.cpu,
                late: sleep.late - known.done[t] * (s as f64 + wake.mean) + known.moment[t],
                beyond: sleep.beyond + self.in_time(t) * share_beyond,
            };
            let spun = Expected { cpu: ahead[t + 1].cpu + known.spun(t), ..ahead[t + 1] };
            let sleeps_here = t >= self.start && cost(&asleep) < cost(&spun) - 1e-12;
            (ahead[t], actions[t]) = if sleeps_here { (asleep, s as u32) } else { (spun, 0) };
        }
        let lost = self.limit.as_ref().map_or(0.0, |limit| 1.0 - limit.done);
        let before_ns = if actions[self.start.min(last)] != 0 { self.before_start_ns } else { 0.0 };
        let Expected { cpu, late, beyond } = ahead[0];
        let expected = Expected {
            cpu: cpu * self.step_ns + before_ns,
            late: late * self.step_ns,
            beyond: beyond + lost,
        };
        (Schedule::of_points(&actions, self.step_ns), expected)
    }
}

/// The lower convex hull of points that are added in order of their place.
#[derive(Debug, Default)]
struct Hull {
    /// Place, value and index of each point.
    points: Vec<(f64, f64, usize)>,
}

impl Hull {
    fn push(&mut self, place: f64, value: f64, of: usize) {
        if let Some(last) = self.points.last()
            && last.0 == place
        {
            if last.1 <= value {
                return;
            }
            self.points.pop();
        }
        while let [.., a, b] = self.points.as_slice()
            && (b.1 - a.1) * (place - a.0) >= (value - a.1) * (b.0 - a.0)
        {
            self.points.pop();
        }
        self.points.push((place, value, of));
    }

    /// Returns the index of the point whose value plus `slope` times its place is the lowest. The
    /// hull has at least one point.
    fn lowest(&self, slope: f64) -> usize {
        let (mut low, mut high) = (0, self.points.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            let (a, b) = (self.points[middle], self.points[middle + 1]);
            if b.1 - a.1 + slope * (b.0 - a.0) >= 0.0 {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.points[low].2
    }
}
