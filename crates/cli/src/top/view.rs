//! The drawing of the live view.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Cell, Clear, Paragraph, RenderDirection, Row as TableRow, Sparkline, Table, TableState,
};

use super::app::{App, Message, POLICIES, Popup};
use super::process::{plain, shortened};
use super::row::{COLUMNS, Column, Row, iops, micros};

/// Columns between two columns of the table.
const GAP: usize = 2;

/// Minimum length of a shortened device name.
const DEVICE_MIN: usize = 10;

/// A mean that differs this much from the expected one is marked, in percent.
const MISS_PERCENT: f64 = 25.0;

/// Sleeps are marked from this percentage of oversleeps on.
const OVERSLEEP_PERCENT: f64 = 5.0;

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame, app: &App) {
    let area = frame.area();
    let count = app.rows.as_ref().map_or(0, Vec::len) as u16;
    // The table has the height it needs; the sparkline gets the rest, if there is enough.
    let detail_lines = app.chosen_row().map_or(2, |row| 2 + u16::from(row.choice().is_some()));
    let table = (count + 2).min(area.height.saturating_sub(9 + detail_lines).max(4));
    let below = area.height.saturating_sub(table + 4 + detail_lines);
    let chart = if below >= 3 { below.min(12) } else { 0 };
    let [head, short, rows, _, detail, chart, _, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(table),
        Constraint::Length(1),
        Constraint::Length(detail_lines),
        Constraint::Length(chart),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, app);
    if let Some(rates) = &app.short {
        frame.render_widget(Paragraph::new(rates.text()), short);
    }
    match &app.rows {
        None => frame.render_widget(Paragraph::new("looking …").dim(), rows),
        Some(list) if list.is_empty() => {
            frame
                .render_widget(Paragraph::new("The process has no queues at present.").dim(), rows);
        }
        Some(list) => draw_rows(frame, rows, list, app.chosen_at()),
    }
    if let Some(row) = app.chosen_row() {
        draw_detail(frame, detail, row);
        draw_chart(frame, chart, app, row);
    }
    draw_foot(frame, foot, app);
    if let Some(popup) = &app.popup {
        draw_popup(frame, area, popup);
    }
}

fn draw_head(frame: &mut Frame, area: Rect, app: &App) {
    let rows = app.rows.as_deref().unwrap_or_default();
    // Not `sum`, which is -0 for none.
    let total = rows.iter().fold(0.0, |sum, row| sum + row.rates.iops);
    let queues = if rows.len() == 1 { "queue" } else { "queues" };
    let sum = format!(" {} {queues}, {} IOPS", rows.len(), iops(total));
    let left = format!("meantime top  process {}: ", app.process.served.pid);
    let room = usize::from(area.width).saturating_sub(left.chars().count() + sum.chars().count());
    let command = shortened(&app.process.command, room);
    let line = Line::from(vec![Span::raw(left).bold(), Span::raw(command)]);
    frame.render_widget(Paragraph::new(line), area);
    frame.render_widget(Paragraph::new(sum).alignment(Alignment::Right), area);
}

