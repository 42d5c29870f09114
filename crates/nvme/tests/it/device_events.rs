//! What happens to a controller whose device is requested back, reports an error, or is gone, while
//! no commands are sent to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, Rejected};
use meantime_hw::pages::Pages;
use meantime_hw::soft::SoftTransport;
use meantime_hw::{
    Claim, Clock, DeviceEvent, DmaLimits, DmaMap, Doorbell, EventFd, EventHandler, Result,
    Transport,
};
use meantime_nvme::{AdminQueries as _, CommandError, Controller, Error};
use meantime_nvme_spec::regs::{CC, CSTS, Cc, Csts};
use meantime_ssd::{Fault, FaultPlan, Medium, SteppedSsd};
use meantime_testkit::device;
use meantime_testkit::faults::{ALWAYS, always, ppm};
use meantime_testkit::rig::{MS, in_flight_late, kind, put, rig_options, ssd, verify, write_of};
use meantime_testkit::rig::{Rig, read_of};

/// A transport to a stepped SSD to which things happen when a test says so.
struct Eventful {
    inner: SoftTransport,
    handler: Mutex<Option<EventHandler>>,
    mapped: Mutex<BTreeSet<u64>>,
    /// How often it was released, with memory mapped or the controller enabled at that.
    released: AtomicUsize,
    released_too_early: AtomicUsize,
    /// What else happens while it is released.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Eventful {
    fn happens(&self, event: DeviceEvent) {
        (self.handler.lock().unwrap().as_ref().expect("a controller listens"))(event);
    }

    fn releases(&self) -> (usize, usize) {
        (self.released.load(Ordering::Relaxed), self.released_too_early.load(Ordering::Relaxed))
    }
}

// SAFETY: as the transport it passes everything on to.
unsafe impl DmaMap for Eventful {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        self.mapped.lock().unwrap().insert(iova);
        self.inner.map_dma(iova, pages)
    }
    unsafe fn unmap_dma(&self, iova: u64) -> Result<()> {
        self.mapped.lock().unwrap().remove(&iova);
        // SAFETY: the caller's promise.
        unsafe { self.inner.unmap_dma(iova) }
    }
    fn limits(&self) -> DmaLimits {
        self.inner.limits()
    }
}

// SAFETY: as above.
unsafe impl Transport for Eventful {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn read32(&self, offset: u32) -> u32 {
        self.inner.read32(offset)
    }
    fn read64(&self, offset: u32) -> u64 {
        self.inner.read64(offset)
    }
    fn claim(&self) -> &Claim {
        self.inner.claim()
    }
    unsafe fn write32(&self, offset: u32, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write32(offset, value) };
    }
    unsafe fn write64(&self, offset: u32, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write64(offset, value) };
    }
    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.doorbell(offset) }
    }
    fn vectors(&self) -> u16 {
        self.inner.vectors()
    }
    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()> {
        self.inner.set_vector(vector, event)
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn on_event(&self, handler: EventHandler) {
        *self.handler.lock().unwrap() = Some(handler);
    }
    fn release(&self) {
        let ready = Csts(self.inner.read32(CSTS)).rdy() || Cc(self.inner.read32(CC)).en();
        let early = ready || !self.mapped.lock().unwrap().is_empty();
        self.released_too_early.fetch_add(usize::from(early), Ordering::Relaxed);
        self.released.fetch_add(1, Ordering::Relaxed);
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
    }
}

fn rig() -> (Rig, Arc<Eventful>) {
    let config = ssd("optane");
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = SteppedSsd::new(config, medium, 1).unwrap();
    let transport = Arc::new(Eventful {
        // SAFETY: the port has no other user.
        inner: unsafe { SoftTransport::new(ssd.port(), "eventful".into(), None) },
        handler: Mutex::default(),
        mapped: Mutex::default(),
        released: AtomicUsize::new(0),
        released_too_early: AtomicUsize::new(0),
        meanwhile: Mutex::default(),
    });
    let controller =
        Controller::enable(Arc::clone(&transport) as _, rig_options(1_000 * MS)).unwrap();
    let device = device(&controller);
    (Rig { ssd, controller, device, meddling: Arc::default() }, transport)
}

/// Whether `channel` refuses a request at once, and gives its buffer back.
fn refuses(channel: &mut NvmeChannel) -> bool {
    let request = read_of(channel, 0..1);
    matches!(channel.submit(request), Err(Rejected { request, .. }) if request.buf.is_some())
}

#[test]
fn a_device_that_is_asked_for_is_given_up_in_good_order_though_idle() {
    let (rig, transport) = rig();
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    transport.happens(DeviceEvent::Release);
    assert_eq!(transport.releases(), (1, 0), "disabled and unmapped before it is released, once");
    assert!(matches!(rig.controller.get_feature(7, 0), Err(Error::Gone)));
    assert!(refuses(&mut channel));
    assert!(rig.device.channel(&ChannelOptions::default()).is_err());
    // Once more, and the end: nothing is left to be done.
    transport.happens(DeviceEvent::Release);
    drop(channel);
    drop(rig);
    assert_eq!(transport.releases(), (1, 0));
}

