//! A small single-threaded executor: it runs ready tasks, looks at its channels' queues between
//! them, and waits by the channels' policies when none is ready.

mod deferrals;
mod ready;
mod several;
mod task;

use std::cell::Cell;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::futures::{AsyncChannel, DriverTaken};
use super::request::BlockChannel;
use meantime_hw::EventFd;
use ready::Home;
use several::Drivers;
pub use task::JoinHandle;
use task::{ROOT, Tasks};

/// Tasks run before their requests are sent.
const ROUND: u32 = 16;

/// Runs futures on this thread, and drives an [`AsyncChannel`], or several.
///
/// Between rounds of tasks it reaps completions. When no task is ready it waits, by the channel's
/// policy if requests are in flight, else asleep; on several channels as a
/// [`PollGroup`](super::PollGroup) does. A task's waker may be used on any thread. It ends
/// such a wait at once, except during the sleep of a `hybrid` policy and the naps after its spin
/// budget (of up to 1 ms), which end first.
///
/// Requests of one round are collected, and sent with one doorbell.
///
/// ```
/// use meantime::block::{AsyncChannel, BlockDevice, ChannelOptions, Executor, OpenOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
/// let channel = AsyncChannel::new(device.channel(&ChannelOptions::default())?);
/// let executor = Executor::new(&channel)?;
///
/// let readers: Vec<_> = (0..100)
///     .map(|task| {
///         let channel = channel.clone();
///         executor.spawn(async move {
///             let mut buf = channel.alloc(4096)?;
///             for n in 0..10 {
///                 buf = channel.read(8 * (10 * task + n), buf).await?;
///             }
///             Ok::<_, Box<dyn std::error::Error>>(buf.len())
///         })
///     })
///     .collect();
///
/// executor.block_on(async {
///     for reader in readers {
///         assert_eq!(reader.await?, 4096);
///     }
///     Ok(())
/// })
/// # }
/// ```
pub struct Executor<C: BlockChannel> {
    tasks: Rc<Tasks>,
    drivers: Drivers<C>,
    /// Ends waits on several channels.
    event: Option<EventFd>,
    running: Cell<bool>,
}

/// Spawns tasks on an [`Executor`], also from its tasks.
#[derive(Clone)]
pub struct Spawner {
    tasks: Weak<Tasks>,
}

impl<C: BlockChannel> Executor<C> {
    /// An executor that drives `channel`.
    ///
    /// # Errors
    /// [`DriverTaken`] if the channel has a driver already.
    pub fn new(channel: &AsyncChannel<C>) -> Result<Self, DriverTaken> {
        Self::over([channel])
    }

