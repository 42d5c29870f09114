//! What was found: a verdict for each check.

use askama::Template;
use meantime_report::view;
use serde_json::{Value, json};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The device does what the specification requires.
    Conforms,
    /// It does something else.
    Deviates,
    /// The device does not have what is checked, and need not have it.
    NotSupported,
    /// Nothing is known, e.g. because a check was left out.
    NotTested,
}

impl Verdict {
    /// The words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Conforms => "conforms",
            Self::Deviates => "deviates",
            Self::NotSupported => "not supported",
            Self::NotTested => "not tested",
        }
    }
}

impl Verdict {
    /// The class of its words on a page.
    const fn class(self) -> &'static str {
        match self {
            Self::Conforms => "as",
            Self::Deviates => "important",
            Self::NotSupported | Self::NotTested => "open",
        }
    }
}

/// Something that the device does otherwise than the specification says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// The section of the specification.
    pub section: &'static str,
    /// What the device does, and what is required.
    pub what: String,
}

/// A check with its outcome.
#[derive(Debug, Clone)]
pub struct Check {
    /// Its name for programs.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The outcome.
    pub verdict: Verdict,
    /// Why it is not supported or not tested; otherwise empty.
    pub reason: String,
    /// The deviations; empty unless it deviates.
    pub deviations: Vec<Deviation>,
    /// Figures and other facts: a name and words.
    pub facts: Vec<(String, String)>,
    /// How long the check took, in µs.
    pub took_us: u64,
}

impl Check {
    /// Whether a page shows more than its heading at first.
    fn is_open(&self) -> bool {
        self.verdict == Verdict::Deviates || ["waits", "rates"].contains(&self.name)
    }

    /// How long it took, in words.
    pub fn took(&self) -> String {
        meantime_report::figures::time(self.took_us as f64 * 1e3)
    }
}

/// The outcome of all checks of a device.
#[derive(Debug, Clone)]
pub struct Report {
    /// The device's URI.
    pub uri: String,
    /// Model, firmware and so on, without the serial number.
    pub device: Vec<(String, String)>,
    /// What Meantime does otherwise for this model ([`QUIRKS`](crate::QUIRKS)).
    pub quirks: Vec<&'static str>,
    /// Whether data on the device were overwritten.
    pub destroyed: bool,
    /// Whether the end came before all checks were made.
    pub interrupted: bool,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl Report {
    /// The number of checks with `verdict`.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// The check `name`.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// The checks that the device deviates in.
    pub fn deviating(&self) -> Vec<&Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Deviates).collect()
    }

    /// The model's name, or a word for it.
    pub fn model(&self) -> &str {
        let model = self.device.iter().find(|(name, _)| name == "model");
        model.map_or("A device that could not be attached", |(_, model)| model)
    }

    /// How many checks have which verdict, in a sentence.
    pub fn summary(&self) -> String {
        let counts = [
            (Verdict::Conforms, "conform"),
            (Verdict::Deviates, "deviate"),
            (Verdict::NotSupported, "not supported"),
            (Verdict::NotTested, "not tested"),
        ];
        let counts = counts.map(|(verdict, words)| format!("{} {words}", self.count(verdict)));
        let end = if self.interrupted { "; interrupted before the end" } else { "" };
        format!("{} checks: {}{end}", self.checks.len(), counts.join(", "))
    }

    /// The report as a page; `generator` is the program that makes it.
    pub fn page(&self, generator: &str) -> String {
        let title = format!("{}: qualified", self.model());
        view::framed(generator, &title, "qualify", &view::render(&Page { report: self }))
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let pairs = |facts: &[(String, String)]| -> Value {
            facts.iter().map(|(name, words)| (name.clone(), json!(words))).collect()
        };
        let checks = self.checks.iter().map(|check| {
            let deviations = check.deviations.iter();
            json!({
                "name": check.name,
                "title": check.title,
                "verdict": check.verdict.words(),
                "reason": check.reason,
                "deviations": deviations
                    .map(|one| json!({ "section": one.section, "what": one.what }))
                    .collect::<Vec<_>>(),
                "facts": pairs(&check.facts),
                "took_us": check.took_us,
            })
        });
        json!({
            "uri": self.uri,
            "device": pairs(&self.device),
            "quirks": self.quirks,
            "destroyed": self.destroyed,
            "interrupted": self.interrupted,
            "conforms": self.count(Verdict::Deviates) == 0 && !self.interrupted,
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
}
