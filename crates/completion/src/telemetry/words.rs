//! Words that one thread writes and any thread reads consistently, and text in them. No lock, no
//! `unsafe`: every word is an atomic.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Retries of a reader before it yields to the writer: a write takes some tens of nanoseconds, unless
/// the writer was descheduled.
const LOOKS_PER_YIELD: u32 = if cfg!(loom) { 1 } else { 64 };

/// `N` words that are read as one: a sequence lock. The writer never waits; a reader retries if it
/// overlapped a write.
///
/// The order is that of Boehm, "Can seqlocks get along with programming language memory models?"
/// (MSPC 2012), with the data in relaxed atomics: *odd* is stored before the data (Release fence
/// between), *even* after it (Release). A reader that loads any word of a write sees, after its
/// Acquire fence, at least that write's odd number, and retries.
#[derive(Debug)]
pub(super) struct SeqWords<const N: usize> {
    /// Even: the words are consistent. Odd: they are being written.
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> SeqWords<N> {
    /// The words `first`.
    pub(super) fn new(first: [u64; N]) -> Self {
        Self { sequence: AtomicU64::new(0), words: first.map(AtomicU64::new) }
    }

    /// Replaces all words. Only one thread at a time may call it: the owner of the writer's side.
    pub(super) fn write(&self, words: &[u64; N]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, from) in self.words.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Reads all words of one write.
    pub(super) fn read(&self) -> [u64; N] {
        let mut looks = 0u32;
        loop {
            if let Some(words) = self.try_read() {
                return words;
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_YIELD) {
                #[cfg(loom)]
                loom::thread::yield_now();
                #[cfg(not(loom))]
                std::thread::yield_now();
            }
        }
    }

    /// `None` while they are being written.
    fn try_read(&self) -> Option<[u64; N]> {
        let before = self.sequence.load(Ordering::Acquire);
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(words)
    }
}

/// A short text in `N` words. Not synchronised by itself: the reader knows by other means that the
/// text is written.
#[derive(Debug)]
pub(super) struct TextWords<const N: usize>([AtomicU64; N]);

impl<const N: usize> TextWords<N> {
    /// No text.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Stores `text`, truncated if there is no room.
    pub(super) fn store(&self, text: &str) {
        for (to, from) in self.0.iter().zip(pack::<N>(text)) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// The text.
    pub(super) fn load(&self) -> String {
        let words: [u64; N] = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        unpack(&words)
    }
}

/// `text` in words, cut at a character boundary if it is too long; the rest is zero.
pub(super) fn pack<const N: usize>(text: &str) -> [u64; N] {
    let mut end = text.len().min(8 * N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(text.as_bytes()[..end].chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    words
}

/// The text in `words`: up to the first zero byte.
pub(super) fn unpack(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(unpack(&pack::<2>("hybrid=2us")), "hybrid=2us");
        assert_eq!(unpack(&pack::<1>("exactly8")), "exactly8");
        assert_eq!(unpack(&pack::<1>("exactly 8 or more")), "exactly ");
        // By hand: 7 bytes fit, and the first of the two of µ.
        assert_eq!(unpack(&pack::<1>("1234567µ")), "1234567");
        assert_eq!(unpack(&pack::<2>("")), "");
        let text = TextWords::<2>::new();
        text.store("a longer text than fits");
        text.store("poll");
        assert_eq!(text.load(), "poll");
    }

    /// Every write has one value in all words, so that a mixture would be detected.
    #[test]
    fn nothing_read_is_torn() {
        let words = SeqWords::<24>::new([0; 24]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Relaxed) {
                        let read = words.read();
                        assert!(read.iter().all(|&word| word == read[0]), "{read:?}");
                        assert!(read[0] >= last, "{} after {last}", read[0]);
                        last = read[0];
                    }
                });
            }
            for value in 1..=300_000 {
                words.write(&[value; 24]);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(words.read(), [300_000; 24]);
    }
}
