//! `meantime qualify`: what is tried on an unknown controller before it is trusted.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, ExitCode};
use std::time::Duration;

use meantime_block::{OpenOptions, Uri};
use meantime_hw::clock::parse_time_ns;
use meantime_qualify::{Plan, Report, Verdict, WriterCommand};

use crate::cli::QualifyArgs;
use crate::failure::{self, FORBIDDEN, Failure};
use crate::machine::PROGRAM;
use crate::output::{self, Outputs};
use crate::signal;

/// Columns of the verdict.
const VERDICT_COLUMNS: usize = 15;

/// Starts this program as the process that is killed while it writes.
#[derive(Debug)]
struct Writer<'a> {
    device: &'a str,
}

impl WriterCommand for Writer<'_> {
    fn command(&self, seed: u64) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["qualify", self.device, "--write-until-killed", &seed.to_string()]);
        command
    }
}

/// Runs the command.
pub(crate) fn run(args: &QualifyArgs) -> Result<ExitCode, Failure> {
    let device = args.device.trim();
    if let Some(seed) = args.write_until_killed {
        let mut out = std::io::stdout().lock();
        return meantime_qualify::write_until_killed(device, seed, &mut out)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Failure::new);
    }
    let duration = |text: &str, option| {
        let ns = parse_time_ns(&format!("{text}s")).or_else(|| parse_time_ns(text));
        ns.filter(|&ns| ns > 0).map(Duration::from_nanos).ok_or_else(|| {
            Failure::usage(format_args!("{option} {text}: a time is e.g. 2 or 500ms"))
        })
    };
    let measured = duration(&args.runtime, "--runtime")?;
    let timeout = duration(&args.timeout, "--timeout")?;
    let outputs = Outputs::prepare(args.json.as_deref(), args.html.as_deref())?;
    signal::catch();
    let uri: Uri = device.parse().map_err(Failure::usage)?;
    if let Some(what) = meantime_block::in_use(&uri) {
        return Err(Failure::new(format_args!("{device} is in use ({what}): free it first")));
    }
    let serial = serial_of(device, args, &uri)?;
    let plan = Plan {
        uri: device,
        destroy: args.destroy.is_some(),
        reset: !args.no_reset,
        measured,
        timeout,
        power_cycle: args.power_cycle.as_deref(),
        writer: Some(&Writer { device }),
        stop: &signal::STOP,
    };
    let bar = output::progress_bar(Some(1), "{bar:30} {pos}/{len} {msg}");
    let mut report = meantime_qualify::qualify(&plan, |done, all, title| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(title.to_owned());
    })
    .map_err(|error| failure::named(device, &error))?;
    bar.finish_and_clear();
    if let (true, Some(serial)) = (args.serial, serial) {
        report.device.push(("serial number".to_owned(), serial));
    }
    outputs.show(&text(&report))?;
    outputs.write(|| report.json(), || report.page(PROGRAM))?;
    signal::check(None)?;
    let deviates = report.count(Verdict::Deviates) > 0;
    Ok(if deviates { ExitCode::from(FORBIDDEN) } else { ExitCode::SUCCESS })
}

/// The serial number, if it is needed. If data are to be overwritten, it has to be the one that was
/// given or typed.
fn serial_of(device: &str, args: &QualifyArgs, uri: &Uri) -> Result<Option<String>, Failure> {
    let is_soft = matches!(uri, Uri::Mem { .. } | Uri::File { .. });
    let has_to_be_told = args.destroy.is_some() && !is_soft;
    if !args.serial && !has_to_be_told {
        return Ok(None);
    }
    let (serial, what) = {
        let opened = meantime_block::open_nvme(device, &OpenOptions::default())
            .map_err(|error| failure::named(device, &error))?;
        let info = opened.controller().info();
        let bytes = crate::figures::bytes(opened.namespace().bytes());
        (info.serial.trim().to_owned(), format!("{} of {bytes}", info.model))
    };
    let told = match args.destroy.as_deref() {
        Some("") if has_to_be_told => {
            if !std::io::stdin().is_terminal() {
                return Err(Failure::usage(format_args!(
                    "--destroy overwrites the data of {device}: say which device is meant, by \
                     --destroy=SERIAL (`meantime info` shows it)"
                )));
            }
            eprint!("This overwrites the data of {what}. Its serial number, to go on: ");
            let _ = std::io::stderr().flush();
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(Failure::new)?;
            line.trim().to_owned()
        }
        Some(told) if has_to_be_told => told.trim().to_owned(),
        _ => serial.clone(),
    };
    if told != serial {
        return Err(Failure::usage(format_args!(
            "{told:?} is not the serial number of {device}: nothing was overwritten"
        )));
    }
    Ok(Some(serial))
}

/// The report as text.
fn text(report: &Report) -> String {
    let mut text = format!("{}\n", report.model());
    for (name, words) in report.device.iter().filter(|(name, _)| name != "model") {
        text += &format!("  {name}: {words}\n");
    }
    for quirk in &report.quirks {
        text += &format!("  what Meantime does otherwise: {quirk}\n");
    }
    text += "\n";
    let below = " ".repeat(VERDICT_COLUMNS);
    for check in &report.checks {
        let verdict = check.verdict.words();
        text += &format!("{verdict:VERDICT_COLUMNS$}{} ({})\n", check.title, check.took());
        if !check.reason.is_empty() {
            text += &format!("{below}  {}\n", check.reason);
        }
        for one in &check.deviations {
            text += &format!("{below}  {}: {}\n", one.section, one.what);
        }
        for (name, words) in &check.facts {
            text += &format!("{below}  {name}: {words}\n");
        }
    }
    text + &format!("\n{}\n", report.summary())
}
