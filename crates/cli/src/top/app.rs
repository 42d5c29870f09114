//! The state of the live view, and its keys.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::process::Process;
use super::row::Row;
use super::short::Short;

/// Number of looks in the sparkline.
const HISTORY_LEN: usize = 400;

/// Maximum number of typed characters: as many as a request holds.
const TYPED_MAX: usize = 64;

/// The policies to choose from. The process decides whether a queue can wait with one.
pub(super) const POLICIES: [(&str, &str); 12] = [
    ("poll", "look until the completion is there"),
    ("interrupt", "sleep until the device's interrupt"),
    (
        "adaptive",
        "work, sleep, spin by what each is expected to cost; a mean at most 3 % over poll",
    ),
    ("adaptive:cpu=30", "the best latency for 30 % of a CPU"),
    ("adaptive:p99=25us", "the least CPU that keeps 99 % of I/Os within 25 µs"),
    ("hybrid=2us", "sleep for 2 µs, then poll"),
    ("hybrid", "sleep half the mean device time, then poll (Linux 4.10)"),
    ("hybrid-bucket", "the same by size and direction (Linux 4.12)"),
    ("hybrid-min", "sleep half the shortest run time seen, then poll (Linux 6.13)"),
    ("ehp", "published: interrupts for large I/O, the rest slept and polled"),
    ("pas", "published: the sleep grows and shrinks by what each I/O shows"),
    ("dpas", "published: the same, with interrupts and polling where they do better"),
];

/// The list of policies, opened for one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Popup {
    /// The queue.
    pub queue: u64,
    /// Index of the marked entry of [`POLICIES`].
    pub at: usize,
    /// The text typed instead.
    pub typed: String,
}

/// The result of the last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// A note.
    Said(String),
    /// The change was refused.
    Refused(String),
}

/// The action of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Only the display changes.
    None,
    /// End the view.
    Quit,
    /// A change of policy.
    Set {
        /// The queue.
        queue: u64,
        /// The new policy.
        policy: String,
    },
}

/// The live view of one process.
#[derive(Debug)]
pub(super) struct App {
    /// The process.
    pub process: Process,
    /// Its queues, after the first two looks.
    pub rows: Option<Vec<Row>>,
    /// What programs send it past the kernel, if it has a mount.
    pub short: Option<Short>,
    /// The chosen queue.
    pub chosen: Option<u64>,
    /// IOPS of earlier looks, by queue.
    pub history: BTreeMap<u64, VecDeque<u64>>,
    /// The list of policies, if it is open.
    pub popup: Option<Popup>,
    /// The result of the last change.
    pub message: Option<Message>,
}

impl App {
    /// Creates a view without queues.
    pub(super) fn new(process: Process) -> Self {
        Self {
            process,
            rows: None,
            short: None,
            chosen: None,
            history: BTreeMap::new(),
            popup: None,
            message: None,
        }
    }

    /// Records the rows of a look.
    pub(super) fn update(&mut self, rows: Vec<Row>) {
        self.history.retain(|id, _| rows.iter().any(|row| row.state.id == *id));
        for row in &rows {
            let history = self.history.entry(row.state.id).or_default();
            if history.len() == HISTORY_LEN {
                history.pop_front();
            }
            history.push_back(row.rates.iops.round() as u64);
        }
        if self.chosen.is_none_or(|chosen| rows.iter().all(|row| row.state.id != chosen)) {
            let busiest = rows.iter().max_by(|a, b| a.rates.iops.total_cmp(&b.rates.iops));
            self.chosen = busiest.map(|row| row.state.id);
        }
        self.rows = Some(rows);
    }

    /// Returns the index of the chosen queue's row.
    pub(super) fn chosen_at(&self) -> Option<usize> {
        self.rows.as_ref()?.iter().position(|row| Some(row.state.id) == self.chosen)
    }

    /// Returns the row of the chosen queue.
    pub(super) fn chosen_row(&self) -> Option<&Row> {
        self.rows.as_ref()?.get(self.chosen_at()?)
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.popup.is_some() {
            return self.popup_key(key);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Char('p') | KeyCode::Enter => {
                if let Some(row) = self.chosen_row() {
                    let policy = &row.state.policy;
                    let at = POLICIES.iter().position(|(name, _)| name == policy).unwrap_or(0);
                    self.popup = Some(Popup { queue: row.state.id, at, typed: String::new() });
                    self.message = None;
                }
            }
            _ => {}
        }
        Action::None
    }

    fn choose(&mut self, step: isize) {
        let (Some(rows), Some(at)) = (&self.rows, self.chosen_at()) else { return };
        let at = at.saturating_add_signed(step).min(rows.len() - 1);
        self.chosen = Some(rows[at].state.id);
    }

