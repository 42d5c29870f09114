//! How an executor waits on several channels: as a [`PollGroup`](crate::PollGroup) does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use super::super::futures::Driver;
use super::super::group::{GroupSleep, SMALL_NS};
use super::super::request::BlockChannel;
use meantime_completion::SPINS_PER_CLOCK;
use meantime_hw::EventFd;

/// The drivers of an executor's channels, and what waits on several of them need.
pub(super) struct Drivers<C: BlockChannel> {
    drivers: Vec<Driver<C>>,
    waits: RefCell<Waits>,
    /// Counts looks, and turns at running work.
    looks: Cell<u32>,
    turns: Cell<usize>,
}

/// Looks between two at the overdue work of channels without requests.
const LOOKS_PER_WORK: u32 = 32;

#[derive(Default)]
struct Waits {
    sleep: GroupSleep,
    /// The channels with requests.
    busy: Vec<usize>,
    /// What becomes readable by an interrupt of each channel.
    interrupts: Vec<Option<OwnedFd>>,
}

impl<C: BlockChannel> Drivers<C> {
    /// # Panics
    /// If there is none.
    pub(super) fn new(drivers: Vec<Driver<C>>) -> Self {
        assert!(!drivers.is_empty(), "an executor drives at least one channel");
        let mut waits = Waits::default();
        if drivers.len() > 1 {
            waits.interrupts = drivers.iter().map(Driver::descriptor).collect();
        }
        Self { drivers, waits: RefCell::new(waits), looks: Cell::new(0), turns: Cell::new(0) }
    }

    pub(super) fn all(&self) -> &[Driver<C>] {
        &self.drivers
    }

    /// The only driver.
    #[inline(always)]
    pub(super) fn only(&self) -> Option<&Driver<C>> {
        match &*self.drivers {
            [driver] => Some(driver),
            _ => None,
        }
    }

    /// Number of requests in flight.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> usize {
        self.drivers.iter().map(Driver::in_flight).sum()
    }

    /// Looks at every channel with requests.
    #[inline(always)]
    pub(super) fn process(&self) {
        if let Some(driver) = self.only() {
            driver.process();
            return;
        }
        self.looks.set(self.looks.get().wrapping_add(1));
        let works = self.looks.get().is_multiple_of(LOOKS_PER_WORK);
        for driver in &self.drivers {
            if driver.in_flight() > 0 {
                driver.process();
            } else {
                // Of a request that ended when it was sent.
                driver.deliver();
                if works && has_work(driver) {
                    driver.run_fitting(0);
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn plug(&self) {
        self.drivers.iter().for_each(Driver::plug);
    }

    #[inline(always)]
    pub(super) fn unplug(&self) {
        self.drivers.iter().for_each(Driver::unplug);
    }

    /// The time left before a request of any channel may be complete, in ns; `None` if unknown.
    pub(super) fn gap_left_ns(&self) -> Option<u64> {
        let mut least_ns = Some(u64::MAX);
        for driver in &self.drivers {
            // All are asked, so that all begin to find out.
            least_ns = driver.gap_left_ns().zip(least_ns).map(|(left, least)| left.min(least));
        }
        least_ns
    }

    /// Runs a piece of deferred work, if there is one.
    pub(super) fn run_piece(&self) -> bool {
        let first = self.turns.get();
        self.turns.set(first.wrapping_add(1));
        let count = self.drivers.len();
        (0..count).any(|n| self.drivers[(first % count + n) % count].run_piece())
    }

    /// Waits until a request of any channel has ended, or `stop`. A thread that makes it true
    /// signals `event`; `naps`: it may become true by time alone.
    pub(super) fn wait_until(&self, event: Option<&EventFd>, naps: bool, stop: &dyn Fn() -> bool) {
        if let Some(driver) = self.only() {
            driver.wait_until(stop);
            return;
        }
        let mut waits = self.waits.borrow_mut();
        let Waits { sleep, busy, interrupts } = &mut *waits;
        sleep.take_away();
        busy.clear();
        let is_busy = |driver: &Driver<C>| driver.in_flight() > 0 || has_work(driver);
        let drivers = self.drivers.iter().enumerate();
        busy.extend(drivers.filter(|(_, driver)| is_busy(driver)).map(|(at, _)| at));
        loop {
            for _ in 0..(SPINS_PER_CLOCK / (busy.len() as u32).max(1)).max(1) {
                let away = sleep.take_away();
                let ended: usize = busy.iter().map(|at| self.drivers[*at].look(away)).sum();
                if ended > 0 {
                    return;
                }
            }
            if stop() {
                return;
            }
            sleep.begin(u64::MAX);
            for at in &*busy {
                sleep.add(*at, self.drivers[*at].rest());
            }
            if naps || event.is_none() {
                sleep.limit();
            }
            if busy.iter().any(|at| has_work(&self.drivers[*at])) && self.runs_a_piece(busy) {
                sleep.worked();
                continue;
            }
            if sleep.may_sleep() {
                let fd = |at: usize| interrupts[at].as_ref().map(|fd| fd.as_fd());
                sleep.sleep(event.into_iter(), fd, &[], &mut VecDeque::new());
            }
        }
    }

    /// Runs a piece of deferred work that is overdue, or fits before any request may be complete.
    /// The channels take turns.
    fn runs_a_piece(&self, busy: &mut [usize]) -> bool {
        for left_ns in [0, self.gap_left_ns().unwrap_or(SMALL_NS)] {
            for n in 0..busy.len() {
                let driver = &self.drivers[busy[n]];
                if has_work(driver) && driver.run_fitting(left_ns) {
                    busy.rotate_left(n + 1);
                    return true;
                }
            }
        }
        false
    }
}

fn has_work<C: BlockChannel>(driver: &Driver<C>) -> bool {
    driver.channel().deferred() > 0
}
