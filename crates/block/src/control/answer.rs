//! Parses a request line and produces the answer line.

use serde_json::{Map, Value, json};

use super::metrics::Metrics;
use meantime_completion::Policy;
use meantime_completion::telemetry::{self, AskError, Asked, QueueFigures, QueueState, Snapshot};

/// The reaction to a line.
pub(super) enum Next {
    /// Send this answer.
    Answer(Value),
    /// Wait for the answer of the channel's thread.
    Asked {
        /// The request.
        asked: Asked,
        /// The policy requested.
        policy: Policy,
        /// The policy before.
        before: String,
    },
}

const USE: &str =
    r#"use {"get":"queues"}, {"get":"metrics"} or {"set":{"queue":1,"policy":"poll"}}"#;

/// The most queues listed in an error.
const QUEUES_NAMED_MAX: usize = 16;

pub(super) fn error(text: impl std::fmt::Display) -> Value {
    json!({ "error": text.to_string() })
}

/// Handles the request in `line`.
pub(super) fn handle(line: &[u8]) -> Next {
    match parse(line) {
        Ok(Command::Queues) => Next::Answer(queues(&Snapshot::take())),
        Ok(Command::Metrics) => {
            Next::Answer(json!({ "pid": std::process::id(), "metrics": Metrics::take().to_json() }))
        }
        Ok(Command::Set { queue, policy }) => match telemetry::channel(queue) {
            Some(control) => {
                let before = control.state().policy;
                match control.ask(policy) {
                    Ok(asked) => Next::Asked { asked, policy, before },
                    Err(refused) => Next::Answer(error(refused)),
                }
            }
            None => Next::Answer(error(no_queue(queue))),
        },
        Err(why) => Next::Answer(error(why)),
    }
}

fn no_queue(queue: u64) -> String {
    let mut others: Vec<String> =
        telemetry::channels().iter().map(|control| control.id().to_string()).collect();
    if others.is_empty() {
        return format!("there is no queue {queue}: the process has none at present");
    }
    if others.len() > QUEUES_NAMED_MAX {
        others.truncate(QUEUES_NAMED_MAX);
        others.push("…".to_owned());
    }
    format!("there is no queue {queue}; there are {}", others.join(", "))
}

