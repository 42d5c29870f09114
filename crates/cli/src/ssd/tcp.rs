//! `meantime ssd --tcp`: the software SSD over NVMe/TCP.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meantime_block::control::metrics::Metrics;
use meantime_block::{OpenOptions, make_ssd};
use meantime_ssd::FaultControl as _;
use meantime_ssd::tcp::{RefusedHost, Target, TargetOptions, TcpCounters, listen};
use serde_json::json;

use super::log::Log;
use super::{Beside, LOOK_EVERY, adjust, check, metrics, object, report, say, written};
use crate::cli::{SsdArgs, SsdLog};
use crate::failure::{Failure, named};
use crate::signal;

/// The port of NVMe over Fabrics.
const PORT: u16 = 4420;

/// Serves until a signal comes.
pub(super) fn serve(args: &SsdArgs, uri: &str, addr: &str) -> Result<ExitCode, Failure> {
    let access = check(uri)?;
    let mut options = TargetOptions::default();
    options.addr = address(addr).map_err(Failure::usage)?;
    let is_open = !options.addr.ip().is_loopback() && args.dhchap_keys.is_none();
    if is_open && !args.allow_insecure {
        return Err(Failure::usage(format_args!(
            "{addr}: whoever reaches this address could read and write everything, without a \
             password and in the clear; give --dhchap-keys, add --allow-insecure if that is \
             meant, or use 127.0.0.1"
        )));
    }
    if let Some(file) = &args.dhchap_keys {
        demand_keys(file, &mut options)?;
    }
    if let Some(nqn) = &args.nqn {
        options.nqn.clone_from(nqn);
    }
    options.hosts.clone_from(&args.host);
    if let Some(plan) = &args.net_faults {
        options.net_faults = plan.parse().map_err(Failure::usage)?;
    }
    // Before the medium, which may create a file.
    let listener = listen(options.addr).map_err(Failure::new)?;
    signal::catch();
    let open = OpenOptions { access, ..OpenOptions::default() };
    let nqn = options.nqn.clone();
    let start = |config, medium| Target::start_on(config, medium, options, listener);
    let target = make_ssd(uri, &open, |config| adjust(args, config), start)
        .map_err(|error| named(uri, &error))?;
    let target = target.map_err(Failure::new)?;
    let handle = target.handle();
    let counted = target.handle();
    let more = move |metrics: &mut Metrics, uri: &str| {
        metrics::add_tcp(metrics, uri, &counted.tcp_counters());
    };
    let _beside = Beside::start(args, uri, Arc::new(target.handle()), more)?;
    let (addr, pid) = (target.addr(), std::process::id());
    let ready = json!({
        "ready": true, "device": uri, "tcp": addr.to_string(), "nqn": nqn, "pid": pid,
    });
    say(args, &ready, &format!("{uri} is served at {addr} as {nqn} (process {pid})"))?;
    let mut log = Log::new(args.log == SsdLog::Refused);
    if is_open {
        log.line("the traffic is in the clear, and hosts prove nothing: for trusted networks only");
    } else if !addr.ip().is_loopback() {
        log.line("the traffic is in the clear: for networks on which nobody listens");
    }
    let (mut before, mut refused) = (TcpCounters::default(), Refused::default());
    while !signal::stopped() {
        std::thread::sleep(LOOK_EVERY);
        if !target.is_running() {
            return Err(Failure::new("the SSD's thread has ended: a bug worth reporting"));
        }
        before = tell(&mut log, before, handle.tcp_counters());
        refused.tell(&handle.refused_hosts(), false, |text| log.line(text));
        log.log_due(&handle);
    }
    log.log_now(&handle);
    // Data that hosts write until the end is flushed, too.
    let flushed = target.stop();
    tell(&mut log, before, handle.tcp_counters());
    refused.tell(&handle.refused_hosts(), true, |text| log.line(text));
    let (counters, tcp) = (handle.counters(), handle.tcp_counters());
    report(args, &counters)?;
    let words = format!(
        "{} connections, {} hosts, {} refused; {} protocol errors",
        tcp.connections, tcp.associations, tcp.connects_refused, tcp.fatal_errors
    );
    say(args, &json!({ "tcp_counters": object(tcp.iter()) }), &words)?;
    written(uri, flushed)
}

