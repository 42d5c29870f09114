//! Bytes that have come on a connection and are not yet parsed.

/// Bytes of the buffer.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// The buffer of a connection: what has come, in order.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }

    /// What has come.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `bytes`.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for the bytes that come next. It is never empty, since less than a header waits to be
    /// parsed.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that `bytes` have come into [`room`](Self::room).
    pub(crate) fn came(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Splits an empty buffer: room for `count` headers of `bytes` each, and room for what follows
    /// the data that is received elsewhere.
    pub(crate) fn split(
        &mut self,
        bytes: usize,
        count: usize,
    ) -> (impl Iterator<Item = &mut [u8]>, &mut [u8]) {
        (self.start, self.end) = (0, 0);
        let (first, last) = self.buffer.split_at_mut(BUFFER_BYTES / 2);
        (first[..bytes * count].chunks_mut(bytes), last)
    }

    /// The first `bytes`, which are the headers after [`split`](Self::split).
    pub(crate) fn heads(&self, bytes: usize) -> &[u8] {
        &self.buffer[..bytes]
    }

    /// Called after [`split`](Self::split): the bytes to be parsed are `gap` bytes, which `load`
    /// writes, and the `tail` bytes that follow the data.
    pub(crate) fn fill(&mut self, gap: usize, tail: usize, load: impl FnOnce(&mut [u8])) {
        load(&mut self.buffer[..gap]);
        self.buffer.copy_within(BUFFER_BYTES / 2..BUFFER_BYTES / 2 + tail, gap);
        (self.start, self.end) = (0, gap + tail);
    }
}
