//! The constants of `adaptive` that were chosen, in the order in which a reader meets them: what is
//! estimated, how it is decided, what is observed for it. The experiment behind each group stands
//! above it.
//!
//! "Half" and "twice" say what gets worse with that constant alone changed: a `LOG2` by one, and a
//! part or factor near one by half or twice its distance from one. "Without" it is zero, one or
//! without bound. One seed has one outcome, so all of it can be repeated:
//!
//! - grid: `cargo run --release -p meantime --example grid -- adaptive ios=10000 bare`, or `vm`:
//!   49 kinds of device. Latency over polling's, at most: 1.038 (bare), 1.051 (vm). CPU over the
//!   informed policy's: median 1.10 and 1.07, at most 1.52 and 1.69.
//! - shortage, quick, feedback and reachable: tests of this crate. `cargo nextest run --no-capture
//!   -p meantime-completion --test shortage` prints the figures. I/Os per second over those of the
//!   best fixed way where others have the CPU: at least 0.936, and 0.939 where they come and go.
//!   CPU soon after a start or a change of the device, over the long run's: at most 0.014 of a CPU
//!   more. I/Os on devices that sleeps slow down: at most 1.119 times as long.
//!
//! "Indifferent" is what makes none of these worse by more than 0.006 (latency), 0.015 (median of
//! CPU; quick), 0.15 (CPU at most), 0.025 (shortage) or 0.01 (feedback). Tests without a file are
//! unit tests beside the code.

use std::ops::RangeInclusive;

// ---- Estimate: device times (`times`, `Model`) ----

// docs/waiting.md, "What each part is worth": without drawn times 1.64 times the CPU (bare).
// REMEMBERED_IOS was 256: 64 points cannot hold a stall of 1 in 50 (docs/decisions.md). Grid,
// bare, latency: twice 1.053. The other two are indifferent; FAINT_PART only bounds the bins
// that are gone through.

/// The number of observations that are remembered: the weight of older ones has fallen to 1/e.
pub(super) const REMEMBERED_IOS: f32 = 1_024.0;
/// Times with less than this part of the weight of all observations are dropped.
pub(super) const FAINT_PART: f32 = 1e-5;
/// How often a time that is only known to be in a range is drawn from anywhere in the range, and
/// not from what is known of it.
pub(super) const DRAWN_ANYWHERE_PART: f32 = 0.05;

// The same table, "forgetting": 2.1 times the CPU after a change without it. Tests:
// `a_change_is_over_within_200_ios`, `after_the_device_has_changed`. CHANGED_SURPRISES: half
// 1.063 times polling's latency in grid, bare. The other four are indifferent there: its device
// that changes takes six times as long.

/// A time beyond this quantile at either end may be a surprise.
pub(super) const SURPRISING_QUANTILE: f32 = 0.02;
/// It is one if it is shorter than the lower quantile by this factor.
pub(super) const SURPRISING_FASTER_FACTOR: f32 = 1.15;
/// It is one if it is longer than the upper quantile by this factor.
pub(super) const SURPRISING_SLOWER_FACTOR: f32 = 1.1;
/// This many surprises mean that the device has changed: what was seen before is forgotten.
pub(super) const CHANGED_SURPRISES: f32 = 4.0;
/// Each I/O that is no surprise takes away this much of one.
pub(super) const CALMED_SURPRISES: f32 = 0.125;

// ---- Estimate: what a sleep costs (`wake`) ----

// `being_preempted_is_not_waking_late` is the test of PREEMPTED_FACTOR. In grid, vm, where 3 %
// of the wake-ups are 10 µs later, RENEW_SLEEPS, half, has a median of 1.084; the others are
// indifferent, because nothing preempts a sleeper there.

/// Wake-ups later than this many times the median count as preemption, which a spinning thread
/// suffers as well.
pub(super) const PREEMPTED_FACTOR: u32 = 4;
/// The distribution of lateness is summed up again after this many sleeps.
pub(super) const RENEW_SLEEPS: u32 = 8;
/// What is known of a sleep's CPU moves by this part of the difference to what one was charged.
pub(super) const SLEEP_CPU_STEP_PART: f32 = 0.125;
/// A charge counts as at most this many times what is known: more is a preemption.
pub(super) const SLEEP_CPU_MOST_FACTOR: f32 = 3.0;

