//! Devices and files of an experiment, and what stands in braces in its commands.

use std::fmt::Write as _;

use super::{Bench, RunError};
use crate::experiment::FileText;

/// The number of I/Os of a trace. They take about a second, since the kernel's rule has its first
/// mean after 100 ms.
const TRACED_IOS: usize = 250_000;

impl Bench<'_> {
    /// Whether the run is a short one.
    pub(super) fn is_quick(&self) -> bool {
        self.options.cell_s < 0.5
    }

    /// Returns the path of a file for experiments.
    fn scratch(&self, name: &str) -> String {
        format!("{}/{name}", self.options.scratch)
    }

    /// Chooses the path of an image in memory, where there is such a place.
    pub(super) fn choose_disk(&mut self, id: &str) -> String {
        let shared = format!("/dev/shm/meantime-{}-{id}.img", std::process::id());
        // An existing name may be a link that somebody else put there.
        let path = match std::fs::File::create_new(&shared) {
            Ok(_) => shared,
            Err(_) => self.scratch(&format!("{id}.img")),
        };
        let _ = std::fs::remove_file(&path);
        self.disk = Some(path.clone());
        path
    }

    /// Returns `text` with devices and files in place of what stands in braces.
    pub(super) fn resolved(&self, text: &str) -> String {
        let mut parts = text.split('{');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let place = part.split_once('}').and_then(|(place, rest)| {
                let (kind, name) = place.split_once(':')?;
                Some((self.place(kind, name)?, rest))
            });
            match place {
                Some((place, rest)) => out += &(place + rest),
                None => {
                    out.push('{');
                    out += part;
                }
            }
        }
        out
    }

    fn place(&self, kind: &str, name: &str) -> Option<String> {
        Some(match kind {
            // The leg's device: a software SSD of this model, or the user's device.
            "ssd" => match self.device {
                Some(device) => device.to_owned(),
                None => format!("mem:256M?model={name}"),
            },
            // It loses no write at a power cut, as the documents' do not.
            "disk" => format!("file:{}?model={name}&vwc=0", self.disk.as_ref()?),
            "scratch" if name.is_empty() => self.options.scratch.clone(),
            "file" | "scratch" => self.scratch(name),
            "tenth" => {
                let count: u64 = name.parse().ok()?;
                (if self.is_quick() { count / 10 } else { count }).to_string()
            }
            _ => return None,
        })
    }

    /// Writes a file for the experiment.
    pub(super) fn write(&self, name: &str, text: &FileText) -> Result<(), RunError> {
        let path = self.scratch(name);
        let text = match text {
            FileText::Text(text) => self.resolved(text),
            FileText::Lines(lines) => self.resolved(&lines.concat()),
            FileText::Repeated { text, times } => text.repeat(*times),
            FileText::Model { model, channels, inside } => {
                let name = name.trim_end_matches(".toml");
                format!(
                    "name = \"{name}\"\nsource = \"made up for an experiment\"\nchannels = \
                     {channels}\ninside = {inside}\nread = {points}\nwrite = {points}\nflush_ns = \
                     2000\ntrim_ns = 2600\n",
                    points = serde_json::json!(model).to_string().replace(',', ", ")
                )
            }
            FileText::Trace { trace } => traced(trace),
        };
        std::fs::write(&path, text)
            .map_err(|error| RunError::Missing(format!("cannot write {path}: {error}")))
    }
}

/// Returns I/Os for the simulator, in an order at random that is the same each time.
fn traced(mix: &[(u64, u64, u64)]) -> String {
    let mut state = 17u64;
    let mut text = String::new();
    for _ in 0..TRACED_IOS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (drawn, mut below) = ((state >> 33) % 100, 0);
        let size = mix.iter().find(|(_, share, _)| {
            below += share;
            drawn < below
        });
        if let Some((bytes, _, ns)) = size {
            let _ = writeln!(text, "read {bytes} {ns}");
        }
    }
    text
}