/// The kernel's driver may take minutes to take the device back. A command fails before that, since
/// the device is gone; only the end of a queue waits.
#[test]
fn only_the_last_user_waits_for_the_device_to_be_released() {
    let (rig, transport) = rig();
    let channel = rig.channel(4);
    let controller = Arc::clone(&rig.controller);
    let (sender, left) = mpsc::channel();
    let (seen, is_seen) = mpsc::channel();
    *transport.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || answer.send(controller.get_feature(7, 0).is_err()));
        seen.send(answered.recv_timeout(Duration::from_secs(60))).unwrap();
        std::thread::spawn(move || {
            drop(channel);
            sender.send(()).unwrap();
        });
        // Not before the device is back; which a thread that did not wait would have time for.
        seen.send(left.recv_timeout(Duration::from_millis(50)).map(|()| false)).unwrap();
        std::mem::forget(left);
    }));
    transport.happens(DeviceEvent::Release);
    assert_eq!(
        is_seen.recv().unwrap(),
        Ok(true),
        "told that it is gone while it is being released"
    );
    assert_eq!(is_seen.recv().unwrap(), Err(mpsc::RecvTimeoutError::Timeout));
}

#[test]
fn what_is_in_flight_ends_at_once_and_gives_its_buffer_back() {
    let (rig, transport) = rig();
    let mut channel = rig.channel(4);
    let ticket = in_flight_late(&rig, &mut channel, 0, 500 * MS);
    transport.happens(DeviceEvent::Release);
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    assert_eq!(kind(&done), CommandError::Gone { memory_released: true });
    assert!(done.buf.is_some() && took_ns < MS, "{took_ns}");
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
}

#[test]
fn an_error_on_the_bus_resets_the_controller() {
    for event in [DeviceEvent::Error, DeviceEvent::Lost] {
        let (rig, transport) = rig();
        let mut channel = rig.channel(4);
        put(&mut channel, 0..8, 3);
        let ticket = in_flight_late(&rig, &mut channel, 0, 500 * MS);
        transport.happens(event);
        // What was in flight is repeated.
        channel.wait(ticket).result.unwrap();
        // It answers: nothing was given up.
        verify(&mut channel, 0..8, 3);
        assert_eq!(transport.releases().0, 0);
    }
}

#[test]
fn a_controller_that_does_not_come_back_releases_its_device() {
    let (rig, transport) = rig();
    let mut channel = rig.channel(4);
    let request = write_of(&channel, 0..1, 1);
    let dead = always(Fault::NeverReady).with(ppm(Fault::StuckAdmin, ALWAYS));
    rig.ssd.set_faults(dead);
    transport.happens(DeviceEvent::Error);
    assert_eq!(transport.releases().0, 1);
    assert!(channel.submit(request).is_err());
}

#[test]
fn no_event_is_delivered_after_the_end() {
    let (rig, transport) = rig();
    let Rig { controller, device, .. } = rig;
    drop((controller, device));
    assert_eq!(transport.releases().0, 1, "the end gives the device back");
    transport.happens(DeviceEvent::Release);
    assert_eq!(transport.releases().0, 1);
}

/// Two drivers of one device would give it each other's memory.
#[test]
fn a_transport_has_one_controller_at_a_time() {
    let (rig, transport) = rig();
    let enable = || Controller::enable(Arc::clone(&transport) as _, rig_options(1_000 * MS));
    let mut channel = rig.channel(4);
    let Err(error @ Error::Driven(_)) = enable() else { panic!("enabled twice") };
    assert!(error.to_string().contains("eventful is driven by another controller"), "{error}");
    // The refused attempt has changed nothing.
    put(&mut channel, 0..8, 1);
    verify(&mut channel, 0..8, 1);
    // A queue is a user, too.
    let Rig { controller, device, .. } = rig;
    drop((controller, device));
    assert!(matches!(enable(), Err(Error::Driven(_))));
    drop(channel);
    let controller = enable().expect("no other driver");
    let device = meantime_testkit::device(&controller);
    let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
    verify(&mut channel, 0..8, 1);
}

#[test]
fn a_failed_enable_releases_the_device() {
    let (rig, transport) = rig();
    let Rig { ssd, controller, device, .. } = rig;
    drop((controller, device));
    let enable = || Controller::enable(Arc::clone(&transport) as _, rig_options(1_000 * MS));
    ssd.set_faults(always(Fault::NeverReady));
    assert!(matches!(enable(), Err(Error::NotReady { .. })));
    ssd.set_faults(FaultPlan::NONE);
    enable().expect("no other driver");
}
