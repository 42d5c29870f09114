use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::app::tests::app;
use super::*;

fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let line =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn a_known_state_looks_as_it_should() {
    let lines = screen(&app(), 150, 16);
    assert!(
        lines[0].starts_with("meantime top  process 4711: meantime bench --rw randread  "),
        "{}",
        lines[0]
    );
    assert!(lines[0].ends_with("3 queues, 191k IOPS"), "{}", lines[0]);
    let expected = "
                                                                   mean  expected    CPU  CPU \
                                                                   per     sleeps    overslept  \
                                                                   fallbacks      in
queue  device               thread         policy            IOPS    µs        µs      %   I/O µs  \
% of I/Os  % of sleeps      per s  flight
    3  mem:1G?model=optane  meantime-job0  adaptive:cpu=30  95.2k  10.5  10.0 +5%   41.3     \
    4.33       99.9          0.2          0       1
    4  mem:1G?model=optane  meantime-job0  poll             96.0k  10.1         –  100.0        \
    –          –            –          0       4
    5  mem:1G?model=optane  meantime-job0  hybrid-min        idle     –         –      –        \
    –          –            –          –       –

queue 4: poll, mean 10.1 µs
so far: 0 I/Os, 0 waits, 0 sleeps, 0 overslept, 0 fallbacks, 0 blocked";
    assert_eq!(lines[1..10], expected.lines().collect::<Vec<_>>());
    assert!(lines[10].starts_with(" IOPS of queue 4, at most 96.0k ─"), "{}", lines[10]);
    assert!(
        lines[11].ends_with('█') && lines[14].ends_with('█'),
        "one look so far, which is the most"
    );
    assert_eq!(lines[15], "↑↓ choose   p policy   q quit");
}

#[test]
fn a_narrow_screen_keeps_what_matters() {
    let lines = screen(&app(), 60, 12);
    assert_eq!(lines[3], "queue  policy            IOPS    µs        µs      %");
    assert_eq!(lines[4], "    3  adaptive:cpu=30  95.2k  10.5  10.0 +5%   41.3");
    assert!(screen(&app(), 100, 12)[4].contains("mem:1G?m"), "a name is cut before a column goes");
    let lines = screen(&app(), 40, 12);
    assert_eq!(lines[3], "queue  policy            IOPS    µs");
    // It does not panic at any size.
    for (width, height) in [(1, 1), (5, 2), (20, 3), (300, 100)] {
        let mut app = app();
        screen(&app, width, height);
        app.key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE));
        screen(&app, width, height);
    }
}

#[test]
fn the_list_of_policies_and_what_became_of_a_change() {
    let mut app = app();
    app.key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE));
    let text = screen(&app, 110, 24).join("\n");
    assert!(
        text.contains("how queue 4 is to wait")
            && text.contains("│ poll  ")
            && text.contains("or type one"),
        "{text}"
    );
    assert!(text.contains("dpas"), "all of them fit");
    for c in "hybrid=7us".chars() {
        app.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
    assert!(screen(&app, 110, 24).join("\n").contains("│ hybrid=7us"));
    app.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    app.answered(4, "interrupt", Err("refused: no vector".into()));
    assert_eq!(screen(&app, 110, 24)[23], "queue 4: refused: no vector");
}

#[test]
fn without_queues_it_says_so() {
    let mut app = app();
    app.update(Vec::new());
    let text = screen(&app, 80, 12).join("\n");
    assert!(text.contains("no queues at present") && text.contains("0 queues, 0 IOPS"), "{text}");
}
