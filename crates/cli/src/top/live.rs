//! The live view on a terminal.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use meantime_block::control::ControlError;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::app::{Action, App};
use super::process::{Process, plain};
use super::{Look, row, view};
use crate::failure::Failure;
use crate::signal;

/// Maximum time until a signal or an answer is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Messages of other threads: requests to a process may take time.
enum News {
    Seen(Look),
    Gone(ControlError),
    Answered { queue: u64, policy: String, outcome: Result<(), String> },
}

/// Restores the terminal on every exit. (On a panic the hook of `try_init` does, before the
/// message.)
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            Failure::new(format_args!("cannot use the terminal ({error}); use --once"))
        })?;
        Ok(Self(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows `process` until `q`, a signal, or the process's end.
pub(super) fn run(process: Process, interval: Duration) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`meantime top` needs a terminal for its live view; use --once for one table",
        ));
    }
    // Errors are found before the screen is cleared.
    process.connect()?;
    signal::catch();
    let mut screen = Screen::open()?;
    let ended = watch(&mut screen, process, interval);
    drop(screen);
    if let Some(why) = ended? {
        println!("{why}");
    }
    Ok(signal::exit_code().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Returns the next key, or nothing after [`TICK`].
fn next_event() -> Result<Option<Event>, Failure> {
    let lost = |error: std::io::Error| Failure::new(format_args!("the terminal is gone: {error}"));
    match event::poll(TICK) {
        Ok(true) => event::read().map(Some).map_err(lost),
        Ok(false) => Ok(None),
        // A signal, which is checked next.
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(lost(error)),
    }
}

/// Runs the view. Returns why it ended, if not by a key or a signal.
fn watch(
    screen: &mut Screen,
    process: Process,
    interval: Duration,
) -> Result<Option<String>, Failure> {
    let (sender, news) = channel();
    start_looking(&process, interval, sender.clone())?;
    let mut app = App::new(process);
    let mut before: Option<Look> = None;
    while !signal::stopped() {
        let drawn = screen.0.draw(|frame| view::draw(frame, &app)).map(drop);
        drawn
            .map_err(|error| Failure::new(format_args!("cannot write to the terminal: {error}")))?;
        let action = match next_event()? {
            Some(Event::Key(key)) => app.key(key),
            _ => Action::None,
        };
        match action {
            Action::None => {}
            Action::Quit => return Ok(None),
            Action::Set { queue, policy } => {
                start_change(&app.process, queue, policy, sender.clone())
            }
        }
        if let Some(why) = take_in(&mut app, &mut before, &news) {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

fn take_in(app: &mut App, before: &mut Option<Look>, news: &Receiver<News>) -> Option<String> {
    for item in news.try_iter() {
        match item {
            News::Seen(now) => {
                if let Some(before) = before.as_ref() {
                    app.update(row::rows(&before.queues, &now.queues));
                    app.short = now.short_rates(before);
                }
                *before = Some(now);
            }
            News::Gone(error) => {
                let pid = app.process.served.pid;
                return Some(match error {
                    // Not by the existence of the process: its parent may not have waited for it
                    // yet.
                    ControlError::Io { source, .. } if is_end(&source) => {
                        format!("process {pid} has ended, or serves its control socket no more")
                    }
                    other => format!("process {pid}: {}", plain(&other.to_string())),
                });
            }
            News::Answered { queue, policy, outcome } => app.answered(queue, &policy, outcome),
        }
    }
    None
}

/// Returns whether an error of the socket means that its process has ended.
fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn start_looking(
    process: &Process,
    interval: Duration,
    sender: Sender<News>,
) -> Result<(), Failure> {
    let mut client = process.connect()?;
    let look = move || {
        // The second look comes soon, so that rates can be shown.
        let mut pause = interval.min(Duration::from_millis(300));
        loop {
            let (item, last) = match Look::take(&mut client) {
                Ok(look) => (News::Seen(look), false),
                Err(error) => (News::Gone(error), true),
            };
            if sender.send(item).is_err() || last {
                return;
            }
            thread::sleep(pause);
            pause = interval;
        }
    };
    let started = thread::Builder::new().name("meantime-look".into()).spawn(look);
    started.map(drop).map_err(|error| Failure::new(format_args!("cannot start a thread: {error}")))
}

/// A channel may take two seconds to answer: the keys work meanwhile.
fn start_change(process: &Process, queue: u64, policy: String, sender: Sender<News>) {
    let path = process.served.path.clone();
    thread::spawn(move || {
        let changed = meantime_block::control::Client::connect(&path)
            .and_then(|mut client| client.set(queue, &policy))
            .map_err(|error| plain(&error.to_string()));
        let _ = sender.send(News::Answered { queue, policy, outcome: changed });
    });
}
