//! The control socket of a run, and the changes made through it. Results note which queues did not
//! keep their first policy.

use meantime_block::control::{Change, ControlServer};
use serde_json::{Value, json};

/// The control socket of this process, if it could be created.
pub(super) struct Control(Option<ControlServer>);

impl Control {
    /// Serves from now on, if it is `wanted`. A failure does not prevent the measurement.
    pub(super) fn serve(wanted: bool) -> Self {
        Self(wanted.then(crate::mount::control).flatten())
    }

    fn changes(&self) -> Vec<Change> {
        self.0.as_ref().map(ControlServer::changes).unwrap_or_default()
    }

    /// Returns the changes as text, which is empty without changes.
    pub(super) fn text(&self) -> String {
        let changes = self.changes();
        if changes.is_empty() {
            return String::new();
        }
        let one = |Change { queue, before, after, .. }: &Change| {
            format!("queue {queue}: {before} → {after}")
        };
        let list: Vec<String> = changes.iter().map(one).collect();
        format!(
            "Policies were changed while this ran, by `meantime top`: {}. The results go by the \
             policies that the queues began with.\n",
            list.join("; ")
        )
    }

    /// Returns the changes for the JSON.
    pub(super) fn json(&self) -> Value {
        let json = |Change { queue, before, after, .. }: &Change| json!({ "queue": queue, "completion": before, "changed_to": after });
        self.changes().iter().map(json).collect()
    }
}