// Tests by hand: `interrupts_are_as_late_as_half_of_them` and
// `signals_that_are_later_than_measured_are_found`. Indifferent in grid, vm, the first two also
// in shortage: interrupts are as late there as was measured at the start.

/// The lateness of interrupts is followed in steps of this part of it.
pub(super) const INTERRUPT_STEP_PART: f32 = 1.0 / 16.0;
/// While no interrupt is used, each decision forgets this part of what was seen of interrupts.
pub(super) const INTERRUPT_FORGET_PART: f32 = 0.02;
/// What is found of signals is followed in steps of at most this part of their lateness.
pub(super) const SIGNAL_STEP_PART: f32 = 1.0 / 8.0;

// Measured at the start of a process, on its machine; the simulator has no such start. On one
// CPU a woken thread takes over in 2 µs, from another it took 33 there; other threads are in the
// way, so the calmest batch counts (docs/waiting.md, "A sleep that the completion ends"). The
// values themselves are not the outcome of an experiment: they keep the measurement within some
// 15 ms.

/// Number of signals in a batch of the first measurement.
pub(super) const BATCH_SIGNALS: usize = 5;
/// Number of batches, of signals and of sleeps. The calmest one counts.
pub(super) const MEASURED_BATCHES: usize = 3;
/// Signals are measured for at most this time.
pub(super) const SIGNALS_TIMEOUT_MS: u64 = 100;
/// Signals count as at most this many times as late as a timer: more is another thread's doing.
pub(super) const SIGNAL_MOST_FACTOR: u32 = 8;

// ---- Decide: the plan (`Model`, `planner`) ----

// FIRST_PLAN_IOS: half, the slow device of `it_finds_the_interrupt_and_keeps_it` takes 2.6 % of
// a CPU instead of 1.7 at depth 4; twice, 1.2 % instead of 0.64 at depth 1, and CPU median 1.085
// in grid, vm. REPLAN_IOS: half, latency 1.047 in grid, bare; twice, CPU median 1.09 and most
// 1.9 with vm; a plan takes 2 to 10 µs. REPRICED_FACTOR: indifferent; without it, CPU at most
// 1.84 in grid, bare.

/// Number of I/Os of a class before its first plan.
pub(super) const FIRST_PLAN_IOS: u32 = 4;
/// Plans are renewed after 4, 8, 16 … up to this many I/Os.
pub(super) const REPLAN_IOS: u32 = 128;
/// Plans are also renewed when the price has changed by this factor.
pub(super) const REPRICED_FACTOR: f32 = 1.5;

// Came with stretches instead of points, between which a plan slept in gaps that no device has:
// CPU in grid, `frontier`, at most 2.5 before and 1.15 after, all in all (docs/waiting.md).
// `a_stretch_has_no_gaps_to_sleep_in`. ADJACENT_RARE_PART: half, latency 1.044 in grid, bare.
// The others: indifferent; without LONE_STRETCH_PART also 1.044.

/// Neighbouring times are parts of one stretch if they differ by less than this part.
pub(super) const ADJACENT_PART: f32 = 0.06;
/// Neighbours that are both as rare as single observations may differ by less than this part.
pub(super) const ADJACENT_RARE_PART: f32 = 0.15;
/// A time with less than this part of the I/Os is as rare as that.
pub(super) const RARE_PART: f32 = 0.06;
/// A time without neighbours stands for this part of itself.
pub(super) const LONE_STRETCH_PART: f32 = 0.015;

// Indifferent in grid, bare. Without PLANNED_LEAST_NS latency is 1.048 there; without
// SLEEP_LEAST_NS no figure changes by more than 0.2 %.

/// The planner makes no shorter sleeps.
pub(super) const PLANNED_LEAST_NS: f32 = 100.0;
/// A sleep that is cut short, or made for another reason than a plan, is not shorter than this.
pub(super) const SLEEP_LEAST_NS: u32 = 500;
/// A plan is made with the costs of a sleep that is as long as this quantile of the device time.
pub(super) const TYPICAL_QUANTILE: f32 = 0.25;
/// The part of that quantile that the sleep lasts.
pub(super) const TYPICAL_SLEPT_PART: f32 = 0.8;
/// Spinning ends this much after twice the longest time seen.
pub(super) const PATIENCE_NS: u64 = 50_000;

