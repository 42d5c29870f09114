//! A table of the queues.

use serde_json::{Value, json};

use super::process::{Process, shortened};
use super::row::Row;
use crate::facts::{object, table};

/// Returns the table, with its process.
pub(super) fn text(process: &Process, rows: &[Row]) -> String {
    let mut text =
        format!("process {}: {}\n", process.served.pid, shortened(&process.command, 100));
    if rows.is_empty() {
        text += "It has no queues at present.\n";
        return text;
    }
    text += &table(&rows.iter().map(Row::facts).collect::<Vec<_>>());
    for row in rows {
        if let Some(choice) = row.choice() {
            text += &format!("queue {}: {choice}\n", row.state.id);
        }
    }
    text
}

/// Returns the table as JSON.
pub(super) fn json(process: &Process, rows: &[Row], interval_ns: u64) -> Value {
    json!({
        "pid": process.served.pid,
        "command": process.command,
        "interval_ns": interval_ns,
        "queues": rows.iter().map(|row| object(&row.facts())).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use meantime_block::control::Served;

    use super::super::row::tests::known;
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_queue() {
        let process = Process {
            served: Served { pid: 7, path: "/run/7.sock".into() },
            command: "meantime bench".into(),
        };
        let text = text(&process, &known());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "process 7: meantime bench");
        assert_eq!(lines.len(), 7, "{text}");
        assert!(lines[4].contains("adaptive:cpu=30") && lines[4].contains("10.0 +5%"), "{text}");
        assert!(super::text(&process, &[]).contains("no queues"));
        assert_eq!(json(&process, &known(), 5)["queues"][2]["queue"], json!(5));
    }
}
