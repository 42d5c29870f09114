//! Changes of policy from the command line: `QUEUE=POLICY`.

use meantime_block::control::Client;

use super::process::{Process, plain};
use crate::failure::Failure;

/// The queues, and their new policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The queue, or `None` for all.
    queue: Option<u64>,
    policy: String,
}

impl Change {
    /// Parses `3=poll` or `all=adaptive:cpu=30`. The process, which may be another version, decides
    /// whether there is such a policy.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::usage(format_args!(
                "--set {text}: use QUEUE=POLICY or all=POLICY, e.g. 3=hybrid-min"
            ))
        };
        let (queue, policy) =
            text.split_once('=').filter(|(_, policy)| !policy.is_empty()).ok_or_else(wrong)?;
        let queue = match queue {
            "all" => None,
            number => Some(number.parse().map_err(|_| wrong())?),
        };
        Ok(Self { queue, policy: policy.to_owned() })
    }

    /// Makes the change. Returns a line for each changed queue.
    pub(super) fn make(&self, process: &Process, client: &mut Client) -> Result<String, Failure> {
        let queues = match self.queue {
            Some(queue) => vec![queue],
            None => {
                let snapshot = client.snapshot().map_err(|error| process.failure(&error))?;
                snapshot.queues.iter().map(|queue| queue.id).collect()
            }
        };
        let (mut done, mut refused) = (String::new(), Vec::new());
        for queue in queues {
            match client.set(queue, &self.policy) {
                Ok(()) => done += &format!("queue {queue}: {}\n", self.policy),
                Err(error) => refused.push(format!("queue {queue}: {}", plain(&error.to_string()))),
            }
        }
        if refused.is_empty() {
            return Ok(done);
        }
        eprint!("{done}");
        Err(Failure::new(refused.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        let change = |queue, policy: &str| Change { queue, policy: policy.into() };
        assert_eq!(Change::parse("3=poll").unwrap(), change(Some(3), "poll"));
        assert_eq!(Change::parse("3=adaptive:cpu=30").unwrap(), change(Some(3), "adaptive:cpu=30"));
        assert_eq!(Change::parse("all=hybrid=2us").unwrap(), change(None, "hybrid=2us"));
        for wrong in ["", "3", "3=", "=poll", "-1=poll", "x=poll", "3:poll"] {
            assert!(
                format!("{:?}", Change::parse(wrong).unwrap_err()).contains("QUEUE=POLICY"),
                "{wrong}"
            );
        }
    }
}
