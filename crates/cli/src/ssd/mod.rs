//! `meantime ssd`: a software SSD for other people's drivers.

mod ctl;
mod log;
mod metrics;
mod sigbus;
mod tcp;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use meantime_block::control::metrics::{Metrics, Published};
use meantime_block::{Access, OpenOptions, Uri, start_ssd};
use meantime_nvme_spec::regs::{CC, CSTS, Cc, Csts, shn, shst};
use meantime_ssd::control::{self, ControlServer};
use meantime_ssd::served::{Event, Server, Socket, SocketOptions};
use meantime_ssd::{Counters, FaultControl, Ssd, SsdConfig};
use serde_json::{Value, json};

use crate::bind::user::User;
use crate::cli::{SsdArgs, SsdCommand, SsdLog};
use crate::failure::{Context as _, Failure, named};
use crate::metrics::Server as Endpoint;
use crate::output::print;
use crate::signal;
use log::Log;

/// Interval at which refusals and the stop flag are checked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Maximum number of events that wait for the log.
const EVENTS_MAX: usize = 1024;

/// Runs the command.
pub(crate) fn run(args: &SsdArgs) -> Result<ExitCode, Failure> {
    match (&args.command, &args.device, &args.socket, &args.tcp) {
        (Some(SsdCommand::Ctl(args)), ..) => ctl::run(args),
        (None, Some(device), Some(socket), None) => serve(args, device.trim(), socket),
        (None, Some(device), None, Some(addr)) => tcp::serve(args, device.trim(), addr),
        _ => Err(Failure::usage(
            "give a device, and --socket PATH or --tcp ADDR; see `meantime ssd --help`",
        )),
    }
}

/// Applies the options to the SSD's configuration, however it is served.
fn adjust(args: &SsdArgs, config: &mut SsdConfig) {
    if let Some(serial) = &args.serial {
        config.serial.clone_from(serial);
    }
    if args.never_park {
        config.park_after_ns = u64::MAX;
    }
}

fn serve(args: &SsdArgs, uri: &str, path: &Path) -> Result<ExitCode, Failure> {
    let access = check(uri)?;
    let owner = args.owner.as_deref().map(User::find).transpose()?;
    let options = SocketOptions {
        mode: args.mode,
        uid: owner.as_ref().map(|owner| owner.uid),
        gid: owner.as_ref().map(|owner| owner.gid),
    };
    // The socket is bound before the medium is opened, which may create a file: if another process
    // already serves there, nothing is left behind.
    let socket = Socket::bind(path, &options).map_err(Failure::new)?;
    sigbus::catch();
    signal::catch();
    let options = OpenOptions { access, ..OpenOptions::default() };
    let ssd = start_ssd(uri, &options, |config| adjust(args, config))
        .map_err(|error| named(uri, &error))?;
    let (drivers, handle) = (Arc::new(AtomicU64::new(0)), ssd.handle());
    let seen = Arc::clone(&drivers);
    let more = move |metrics: &mut Metrics, uri: &str| {
        metrics::add_drivers(metrics, uri, seen.load(Ordering::Relaxed));
    };
    let beside = Beside::start(args, uri, Arc::new(handle), more)?;
    let (tell, events) = sync_channel(EVENTS_MAX);
    let server = Server::start(socket, ssd.function_port(), move |event| {
        if let Event::Connected { .. } = event {
            drivers.fetch_add(1, Ordering::Relaxed);
        }
        // Events that come faster than they are logged are dropped, since the server does not wait
        // for the log.
        let _ = tell.try_send(event);
    })
    .context(format_args!("cannot serve {}", path.display()))?;
    let socket = path.display();
    let ready = json!({
        "ready": true, "device": uri, "socket": socket.to_string(), "pid": std::process::id(),
    });
    say(args, &ready, &format!("{uri} is served at {socket} (process {})", std::process::id()))?;
    let mut log = Log::new(args.log == SsdLog::Refused);
    while !signal::stopped() {
        match events.recv_timeout(LOOK_EVERY) {
            Ok(event) => log.event(&event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(
                    "the thread that serves the socket has ended: a bug worth reporting",
                ));
            }
        }
        log.log_due(&ssd.handle());
    }
    drop((server, beside));
    for event in events.try_iter() {
        log.event(&event);
    }
    log.log_now(&ssd.handle());
    let flushed = shut_down(&ssd);
    report(args, &ssd.counters())?;
    written(uri, flushed)
}