// Came with interrupts that end planned sleeps (docs/waiting.md, "A sleep that the completion
// ends"). Latency in grid, bare: LONG_SLEEP_FACTOR twice 1.046; LONG_SLEEP_COST_FACTOR half 1.049;
// SIGNAL_CPU_PART twice 1.044. Without SIGNAL_CPU_PART CPU is less there, 1.43 at most: to read
// a signal takes 200 ns in the simulator. WORTH_INTERRUPT_FACTOR and ALONE_IOS: indifferent,
// also with vm.

/// The queue with an interrupt is used where it is better by this factor, since it makes work for
/// the kernel.
pub(super) const WORTH_INTERRUPT_FACTOR: f32 = 0.95;
/// A sleep of more than this many times its lateness is long.
pub(super) const LONG_SLEEP_FACTOR: f32 = 8.0;
/// For long sleeps that queue may be worse by this factor: it bounds what a wrong estimate costs.
pub(super) const LONG_SLEEP_COST_FACTOR: f32 = 1.05;
/// An I/O that is found by spinning leaves a signal to be read: this part of a sleep's CPU.
pub(super) const SIGNAL_CPU_PART: f32 = 0.25;
/// That queue is used only if the thread had at most one I/O in flight at this many submissions:
/// to wait for both queues is to spin.
pub(super) const ALONE_IOS: u32 = 64;

// ---- Decide: the price of lateness (`control`) ----

// LATENCY_AIM_PART: a sleep also cools caches, which makes I/Os some 200 ns slower, and no
// lateness shows it (docs/decisions.md). At 0.925 `within_its_goal_and_near_the_least_cpu` has
// 1.031 of polling's latency, where 1.03 is the goal; at 0.7 the CPU is 1.12 in grid, bare,
// median. WORTH_CPU_FACTOR: a fixed lowest price leaves a slow device's budget unused, or buys
// nothing (docs/decisions.md); half, latency 1.047 in grid, bare. There also PRICE_GAIN_LOG2,
// twice: 1.047 (half, 26.9 % in `a_share_of_the_cpu_is_held`), and half of the upper limit of
// PRICE_STEP_LOG2: 1.060. Its lower limit, FIRST_PRICE_LOG2 and PRICE_STEP_IOS: indifferent.
// HIGHEST_PRICE_LOG2: so, too, also without it; it keeps the price from growing for as long as
// lateness has another cause than sleeps.

/// The first price: 1 in 9 I/Os is overslept.
pub(super) const FIRST_PRICE_LOG2: f32 = 3.0;
/// The highest price: 1 in 1,000 I/Os is overslept.
pub(super) const HIGHEST_PRICE_LOG2: f32 = 10.0;
/// A latency budget is not used up where one percent more latency saves less than this many
/// percent of the CPU.
pub(super) const WORTH_CPU_FACTOR: f32 = 2.0;
/// The part of the latency budget that is aimed at.
pub(super) const LATENCY_AIM_PART: f32 = 0.85;
/// Number of I/Os in a control step.
pub(super) const PRICE_STEP_IOS: u32 = 16;
/// A step moves the price by this times the control error.
pub(super) const PRICE_GAIN_LOG2: f32 = 0.3;
/// A step moves the price by no more than this, down and up.
pub(super) const PRICE_STEP_LOG2: RangeInclusive<f32> = -0.5..=1.0;

// reachable, `a_share_of_the_cpu_is_held`: 28.4 to 30.2 %. CPU_STEP_NS: half 29.1 to 30.1 %,
// twice 26.9 to 30.3 %, beyond the 27 that the test allows. CPU_PRICE_LOG2: at -5 it is above
// TAIL_PRICE_LOG2, see there; at -7 indifferent. LONGEST_STRETCH_LOG2: indifferent, because 30 %
// are reached with less.

/// With a goal of CPU the price falls to this, where lateness is nearly free, before sleeps are
/// stretched.
pub(super) const CPU_PRICE_LOG2: f32 = -6.0;
/// Sleeps are stretched by up to two to this power, less one, times the device time.
pub(super) const LONGEST_STRETCH_LOG2: f32 = 5.0;
/// Least time between readings of the thread's CPU, which are system calls.
pub(super) const CPU_STEP_NS: u64 = 3_000_000;

// reachable, `a_percentile_is_held_for_little_cpu`: percentiles at 0.73 to 0.87 of the goal, for
// 0.08 to 0.16 of polling's CPU. TAIL_PRICE_LOG2 was -4; -6 takes less CPU. Below CPU_PRICE_LOG2
// sleeps are stretched: at -7 the percentiles are at 1.00. The others: indifferent.

