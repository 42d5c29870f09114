//! A thread that waits for events of the device outside of any command: the kernel wants it back,
//! the bus reports an error, or a doorbell store has faulted.
//!
//! The thread exists because `device_del`, the removal of an SSD and `unbind` wait for the
//! application, even if that is idle.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::Result;
use crate::event::EventFd;
use crate::transport::{DeviceEvent, EventHandler};

/// The events.
#[derive(Clone)]
pub(super) struct Events {
    /// The kernel wants the device back.
    pub(super) request: EventFd,
    /// The bus has reported an uncorrected error.
    pub(super) error: EventFd,
    /// A doorbell's store has faulted.
    pub(super) lost: EventFd,
    /// The transport is dropped.
    stop: EventFd,
}

impl Events {
    pub(super) fn new() -> Result<Self> {
        let event = EventFd::new;
        Ok(Self { request: event()?, error: event()?, lost: event()?, stop: event()? })
    }
}

/// The thread; ends when this is dropped.
pub(super) struct Watch {
    sink: Arc<EventSink>,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

/// The handler of the events.
struct EventSink {
    state: Mutex<SinkState>,
    /// Releases the device, after the handler.
    release: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct SinkState {
    handler: Option<Arc<EventHandler>>,
    /// Events before there was a handler.
    waiting: Vec<DeviceEvent>,
}

impl Watch {
    /// Starts listening to `events`. `release` gives the device up; it is called after a
    /// [`DeviceEvent::Release`] was handled.
    pub(super) fn start(
        events: Events,
        release: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let sink = Arc::new(EventSink { state: Mutex::default(), release });
        let (stop, thread_sink) = (events.stop.clone(), Arc::clone(&sink));
        let thread =
            meantime_process::thread::spawn("vfio-watch", move || watch(&events, &thread_sink))?;
        Ok(Self { sink, stop, thread: Some(thread) })
    }

    /// Makes the thread call `handler` for each event, earlier ones first.
    pub(super) fn set_handler(&self, handler: EventHandler) {
        let handler = Arc::new(handler);
        let waiting = {
            let mut state = self.sink.lock();
            state.handler = Some(handler);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|event| self.sink.deliver(event));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.signal();
        // The handler may hold the last reference to the device; in that case this is the thread
        // itself.
        let other =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = other {
            let _ = thread.join();
        }
    }
}

impl EventSink {
    fn lock(&self) -> std::sync::MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, event: DeviceEvent) {
        let handler = {
            let mut state = self.lock();
            let handler = state.handler.clone();
            if handler.is_none() {
                // A driver is being enabled: its waits are bounded, and it sets a handler
                // afterwards.
                state.waiting.push(event);
            }
            handler
        };
        if let Some(handler) = handler {
            handler(event);
            if event == DeviceEvent::Release {
                (self.release)();
            }
        }
    }
}

fn watch(events: &Events, sink: &EventSink) {
    let Events { request, error, lost, stop } = events;
    loop {
        let mut fds = [request, error, lost, stop].map(|event| PollFd::new(event, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                tracing::error!(
                    %errno,
                    "the device is not watched any more: its removal waits for this process"
                );
                return;
            }
        }
        if stop.take() {
            return;
        }
        // The kernel's request first: after it no recovery is needed.
        for (event, kind) in [
            (request, DeviceEvent::Release),
            (lost, DeviceEvent::Lost),
            (error, DeviceEvent::Error),
        ] {
            if event.take() {
                sink.deliver(kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn delivers_events_from_before_the_handler() {
        let events = Events::new().unwrap();
        let (released, releases) = channel();
        let released = Mutex::new(released);
        let release = Box::new(move || released.lock().unwrap().send(()).unwrap());
        let watch = Watch::start(events.clone(), release).unwrap();
        events.error.signal();
        // Wait until the thread has received the first event; later ones are kept.
        while watch.sink.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        let (sender, received) = channel();
        let sender = Mutex::new(sender);
        watch.set_handler(Box::new(move |event| sender.lock().unwrap().send(event).unwrap()));
        assert_eq!(received.recv().unwrap(), DeviceEvent::Error);
        events.lost.signal();
        assert_eq!(received.recv().unwrap(), DeviceEvent::Lost);
        assert!(releases.try_recv().is_err());
        events.request.signal();
        assert_eq!(received.recv().unwrap(), DeviceEvent::Release);
        releases.recv().unwrap();
        drop(watch);
        assert!(received.recv().is_err(), "the thread has ended, and let go of the handler");
    }

    #[test]
    fn may_be_dropped_by_its_own_thread() {
        let events = Events::new().unwrap();
        let watch = Watch::start(events.clone(), Box::new(|| ())).unwrap();
        let slot = Arc::new(Mutex::new(None));
        let (sender, received) = channel();
        let (taken, sender) = (Arc::clone(&slot), Mutex::new(sender));
        watch.set_handler(Box::new(move |_| {
            drop(taken.lock().unwrap().take());
            sender.lock().unwrap().send(()).unwrap();
        }));
        *slot.lock().unwrap() = Some(watch);
        events.request.signal();
        received.recv().unwrap();
    }
}