/// The services beside an SSD. Dropping this ends them.
struct Beside {
    _control: Option<ControlServer>,
    _endpoint: Option<Endpoint>,
    _published: Published,
    _looked_at: Option<meantime_block::control::ControlServer>,
}

impl Beside {
    /// Serves requests to `ssd`, its metrics with what `more` adds, and `meantime top`.
    fn start(
        args: &SsdArgs,
        uri: &str,
        ssd: Arc<dyn FaultControl>,
        more: impl Fn(&mut Metrics, &str) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let control = args.ctl.as_deref().map(|path| control::serve(path, Arc::clone(&ssd)));
        Ok(Self {
            _control: control.transpose().map_err(Failure::new)?,
            _endpoint: crate::metrics::serve(args.metrics.as_deref())?,
            _published: metrics::publish(uri, move || ssd.counters(), more),
            _looked_at: crate::mount::control(),
        })
    }
}

/// Returns how the command ends, depending on whether everything was `flushed`.
fn written(uri: &str, flushed: bool) -> Result<ExitCode, Failure> {
    if flushed {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(format_args!("{uri}: the medium failed to write back what was cached")))
}

/// Prints a line of JSON, or what it says in words.
fn say(args: &SsdArgs, object: &Value, words: &str) -> Result<(), Failure> {
    print(&if args.json { format!("{object}\n") } else { format!("{words}\n") })
}

fn object(counters: impl Iterator<Item = (&'static str, u64)>) -> Value {
    counters.map(|(name, count)| (name.to_owned(), Value::from(count))).collect()
}

/// Returns how to open the medium, or an error for a URI that cannot be served.
fn check(uri: &str) -> Result<Access, Failure> {
    let parsed: Uri = uri.parse().map_err(Failure::usage)?;
    let (Uri::Mem { soft, .. } | Uri::File { soft, .. }) = parsed else {
        return Err(Failure::usage(format_args!(
            "{uri}: only a software SSD can be served: mem:SIZE or file:PATH"
        )));
    };
    let of_the_driver =
        [("nsid", soft.nsid != 1), ("lock", soft.lock), ("coalesce", soft.coalesce.is_some())];
    if let Some((what, _)) = of_the_driver.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format_args!(
            "{uri}: {what} says how a device is used, not what it is: leave it to the driver that \
             connects"
        )));
    }
    Ok(if soft.read_only { Access::Read } else { Access::ReadWrite })
}

/// Shuts the controller down like a host before power-off (NVMe Base 1.4 §7.6.2). Returns whether
/// everything reached the medium.
fn shut_down(ssd: &Ssd) -> bool {
    let port = ssd.port();
    port.write32(CC, Cc(0).with_shn(shn::NORMAL).0);
    Csts(port.read32(CSTS)).shst() == shst::COMPLETE
}

/// Prints the counters.
fn report(args: &SsdArgs, counters: &Counters) -> Result<(), Failure> {
    let Counters { reads, writes, flushes, other_io, admin_commands, .. } = counters;
    let Counters { read_bytes, written_bytes, refused, bad_registers, .. } = counters;
    let Counters { dma_errors, fatal, resets, .. } = counters;
    let doorbells = counters.bad_doorbells + counters.stray_doorbells;
    let words = format!(
        "{reads} reads, {writes} writes, {flushes} flushes, {other_io} other I/O commands, \
         {admin_commands} admin commands; {read_bytes} bytes read, {written_bytes} written\n\
         {refused} commands refused, {bad_registers} register accesses and {doorbells} doorbells \
         wrong, {dma_errors} DMA errors, {fatal} times fatal, {resets} resets"
    );
    say(args, &json!({ "counters": object(counters.iter()) }), &words)
}