/// Has hosts authenticate themselves by the keys in `file`.
#[cfg(feature = "auth")]
fn demand_keys(file: &Path, options: &mut TargetOptions) -> Result<(), Failure> {
    options.keys = meantime_ssd::tcp::Keys::read(file).map_err(Failure::new)?;
    match options.keys.is_empty() {
        true => Err(Failure::new(format_args!(
            "{}: there is no line NQN KEY, so no host could connect",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// The same without the feature `auth`.
#[cfg(not(feature = "auth"))]
fn demand_keys(_: &Path, _: &mut TargetOptions) -> Result<(), Failure> {
    Err(Failure::usage("--dhchap-keys: this build leaves out authentication (cargo feature auth)"))
}

/// The address that `text` names.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let with_our_port = |ip: IpAddr| SocketAddr::new(ip, PORT);
    text.parse().or_else(|_| bare.parse().map(with_our_port)).map_err(|_| {
        format!("{text}: no IP address with or without a port, e.g. 127.0.0.1:4420 or [::1]:4420")
    })
}

/// The refusals that were reported: for each reason their number and the time of the report.
#[derive(Default)]
struct Refused(Vec<(u64, Instant)>);

impl Refused {
    /// Reports why hosts were refused. Each reason is reported at once, and further refusals at
    /// intervals. With `end`, the remaining ones are reported.
    fn tell(&mut self, all: &[RefusedHost], end: bool, mut say: impl FnMut(&str)) {
        /// Time between two lines on the same reason.
        const AGAIN: Duration = Duration::from_secs(10);
        for (at, RefusedHost { host, why, count, .. }) in all.iter().enumerate() {
            match self.0.get_mut(at) {
                None => {
                    let times = if *count > 1 { format!(" {count} times") } else { String::new() };
                    say(&format!("{host} was refused{times}: {why}"));
                    self.0.push((*count, Instant::now()));
                }
                Some((said, when)) if count > said && (end || when.elapsed() >= AGAIN) => {
                    say(&format!("{host} was refused {} times more: {why}", *count - *said));
                    (*said, *when) = (*count, Instant::now());
                }
                Some(_) => {}
            }
        }
    }
}

/// Logs what the counters say has happened, and returns them.
fn tell(log: &mut Log, before: TcpCounters, now: TcpCounters) -> TcpCounters {
    for ((name, old), (_, new)) in before.iter().zip(now.iter()) {
        let (one, what) = match name {
            "associations" => ("host", "connected"),
            "associations_ended" => ("host", "left"),
            "fatal_errors" => ("connection", "broke the protocol, and was ended"),
            "keep_alives_expired" => ("host", "was given up: its Keep Alive Timer has expired"),
            "too_slow" => ("connection", "was too slow, and was closed"),
            "too_many" => ("connection", "was one too many, and was closed"),
            _ => continue,
        };
        match new.saturating_sub(old) {
            0 => {}
            1 => log.line(&format!("a {one} {what}")),
            count => log.line(&format!("{count} times a {one} {what}")),
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use meantime_ssd::{Medium, SsdConfig};

    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_said_once_and_then_its_count() {
        let target = Target::start(
            SsdConfig::with_namespace(1 << 20, 512),
            Medium::dram(1 << 20).unwrap(),
            TargetOptions::default(),
        )
        .unwrap();
        let uri = format!("nvme+tcp://{}/nqn.x?hostnqn=nqn.h", target.addr());
        let (mut refused, mut lines) = (Refused::default(), Vec::new());
        for end in [false, false, false, true] {
            assert!(meantime_block::open(&uri, &OpenOptions::default()).is_err());
            let hosts = target.handle().refused_hosts();
            refused.tell(&hosts, end, |text| lines.push(text.to_owned()));
        }
        let why = "it asked for nqn.x, which is not here";
        assert_eq!(
            lines,
            [format!("nqn.h was refused: {why}"), format!("nqn.h was refused 3 times more: {why}")]
        );
    }

    #[test]
    fn addresses_have_a_port_or_get_one() {
        for (text, addr) in [
            ("127.0.0.1", "127.0.0.1:4420"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::1", "[::1]:4420"),
            ("[::1]", "[::1]:4420"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), addr);
        }
        for text in ["", "localhost", "127.0.0.1:", "1.2.3.4:99999", "[::1"] {
            assert!(address(text).unwrap_err().contains("127.0.0.1:4420"), "{text}");
        }
    }
}