/// The price with a goal of a percentile, which the margin holds: lateness is cheap.
pub(super) const TAIL_PRICE_LOG2: f32 = -6.0;
/// The part of the I/Os allowed beyond the percentile that is aimed at.
pub(super) const TAIL_AIM_PART: f32 = 0.85;
/// An I/O beyond it makes the margin larger by this part of the percentile's time.
pub(super) const MARGIN_STEP_PART: f32 = 0.025;
/// The first margin, in times of a sleep's lateness.
pub(super) const FIRST_MARGIN_WAKES: f32 = 2.0;

// ---- Decide: polling, planned sleeps or the interrupt (`choice`) ----

// To decide often at first came with quick, `after_a_start`. FIRST_DECISION_NS: half, one of all
// its cells (`MEANTIME_SIMULATED_ALL=1`) uses 0.099 of a CPU more instead of 0.047, and latency
// is 1.055 in grid, bare; twice, CPU is at most 1.71 there, and a slow device takes 2.2 % of a
// CPU and not 1.7 in reachable, `it_finds_the_interrupt_and_keeps_it` at depth 4.
// EXPERIENCE_DECISIONS: half, shortage that comes and goes has 0.826. DECISION_NS and
// SHORT_DECISION_NS: indifferent in shortage.

/// Time until the first decision, when there are observations.
pub(super) const FIRST_DECISION_NS: u64 = 20_000_000;
/// The next decision comes after the experience with the device over this.
pub(super) const EXPERIENCE_DECISIONS: u64 = 2;
/// The longest time between two decisions.
pub(super) const DECISION_NS: u64 = 1_000_000_000;
/// The longest time between two decisions while the CPU is short.
pub(super) const SHORT_DECISION_NS: u64 = 50_000_000;

// `a_small_saving_changes_nothing` pins SAVING_FACTOR and KEEP_FACTOR. All four are indifferent
// in grid and shortage; without PLANNED_LATE_PART one of the grid's devices (bare) takes 23
// times the least CPU.

/// A change has to reduce the CPU to this factor.
pub(super) const SAVING_FACTOR: f32 = 0.9;
/// The present way may exceed the shortest time by this many times what others may.
pub(super) const KEEP_FACTOR: f32 = 1.2;
/// While the CPU is short, the present way may exceed it by this many times what others may.
pub(super) const KEEP_SHORT_FACTOR: f32 = 2.0;
/// Planned sleeps hold their goal: they count as late by at most this part of what it allows.
pub(super) const PLANNED_LATE_PART: f32 = 0.9;

// A mount with one job lost a third to a half by interrupts that were only expected to be good
// (docs/decisions.md, "While the CPU is short"), and one bad trial decided for good;
// `what_was_measured_counts_more_than_what_was_expected` is that by hand. All are indifferent in
// shortage, whose thread does nothing between I/Os, has one in flight, and lives for seconds.

/// Waiting for an interrupt costs at most this many times the CPU of a sleep: a program that
/// computes between its I/Os makes it look dearer.
pub(super) const INTERRUPT_CPU_SLEEPS: f32 = 3.0;
/// Each decision for another way keeps this part of the measured cost of an interrupt, so that the
/// interrupt is tried again: the measurement may have been accidental.
pub(super) const INTERRUPT_CPU_KEPT_PART: f32 = 0.98;
/// The deepest queue at which an interrupt is measured.
pub(super) const MEASURED_DEPTH_IOS: f32 = 4.0;
/// While the CPU is short, a way that was left is not tried again for this time, times the square
/// of how much slower it was; for twice as long each time.
pub(super) const LEFT_NS: f32 = 3e9;
/// The longest such time.
pub(super) const LEFT_LONGEST_NS: u64 = 60_000_000_000;

// ---- Observe: I/Os that are waited for otherwise, to see what waiting hides ----

// docs/waiting.md, "What each part is worth": without waking early, latency is 58 % more after a
// change; without the next after 32 oversleeps, CPU 43 % more. In grid, bare: EXPLORE_EVERY_IOS
// half, CPU median 1.118; EXPLORE_INTERRUPTED_IOS half, CPU at most 1.68. Twice these, and the
// others: indifferent.

