//! Random numbers, and settings from the environment.

/// The number in the environment variable `name`, if set.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")))
}

/// The generator for all random choices of tests.
pub struct Rng(meantime_random::Rng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(meantime_random::Rng::new(seed))
    }

    #[allow(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 0 to `n` − 1. By remainder, so that the runs of existing seeds stay the same.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