/// Returns the columns that fit, with their widths.
fn fitting(rows: &[Row], room: usize) -> Vec<(&'static Column, usize)> {
    let characters = |text: &str| text.chars().count();
    let mut columns: Vec<(&Column, usize)> = COLUMNS
        .iter()
        .map(|column| {
            let widest = rows.iter().map(|row| characters(&(column.text)(row))).max().unwrap_or(0);
            (column, column.head.iter().map(|head| characters(head)).fold(widest, usize::max))
        })
        .collect();
    let width = |columns: &[(&Column, usize)]| {
        columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    loop {
        let over = width(&columns).saturating_sub(room);
        if over == 0 {
            return columns;
        }
        // Names are shortened first.
        let name = columns
            .iter_mut()
            .find(|(column, width)| column.head[1] == "device" && *width > DEVICE_MIN);
        if let Some((_, width)) = name {
            *width = width.saturating_sub(over).max(DEVICE_MIN);
            continue;
        }
        let least = columns.iter().map(|(column, _)| column.spare).max().unwrap_or(0);
        if least == 0 {
            return columns;
        }
        columns.retain(|(column, _)| column.spare != least);
    }
}

fn draw_rows(frame: &mut Frame, area: Rect, rows: &[Row], chosen: Option<usize>) {
    let columns = fitting(rows, usize::from(area.width));
    let head = columns.iter().map(|(column, _)| {
        let lines = column.head.map(|head| Line::from(head).alignment(column.align));
        Cell::from(lines.to_vec())
    });
    let lines = rows.iter().map(|row| {
        let cells = columns.iter().map(|(column, width)| {
            let text = shortened(&(column.text)(row), *width);
            Cell::from(Line::from(text).alignment(column.align)).style(style_of(column, row))
        });
        let style = if row.is_idle() { Style::new().dim() } else { Style::new() };
        TableRow::new(cells).style(style)
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    let table = Table::new(lines, widths)
        .header(TableRow::new(head).height(2).bold())
        .column_spacing(GAP as u16)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(chosen));
}

/// Marks values that need attention in yellow.
fn style_of(column: &Column, row: &Row) -> Style {
    let stands_out = match column.head[0] {
        "expected" => row.miss_percent().is_some_and(|percent| percent.abs() > MISS_PERCENT),
        "overslept" => {
            row.rates.oversleep_percent.is_some_and(|percent| percent > OVERSLEEP_PERCENT)
        }
        "fallbacks" => row.rates.fallbacks_per_s > 0.0,
        _ => false,
    };
    if stands_out { Style::new().fg(Color::Yellow) } else { Style::new() }
}

fn draw_detail(frame: &mut Frame, area: Rect, row: &Row) {
    let figures = &row.state.figures;
    let mut first = format!("queue {}: {}", row.state.id, plain(&row.state.policy));
    let expected = [("expected", figures.expected_ns), ("at least", figures.expected_low_ns)];
    for (what, ns) in expected.into_iter().filter(|(_, ns)| *ns > 0) {
        first += &format!(", {what} {} µs", micros(Some(ns as f64)));
    }
    if row.rates.mean_ns.is_some() {
        first += &format!(", mean {} µs", micros(row.rates.mean_ns));
    }
    let second = format!(
        "so far: {} I/Os, {} waits, {} sleeps, {} overslept, {} fallbacks, {} blocked",
        figures.ended,
        figures.waits,
        figures.sleeps,
        figures.oversleeps,
        figures.fallbacks,
        figures.blocks
    );
    let mut lines = vec![Line::from(first), Line::from(second).dim()];
    if let Some(choice) = row.choice() {
        lines.insert(1, Line::from(choice.to_string()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_chart(frame: &mut Frame, area: Rect, app: &App, row: &Row) {
    let Some(history) = app.history.get(&row.state.id) else { return };
    if area.height < 3 {
        return;
    }
    // The latest is at the right edge.
    let values: Vec<u64> = history.iter().rev().take(usize::from(area.width)).copied().collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let title = format!(" IOPS of queue {}, at most {} ", row.state.id, iops(most as f64));
    let block = Block::new()
        .borders(ratatui::widgets::Borders::TOP)
        .title(title)
        .border_style(Style::new().dim());
    let line = Sparkline::default()
        .block(block)
        .data(&values)
        .max(most.max(1))
        .direction(RenderDirection::RightToLeft)
        .style(Style::new().fg(Color::Cyan));
    frame.render_widget(line, area);
}

fn draw_foot(frame: &mut Frame, area: Rect, app: &App) {
    const KEYS: &str = "↑↓ choose   p policy   q quit";
    let (text, style) = match &app.message {
        None => (KEYS.to_owned(), Style::new().dim()),
        Some(Message::Said(text)) => (text.clone(), Style::new().fg(Color::Green)),
        Some(Message::Refused(text)) => (text.clone(), Style::new().fg(Color::Red)),
    };
    frame.render_widget(
        Paragraph::new(shortened(&text, usize::from(area.width))).style(style),
        area,
    );
}

fn draw_popup(frame: &mut Frame, area: Rect, popup: &Popup) {
    let names = POLICIES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let abouts = POLICIES.iter().map(|(_, about)| about.chars().count()).max().unwrap_or(0);
    let width = (names + abouts + 6).min(usize::from(area.width)) as u16;
    let height = (POLICIES.len() as u16 + 4).min(area.height);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let title = format!(" how queue {} is to wait ", popup.queue);
    let block = Block::bordered()
        .title(title)
        .title_bottom(" ↑↓ choose   Tab edit   Enter set   Esc leave ");
    let inner = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    let [list, _, typed] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)])
            .areas(inner);
    let first = (popup.at + 1).saturating_sub(usize::from(list.height));
    let lines = POLICIES.iter().enumerate().skip(first).map(|(at, (name, about))| {
        let line =
            Line::from(vec![Span::raw(format!(" {name:names$}  ")), Span::raw(*about).dim()]);
        if at == popup.at && popup.typed.is_empty() { line.reversed() } else { line }
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), list);
    let line = if popup.typed.is_empty() {
        Line::from(" or type one, e.g. adaptive:latency=10").dim()
    } else {
        Line::from(vec![Span::raw(format!(" {}", popup.typed)), Span::raw(" ").reversed()])
    };
    frame.render_widget(Paragraph::new(line), typed);
}

#[cfg(test)]
mod tests;
