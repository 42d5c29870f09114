//! The control socket of a run, and what was changed by it: results note that their queues did not
//! keep the policy that they began with.

use meantime_block::control::{self, Change, ControlServer};
use serde_json::{Value, json};

use crate::failure::warn;

/// The control socket of this process, if it could be made.
pub(super) struct Control(Option<ControlServer>);

impl Control {
    /// Serves from now on, if it is `wanted`. That it cannot is no reason not to measure.
    pub(super) fn serve(wanted: bool) -> Self {
        if !wanted {
            return Self(None);
        }
        let served = control::own_path().and_then(|path| control::serve(&path));
        Self(
            served
                .inspect_err(|error| {
                    warn(format_args!("`meantime top` cannot look at this run: {error}"))
                })
                .ok(),
        )
    }

    fn changes(&self) -> Vec<Change> {
        self.0.as_ref().map(ControlServer::changes).unwrap_or_default()
    }

    /// Says what was changed; nothing if nothing was.
    pub(super) fn text(&self) -> String {
        let changes = self.changes();
        if changes.is_empty() {
            return String::new();
        }
        let list: Vec<String> = changes
            .iter()
            .map(|change| format!("queue {}: {} → {}", change.queue, change.before, change.after))
            .collect();
        format!(
            "Policies were changed while this ran, by `meantime top`: {}. The results go by the \
             policies that the queues began with.\n",
            list.join("; ")
        )
    }

    /// The same for the JSON.
    pub(super) fn json(&self) -> Value {
        let json = |Change { queue, before, after, .. }: &Change| json!({ "queue": queue, "completion": before, "changed_to": after });
        self.changes().iter().map(json).collect()
    }
}