    fn popup_key(&mut self, key: KeyEvent) -> Action {
        let Some(popup) = &mut self.popup else { return Action::None };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.popup = None,
            KeyCode::Up => popup.at = popup.at.saturating_sub(1),
            KeyCode::Down => popup.at = (popup.at + 1).min(POLICIES.len() - 1),
            KeyCode::Tab => POLICIES[popup.at].0.clone_into(&mut popup.typed),
            KeyCode::Backspace => drop(popup.typed.pop()),
            KeyCode::Char('u') if control => popup.typed.clear(),
            KeyCode::Char(c)
                if !control && popup.typed.len() < TYPED_MAX && c.is_ascii_graphic() =>
            {
                popup.typed.push(c);
            }
            KeyCode::Enter => {
                let policy = if popup.typed.is_empty() {
                    POLICIES[popup.at].0.to_owned()
                } else {
                    popup.typed.clone()
                };
                let queue = popup.queue;
                self.popup = None;
                self.message = Some(Message::Said(format!("queue {queue}: {policy} asked for …")));
                return Action::Set { queue, policy };
            }
            _ => {}
        }
        Action::None
    }

    /// Records the result of a change.
    pub(super) fn answered(&mut self, queue: u64, policy: &str, outcome: Result<(), String>) {
        self.message = Some(match outcome {
            Ok(()) => Message::Said(format!("queue {queue} waits by {policy} now")),
            Err(why) => Message::Refused(format!("queue {queue}: {why}")),
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use meantime_block::control::Served;

    use super::super::row::tests::known;
    use super::*;

    /// Returns a view that has seen the known rows.
    pub(crate) fn app() -> App {
        let served = Served { pid: 4711, path: "/run/4711.sock".into() };
        let mut app = App::new(Process { served, command: "meantime bench --rw randread".into() });
        app.update(known());
        app
    }

    fn press(app: &mut App, code: KeyCode) -> Action {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_choose_a_queue_and_stay_on_it() {
        let mut app = app();
        assert_eq!(app.chosen, Some(4), "the busiest at first");
        press(&mut app, KeyCode::Up);
        press(&mut app, KeyCode::Up);
        assert_eq!(app.chosen, Some(3));
        (0..5).for_each(|_| drop(press(&mut app, KeyCode::Down)));
        assert_eq!(app.chosen, Some(5));
        app.update(known().split_off(1));
        assert_eq!((app.chosen, app.history.len()), (Some(5), 2));
        app.update(known().drain(..2).collect());
        assert_eq!(app.chosen, Some(4), "the chosen one has gone");
        app.update(Vec::new());
        press(&mut app, KeyCode::Down);
        assert_eq!((press(&mut app, KeyCode::Char('p')), &app.popup), (Action::None, &None));
    }

    #[test]
    fn a_policy_is_chosen_from_the_list() {
        let mut app = app();
        press(&mut app, KeyCode::Char('p'));
        assert_eq!(app.popup.as_ref().map(|popup| (popup.queue, popup.at)), Some((4, 0)));
        press(&mut app, KeyCode::Down);
        press(&mut app, KeyCode::Down);
        assert_eq!(
            press(&mut app, KeyCode::Enter),
            Action::Set { queue: 4, policy: "adaptive".into() }
        );
        app.answered(4, "adaptive", Err("refused: it cannot".into()));
        assert_eq!(app.message, Some(Message::Refused("queue 4: refused: it cannot".into())));
        press(&mut app, KeyCode::Char('p'));
        assert_eq!(press(&mut app, KeyCode::Esc), Action::None);
        assert_eq!(app.popup, None);
    }

    #[test]
    fn a_policy_can_be_typed() {
        let mut app = app();
        press(&mut app, KeyCode::Char('p'));
        "hybrid=7usq".chars().for_each(|c| drop(press(&mut app, KeyCode::Char(c))));
        press(&mut app, KeyCode::Backspace);
        assert_eq!(
            press(&mut app, KeyCode::Enter),
            Action::Set { queue: 4, policy: "hybrid=7us".into() }
        );
        press(&mut app, KeyCode::Char('p'));
        (0..100).for_each(|_| drop(press(&mut app, KeyCode::Char('x'))));
        assert_eq!(app.popup.as_ref().map(|popup| popup.typed.len()), Some(TYPED_MAX));
        app.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        press(&mut app, KeyCode::Tab);
        assert_eq!(app.popup.as_ref().map(|popup| popup.typed.as_str()), Some("poll"));
    }

    #[test]
    fn q_and_control_c_end_it() {
        let mut app = app();
        assert_eq!(press(&mut app, KeyCode::Char('q')), Action::Quit);
        press(&mut app, KeyCode::Char('p'));
        assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Quit);
    }

    #[test]
    fn every_policy_of_the_list_is_one() {
        for (name, about) in POLICIES {
            let _ = meantime_lab::register();
            let _: meantime_completion::Policy = name.parse().unwrap();
            assert!(about.chars().count() <= 84, "{about}");
        }
    }
}