/// The answer to a change.
pub(super) fn outcome(queue: u64, policy: Policy, outcome: &Result<(), AskError>) -> Value {
    match outcome {
        Ok(()) => json!({ "done": { "queue": queue, "policy": policy.to_string() } }),
        Err(why) => error(why),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Queues,
    Metrics,
    Set { queue: u64, policy: Policy },
}

fn parse(line: &[u8]) -> Result<Command, String> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| format!("this is no JSON ({error}); {USE}"))?;
    let object = value.as_object().filter(|object| object.len() == 1);
    let (key, value) = object
        .and_then(|object| object.iter().next())
        .ok_or_else(|| format!("one request a line; {USE}"))?;
    match (key.as_str(), value) {
        ("get", Value::String(what)) if what == "queues" => Ok(Command::Queues),
        ("get", Value::String(what)) if what == "metrics" => Ok(Command::Metrics),
        ("get", _) => Err(format!(r#"only "queues" and "metrics" can be had; {USE}"#)),
        ("set", Value::Object(set)) => parse_set(set),
        ("set", _) => Err(format!("a change names a queue and its policy; {USE}")),
        _ => Err(format!("there is no request {key:?}; {USE}")),
    }
}

fn parse_set(set: &Map<String, Value>) -> Result<Command, String> {
    if let Some(other) = set.keys().find(|key| !["queue", "policy"].contains(&key.as_str())) {
        return Err(format!("{other:?} cannot be set; {USE}"));
    }
    let queue = set
        .get("queue")
        .and_then(Value::as_u64)
        .ok_or_else(|| format!("the queue is a number; {USE}"))?;
    let policy = set
        .get("policy")
        .and_then(Value::as_str)
        .ok_or_else(|| format!("the policy is a text; {USE}"))?;
    let policy = policy.parse().map_err(|error| format!("{error}"))?;
    Ok(Command::Set { queue, policy })
}

/// The answer to `{"get":"queues"}`.
pub(super) fn queues(snapshot: &Snapshot) -> Value {
    let queues: Vec<Value> = snapshot.queues.iter().map(queue).collect();
    json!({ "pid": std::process::id(), "now_ns": snapshot.now_ns, "queues": queues })
}

fn queue(state: &QueueState) -> Value {
    let mut map = Map::new();
    map.insert("id".to_owned(), json!(state.id));
    map.insert("device".to_owned(), json!(state.device));
    map.insert("thread".to_owned(), json!(state.thread));
    map.insert("policy".to_owned(), json!(state.policy));
    for (name, value) in QueueFigures::NAMES.iter().zip(state.figures.values()) {
        map.insert((*name).to_owned(), json!(value));
    }
    Value::Object(map)
}

/// Parses the output of [`queues`]. A missing figure is 0, for compatibility between versions.
pub(super) fn read_queues(value: &Value) -> Option<Snapshot> {
    let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
    let state = |value: &Value| {
        let figure =
            |at: usize| value.get(QueueFigures::NAMES[at]).and_then(Value::as_u64).unwrap_or(0);
        Some(QueueState {
            id: value.get("id")?.as_u64()?,
            device: text(value, "device")?,
            thread: text(value, "thread")?,
            policy: text(value, "policy")?,
            figures: QueueFigures::from_values(std::array::from_fn(figure)),
        })
    };
    Some(Snapshot {
        now_ns: value.get("now_ns")?.as_u64()?,
        queues: value.get("queues")?.as_array()?.iter().map(state).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(parse(br#"{"get":"queues"}"#), Ok(Command::Queues));
        assert_eq!(parse(br#"{"get":"metrics"}"#), Ok(Command::Metrics));
        let set = Command::Set { queue: 3, policy: Policy::HybridHalfMean };
        assert_eq!(parse(br#" {"set": {"policy":"hybrid", "queue":3}} "#), Ok(set));
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_would_do() {
        for (line, word) in [
            ("", "no JSON"),
            ("get queues", "no JSON"),
            ("\u{0}\u{1}", "no JSON"),
            ("{}", "one request"),
            ("[]", "one request"),
            ("null", "one request"),
            (r#"{"get":"queues","set":1}"#, "one request"),
            (r#"{"get":"all"}"#, "only"),
            (r#"{"get":["queues"]}"#, "only"),
            (r#"{"drop":"queues"}"#, "no request \"drop\""),
            (r#"{"set":3}"#, "names a queue"),
            (r#"{"set":{"queue":-1,"policy":"poll"}}"#, "is a number"),
            (r#"{"set":{"queue":1.5,"policy":"poll"}}"#, "is a number"),
            (r#"{"set":{"queue":1}}"#, "is a text"),
            (r#"{"set":{"queue":1,"policy":7}}"#, "is a text"),
            (r#"{"set":{"queue":1,"policy":"poll","depth":3}}"#, "\"depth\" cannot be set"),
        ] {
            let why = parse(line.as_bytes()).unwrap_err();
            assert!(
                why.contains(word) && why.contains(USE) && !why.contains('\n'),
                "{line}: {why}"
            );
        }
        let why = parse(br#"{"set":{"queue":1,"policy":"pol"}}"#).unwrap_err();
        assert!(why.contains("use interrupt, poll"), "{why}");
        assert!(parse(&b"[".repeat(4000)).unwrap_err().contains("no JSON"), "nested too deep");
        let Next::Answer(answer) = handle(br#"{"set":{"queue":9999999,"policy":"poll"}}"#) else {
            panic!()
        };
        assert!(answer["error"].as_str().unwrap().contains("no queue 9999999"));
    }

    #[test]
    fn a_snapshot_round_trips() {
        let state = QueueState {
            id: 3,
            device: "mem:1M?model=\"x\"\n".into(),
            thread: "worker".into(),
            policy: "hybrid=2us".into(),
            figures: QueueFigures::from_values(std::array::from_fn(|at| u64::MAX - at as u64)),
        };
        let snapshot = Snapshot { now_ns: 5, queues: vec![state] };
        let line = queues(&snapshot).to_string();
        assert!(!line.contains('\n'));
        assert_eq!(read_queues(&serde_json::from_str(&line).unwrap()), Some(snapshot));
        assert_eq!(read_queues(&json!({ "now_ns": 5, "queues": [{ "id": 1 }] })), None);
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_answered(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn nearly_right_is_answered(
            key in "(get|set|[a-z]{0,4})",
            text in "[ -~]{0,12}",
            number in any::<f64>(),
        ) {
            for line in [
                json!({ &key: &text }),
                json!({ &key: { "queue": number, "policy": &text } }),
                json!({ &key: { "queue": 1, &text: &text } }),
            ] {
                let _ = parse(line.to_string().as_bytes());
            }
        }
    }
}
