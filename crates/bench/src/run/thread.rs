//! A thread that executes orders.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use meantime_hw::{IoPriority, cpu};

use super::error::RunError;
use super::worker::Worker;

type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// A worker's thread, which executes orders one after the other.
pub(crate) struct WorkerThread {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts the thread on `cpus` (anywhere, if empty) with that I/O priority.
    pub(crate) fn start(
        name: &str,
        mut worker: Worker,
        cpus: Vec<usize>,
        priority: Option<IoPriority>,
    ) -> Result<Self, RunError> {
        let (orders, inbox): (Sender<Order>, Receiver<Order>) = channel();
        let body = move || {
            for order in inbox {
                order(&mut worker);
            }
        };
        let thread = meantime_process::thread::spawn(name, body).map_err(|error| {
            RunError::new(format_args!("cannot start a thread: {error}; use fewer (numjobs)"))
        })?;
        let started = Self { orders: Some(orders), thread: Some(thread) };
        if !cpus.is_empty() {
            let bound = started.ask(move |_| cpu::bind(&cpus));
            received(&bound)?.map_err(RunError::new)?;
        }
        if let Some(priority) = priority {
            let set = started.ask(move |_| priority.set_for_this_thread());
            received(&set)?.map_err(|error| {
                RunError::new(format_args!(
                    "prio, prioclass: {error}; real time needs CAP_SYS_NICE (or root): take \
                     prioclass=2 with prio=0"
                ))
            })?;
        }
        Ok(started)
    }

    /// Makes the thread execute `order`. The answer comes when it is done.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Receiver<R> {
        let (answer, answers) = channel();
        let boxed: Order = Box::new(move |worker| {
            let _ = answer.send(order(worker));
        });
        if let Some(orders) = &self.orders {
            // A thread that has ended drops the order and its answer: `received` detects that.
            let _ = orders.send(boxed);
        }
        answers
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the answer to an order.
pub(super) fn received<R>(answers: &Receiver<R>) -> Result<R, RunError> {
    answers.recv().map_err(|_| {
        RunError::new("a thread of the job ended unexpectedly: this is a bug, please report it")
    })
}