    /// An executor that drives `channels`, of one or several devices. Each waits by its own policy;
    /// one without requests costs a few ns a round.
    ///
    /// # Errors
    /// [`DriverTaken`] if one of them has a driver already, for instance because it is named twice.
    ///
    /// # Panics
    /// If there is no channel.
    pub fn over<'a>(
        channels: impl IntoIterator<Item = &'a AsyncChannel<C>>,
    ) -> Result<Self, DriverTaken>
    where
        C: 'a,
    {
        let drivers: Result<Vec<_>, _> = channels.into_iter().map(AsyncChannel::driver).collect();
        let drivers = Drivers::new(drivers?);
        // A thread that makes a task ready signals what the wait may block on.
        let event = match drivers.only() {
            Some(driver) => driver.event(),
            None => EventFd::new().ok(),
        };
        let tasks = Rc::new(Tasks::new(Arc::new(Home::new(event.clone()))));
        drivers.all().iter().for_each(|driver| driver.set_executor(&tasks.root));
        Ok(Self { tasks, drivers, event, running: Cell::new(false) })
    }

    /// The first channel that it drives.
    pub fn channel(&self) -> &AsyncChannel<C> {
        self.drivers.all()[0].channel()
    }

    /// The channels that it drives.
    pub fn channels(&self) -> impl Iterator<Item = &AsyncChannel<C>> {
        self.drivers.all().iter().map(|driver| driver.channel())
    }

    /// Spawns `future` as a task. It runs while this thread is in [`block_on`](Self::block_on) or
    /// [`run`](Self::run).
    ///
    /// # Panics
    /// If there are a million tasks already.
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.tasks.spawn(future)
    }

    /// Spawns `future` as a task for the gap. It is polled when no other task is ready and a poll,
    /// which takes at most `bound_ns`, fits before the next request may be complete; always when no
    /// request is in flight; and after 10 ms, when no other task is ready, whether it fits or not.
    /// It may use the channel, unlike [deferred](AsyncChannel::defer) work.
    ///
    /// # Panics
    /// If there are a million tasks already.
    pub fn spawn_deferred<F: Future + 'static>(
        &self,
        bound_ns: u64,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.tasks.spawn_deferred(bound_ns, future)
    }

    /// A handle to spawn tasks from tasks.
    pub fn spawner(&self) -> Spawner {
        Spawner { tasks: Rc::downgrade(&self.tasks) }
    }

    /// Number of tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.live()
    }

    /// Runs `future`, and tasks beside it, until it is ready. Unfinished tasks continue in the next
    /// call.
    ///
    /// A panic of `future` is raised here; that of a task, where its [`JoinHandle`] is awaited. In
    /// both cases the buffers of requests in flight stay in the channel, and go back to their heap
    /// when the device is done with them.
    ///
    /// # Panics
    /// If `future` does, or if called from a task of this executor.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let _running = self.enter();
        let root = &self.tasks.root;
        root.wake_by_ref();
        let mut output = None;
        loop {
            self.round(&mut || {
                if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(root)) {
                    output = Some(ready);
                }
                output.is_some()
            });
            if let Some(output) = output {
                return output;
            }
            self.look_or_wait();
        }
    }

    /// Runs until every task has ended.
    pub fn run(&self) {
        let _running = self.enter();
        while self.tasks.live() > 0 {
            self.round(&mut || false);
            if self.tasks.live() > 0 {
                self.look_or_wait();
            }
        }
    }

    fn enter(&self) -> Running<'_, C> {
        let nested = self.running.replace(true);
        assert!(
            !nested,
            "block_on within a task of the same executor: await the future there, or spawn it"
        );
        Running { executor: self, _entered: self.tasks.home.enter() }
    }

    /// Runs every ready task once. True if `root` returns that it is done.
    #[inline(always)]
    fn round(&self, root: &mut impl FnMut() -> bool) {
        if self.tasks.home.take_remote() {
            self.tasks.groups().for_each(|group| group.merge_remote());
        }
        let mut ran = 0;
        // On every exit from the round, including a panic of the root's future.
        let mut plug = Plug { drivers: &self.drivers, plugged: false };
        for (base, group) in self.tasks.groups().enumerate() {
            let mut summary = group.summary();
            while summary != 0 {
                let word = summary.trailing_zeros() as usize;
                summary &= summary - 1;
                // Tasks left when the round ends early stay ready.
                let mut left = Left { group, word, bits: group.take(word) };
                // A single task need not wait for others before its request is sent.
                if !plug.plugged
                    && (left.bits.count_ones() > 1 || summary != 0 || self.drivers.in_flight() > 0)
                {
                    plug.plugged = true;
                    self.drivers.plug();
                }
                while left.bits != 0 {
                    let index =
                        base * ready::GROUP + word * 64 + left.bits.trailing_zeros() as usize;
                    left.bits &= left.bits - 1;
                    if index == ROOT {
                        if root() {
                            return;
                        }
                    } else {
                        self.tasks.run(index);
                    }
                    ran += 1;
                    if plug.plugged && ran % ROUND == 0 {
                        self.drivers.unplug();
                        self.drivers.plug();
                    }
                }
            }
        }
    }

    /// Looks at the queue; if no task is ready afterwards, waits.
    #[inline(always)]
    fn look_or_wait(&self) {
        self.drivers.process();
        if !self.is_ready() {
            self.wait();
        }
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.tasks.groups().any(|group| group.summary() != 0)
    }

    fn wait(&self) {
        let Tasks { home, deferrals, .. } = &*self.tasks;
        if deferrals.is_any() && deferrals.permit(self.drivers.gap_left_ns()) {
            return;
        }
        // There is free time: runs a piece, then looks at the queue again.
        if self.drivers.in_flight() == 0 && self.drivers.run_piece() {
            return;
        }
        home.sleep(|| {
            if self.drivers.in_flight() > 0 {
                // (A piece of deferred work may have made a task ready.)
                let stop = || home.has_remote() || self.is_ready() || deferrals.is_overdue();
                self.drivers.wait_until(self.event.as_ref(), deferrals.is_any(), &stop);
            } else {
                std::thread::park();
            }
        });
    }
}

/// Ready bits taken from a word of tasks; dropping it puts the unused ones back.
struct Left<'a> {
    group: &'a ready::Group,
    word: usize,
    bits: u64,
}

impl Drop for Left<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.bits != 0 {
            self.group.put_back(self.word, self.bits);
        }
    }
}

/// Unplugs the channel on drop.
struct Plug<'a, C: BlockChannel> {
    drivers: &'a Drivers<C>,
    plugged: bool,
}

impl<C: BlockChannel> Drop for Plug<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.plugged {
            self.drivers.unplug();
        }
    }
}

/// A running executor. When it ends, also by a panic, collected requests are sent.
struct Running<'a, C: BlockChannel> {
    executor: &'a Executor<C>,
    _entered: ready::Entered,
}

impl<C: BlockChannel> Drop for Running<'_, C> {
    fn drop(&mut self) {
        self.executor.running.set(false);
        self.executor.drivers.unplug();
    }
}

impl<C: BlockChannel> Drop for Executor<C> {
    fn drop(&mut self) {
        self.tasks.clear();
    }
}

impl Spawner {
    fn tasks(&self) -> Rc<Tasks> {
        self.tasks.upgrade().expect("the executor was dropped: spawn while it is there")
    }

    /// Spawns `future` as a task of the executor.
    ///
    /// # Panics
    /// If the executor was dropped, or there are a million tasks already.
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.tasks().spawn(future)
    }

    /// Spawns `future` as a task for the gap: see [`Executor::spawn_deferred`].
    ///
    /// # Panics
    /// If the executor was dropped, or there are a million tasks already.
    pub fn spawn_deferred<F: Future + 'static>(
        &self,
        bound_ns: u64,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.tasks().spawn_deferred(bound_ns, future)
    }
}