/// One I/O in this many is woken for early.
pub(super) const EXPLORE_EVERY_IOS: u32 = 48;
/// One I/O in this many is woken for early where an I/O ends its sleep itself, and so shows its
/// time except for the wake-up's.
pub(super) const EXPLORE_INTERRUPTED_IOS: u32 = 192;
/// One I/O is woken for early after this many oversleeps in a row.
pub(super) const EXPLORE_AFTER_OVERSLEEPS: u32 = 32;
/// Before this quantile an I/O is unlikely to end.
pub(super) const SOONEST_QUANTILE: f32 = 0.02;
/// To wake early is to run at this part of that quantile.
pub(super) const EXPLORE_SOONEST_PART: f32 = 0.97;
/// Nearly all I/O has ended at this quantile: what takes longer is slept for as usual.
pub(super) const MOST_QUANTILE: f32 = 0.9;

// `a_bad_moment_is_soon_forgotten`: four probes, in 124 ms of I/Os that take 1 ms, undo a moment
// in which sleeps were dear, and then they are seldom. With one sleep in 100 ms of the weight of
// any other, one run in ten used a whole CPU for seconds to minutes: docs/benchmarks.md,
// "Learning", is the measurement. Indifferent in grid, vm, where sleeps never become dear.
// SPIN_SAMPLE_IOS: indifferent in grid, bare; 15 of 16 I/Os are as cheap as under `poll`.

/// Where no sleep pays, one I/O in this many is timed.
pub(super) const SPIN_SAMPLE_IOS: u32 = 16;
/// Where no sleep pays, one is made after this time, to measure its present cost; each time after
/// twice as long.
pub(super) const FIRST_PROBE_NS: u64 = 4_000_000;
/// The longest such time.
pub(super) const LAST_PROBE_NS: u64 = 100_000_000;
/// It also takes this many timed I/Os, so that few are delayed by it, however rare they are; twice
/// as many each time.
pub(super) const FIRST_PROBE_IOS: u32 = 8;
/// The most of them.
pub(super) const LAST_PROBE_IOS: u32 = 128;
/// A probe counts as much as this many other sleeps, since the remembered ones are old.
pub(super) const PROBE_WEIGHT_SLEEPS: usize = 8;
/// `SLEEP_CPU_STEP_PART` of a probe.
pub(super) const PROBE_CPU_STEP_PART: f32 = 0.5;
/// `SLEEP_CPU_MOST_FACTOR` of a probe.
pub(super) const PROBE_CPU_MOST_FACTOR: f32 = 1.5;

// reachable, `it_finds_the_interrupt_and_keeps_it`: PROBE_IOS, half, 0.93 % of a CPU instead of
// 0.64 at depth 1; twice is indifferent there and in grid. PROBE_DEEP_IOS: half 1.9 %, twice 2.1
// % instead of 1.7 at depth 4. PROBE_SHORT_IOS: indifferent in shortage.

/// An interrupt does not show when the I/O ended, so one I/O in this many is polled for.
pub(super) const PROBE_IOS: u32 = 32;
/// While the CPU is short, one I/O in this many is polled for.
pub(super) const PROBE_SHORT_IOS: u32 = 512;
/// With others in flight, one I/O in this many is polled for: waiting for both queues means
/// spinning.
pub(super) const PROBE_DEEP_IOS: u32 = 4_096;

// ---- Observe: how much of its CPU the thread gets (`share`) ----

// shortage and scripts/bench-shortage.sh;
// `another_thread_is_noticed_within_30_ms_and_its_part_measured` and
// `a_quota_is_noticed_when_it_is_first_used_up` by hand. LOOK_NS: half 0.838, and 0.842 where
// others come and go; twice 0.844. RECENT_NS: half 0.602 with a quota of half a CPU; twice 0.648
// where four come and go. STEADY_NS: indifferent.

/// Time between two looks at the CPU that the thread had.
pub(super) const LOOK_NS: u64 = 4_000_000;
/// Whether the CPU is short is told from times that count 1/e when they are this old. About one
/// period of a quota.
pub(super) const RECENT_NS: f32 = 1e8;
/// Shares are measured from times that count 1/e when they are this old.
pub(super) const STEADY_NS: f32 = 1e9;

// The same; `one_that_sleeps_learns_how_long_it_waits_after_it`. ALWAYS_PART: indifferent, but
// 0.739 without it. The others: indifferent in shortage, where I/Os follow each other at once,
// for some seconds at most. CLOSE_NS is for I/Os that are far apart; WAKE_WAIT_FORGET_NS is
// there so that nothing that is no longer seen counts for ever.

