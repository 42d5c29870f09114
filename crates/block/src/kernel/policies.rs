//! Which policies the kernel can wait by.

use super::super::error::ChannelError;
use super::super::uri::KernelEngine;
use super::rings::{Rings, is_hybrid_min};
use super::shared::Shared;
use meantime_completion::{Goal, Policy};

/// Whether Linux once had such a policy, which was removed.
fn was_removed(policy: Policy) -> bool {
    matches!(policy, Policy::HybridFixed(_) | Policy::HybridHalfMean)
        || policy.rule().is_some_and(|rule| rule.name() == "hybrid-bucket")
}

impl Shared {
    /// Checks that the kernel can wait by `policy`. The error is the reason.
    pub(super) fn can_wait(&self, policy: Policy) -> Result<(), String> {
        let polls = policy.is_poll() || is_hybrid_min(policy);
        match policy {
            Policy::Interrupt | Policy::Adaptive(Goal::Latency(_)) => Ok(()),
            _ if polls && self.options.engine == KernelEngine::Preadv2 => {
                let why = "Linux ignores RWF_HIPRI for synchronous I/O since 5.19";
                Err(format!("{why}; use engine=io_uring"))
            }
            Policy::Poll => self.polls.get_or_init(|| Rings::try_polling(self, policy)).clone(),
            _ if is_hybrid_min(policy) && self.file.namespace.is_some() => {
                Err("NVMe passthrough is not polled so here: use poll, or the block device \
                     (kernel:/dev/nvme0n1)"
                    .to_owned())
            }
            _ if is_hybrid_min(policy) => Rings::try_polling(self, policy),
            _ if was_removed(policy) => Err(
                "Linux has no such sleep before polling since 6.4 (io_poll_delay was removed); use \
                 hybrid-min, io_uring's own"
                    .to_owned(),
            ),
            _ => Err(format!(
                "the kernel decides how its own I/O is waited for, and has no {policy}: use \
                 adaptive, interrupt, poll or hybrid-min, or drive the device by a URI of our own driver"
            )),
        }
    }

    /// The policy of the ring beside the plain one that `policy` needs.
    pub(super) fn polled(&self, policy: Policy) -> Option<Policy> {
        match policy {
            Policy::Interrupt => None,
            Policy::Adaptive(_) => Some(Policy::Poll).filter(|poll| self.can_wait(*poll).is_ok()),
            polled => Some(polled),
        }
    }

    pub(super) fn check_policy(&self, uri: &str, policy: Policy) -> Result<(), ChannelError> {
        self.can_wait(policy).map_err(|why| ChannelError::Policy {
            uri: uri.to_owned(),
            policy,
            why,
        })
    }
}
