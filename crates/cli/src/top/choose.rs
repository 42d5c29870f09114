//! The choice among several processes.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::process::{Process, shortened};

/// The choice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// This process.
    One(Process),
    /// None.
    Quit,
}

/// The processes, one of them marked.
#[derive(Debug)]
pub(super) struct List {
    processes: Vec<Process>,
    at: usize,
}

impl List {
    /// Creates a list of `processes`; there is at least one.
    pub(super) fn new(processes: Vec<Process>) -> Self {
        Self { processes, at: 0 }
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Chosen> {
        let control_c =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('q') | KeyCode::Esc => return Some(Chosen::Quit),
            _ if control_c => return Some(Chosen::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => {
                self.at = (self.at + 1).min(self.processes.len().saturating_sub(1))
            }
            KeyCode::Enter => {
                return Some(
                    self.processes.get(self.at).cloned().map_or(Chosen::Quit, Chosen::One),
                );
            }
            _ => {}
        }
        None
    }
}

/// Draws the list.
pub(super) fn draw(frame: &mut Frame, list: &List) {
    let [head, _, lines, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new("meantime top  which process?").bold(), head);
    let first = (list.at + 1).saturating_sub(usize::from(lines.height));
    let shown = list.processes.iter().enumerate().skip(first).map(|(at, process)| {
        let text = format!("{:>8}  {}", process.served.pid, process.command);
        let line = Line::from(shortened(&text, usize::from(lines.width)));
        if at == list.at { line.reversed() } else { line }
    });
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), lines);
    frame.render_widget(Paragraph::new("↑↓ choose   Enter look at it   q quit").dim(), foot);
}

#[cfg(test)]
mod tests {
    use meantime_block::control::Served;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn process(pid: u32) -> Process {
        Process {
            served: Served { pid, path: "/run/x.sock".into() },
            command: format!("meantime bench {pid}"),
        }
    }

    #[test]
    fn one_is_chosen() {
        let mut list = List::new(vec![process(7), process(8)]);
        let mut terminal = Terminal::new(TestBackend::new(40, 6)).unwrap();
        terminal.draw(|frame| draw(frame, &list)).unwrap();
        let text = terminal.backend().to_string();
        assert!(
            text.contains("       7  meantime bench 7") && text.contains("       8  "),
            "{text}"
        );
        let press = |list: &mut List, code| list.key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(press(&mut list, KeyCode::Down), None);
        assert_eq!(press(&mut list, KeyCode::Down), None);
        assert_eq!(press(&mut list, KeyCode::Enter), Some(Chosen::One(process(8))));
        assert_eq!(press(&mut list, KeyCode::Char('q')), Some(Chosen::Quit));
    }
}