/// A thread that wants to run for more than this part of the time always wants to.
pub(super) const ALWAYS_PART: f32 = 0.9;
/// A wait this long is that of a thread whose group has used up its quota, or that had more than
/// its part: not one for a turn after a sleep.
pub(super) const STOPPED_NS: f32 = 8e6;
/// Looks are this close together if the thread has I/Os all the time. Otherwise it is not known
/// whether it waited at once.
pub(super) const CLOSE_NS: f32 = 1.5e7;
/// The delay of wake-ups falls to 1/e in this time while the thread does not sleep.
pub(super) const WAKE_WAIT_FORGET_NS: f32 = 5e9;

// The same, and a mount with one job (docs/decisions.md, "While the CPU is short"). Indifferent
// in shortage; without MEASURED_WAITS 0.720, with a quota of a tenth of a CPU; without CATCH_UP_NS
// even 0.943 and 0.971. MEASURED_IOS is for devices that do fewer in MEASURED_NS than it has.

/// After a change the scheduler still makes up for what the thread did before, for this time.
pub(super) const CATCH_UP_NS: u64 = 25_000_000;
/// What an I/O takes counts as measured only after this time from then on.
pub(super) const MEASURED_NS: f32 = 4e7;
/// It also takes this many of the longest waits.
pub(super) const MEASURED_WAITS: f32 = 4.0;
/// It also takes this many I/Os.
pub(super) const MEASURED_IOS: f32 = 16.0;

// shortage; `a_shortage_is_remembered_for_longer_if_it_comes_back`. SHORT_WAITS: half 0.547 and
// twice 0.623, where four come and go. TRIAL_NS: half 0.887, twice 0.911 there.
// SHORT_LONGEST_NS: indifferent, since none of the runs is as long.

/// The CPU is assumed to stay short for this many times the longest wait: to find out that it
/// still is costs one. Twice as long each time that it was so.
pub(super) const SHORT_WAITS: f32 = 20.0;
/// The longest such time.
pub(super) const SHORT_LONGEST_NS: u64 = 60_000_000_000;
/// If the CPU is still short, that shows in this time: a quota's period is mostly 100 ms.
pub(super) const TRIAL_NS: u64 = 150_000_000;

// ---- Observe: whether sleeps slow the device down (`feedback`) ----

// feedback: on a device that takes longer by half of the sleep before, I/Os took 1.6 times as
// long before there were comparisons. POLLED_IOS: twice 1.130. The others: indifferent.
// COMPARISON_IOS says what polling costs where nothing is wrong, 12 of 16,384; without
// UNCOUNTED_IOS all is the same, because the simulator's device recovers within one I/O.

/// I/Os between two comparisons at first, or when something has changed.
pub(super) const FIRST_COMPARISON_IOS: u32 = 64;
/// They grow by this factor.
pub(super) const COMPARISON_GROWTH_FACTOR: u32 = 4;
/// The most of them.
pub(super) const COMPARISON_IOS: u32 = 16_384;
/// I/Os that are polled for in a comparison.
pub(super) const POLLED_IOS: u32 = 12;
/// The first ones that are polled for may still suffer from the sleeps: these do not count.
pub(super) const UNCOUNTED_IOS: u32 = 3;
/// I/Os before them that they are compared with.
pub(super) const SLEPT_IOS: u32 = 32;

// The same. HARM_PART: twice 1.245. SIGNIFICANT_ERRORS: twice 1.228; half is not worse there, but
// it is for a device that changes (`a_device_that_changes_is_slept_for_as_before`). The
// others: indifferent; `they_are_tried_again` is the test of HOLD_COMPARISONS.

/// A sleep is too long if it adds more than this part to the time of an I/O.
pub(super) const HARM_PART: f32 = 0.09;
/// A difference counts only if it exceeds the bound by this many standard errors.
pub(super) const SIGNIFICANT_ERRORS: f32 = 2.5;
/// Earlier comparisons count for this part.
pub(super) const COMPARED_KEPT_PART: f32 = 0.875;
/// The shortest part of a sleep that is tried.
pub(super) const SLEPT_LEAST_PART: f32 = 0.125;
/// Comparisons until a longer sleep is tried again: doubled each time that it was too long.
pub(super) const HOLD_COMPARISONS: u32 = 4;
/// The most of them.
pub(super) const HOLD_LONGEST_COMPARISONS: u32 = 256;
