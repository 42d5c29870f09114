//! Files whose reads are futures.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use super::cache::{FillDuty, LookUp, PAGE, PAGE_BYTES, PageCache};
use super::counters::Count;
use super::error::{Error, MountError, Result};
use super::file::File;
use super::file::read::cached::{CachedRead, PagePart, Step, copy_hits, part};
use super::fs::FileSystem;
use super::inode::Mount;
use super::io::CHUNK_BYTES;
use super::io::direct::Stopped;
use super::io::fill::{Fill, FillMemory, NotSent};
use super::io::target::{Piece, Target};
use super::options::{Advice, MountOptions, ReadOptions};
use meantime_block::{
    AsyncChannel, BlockDevice, Channel, ChannelOptions, Device, Done, Io, Local, Rejected, Request,
    RequestError, Sharing,
};
use meantime_completion::Policy;
use meantime_ext4_format::Metadata;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Pages looked up before the reads sent for them are waited for.
const CHUNK_PAGES_MAX: u64 = 64;

/// The most requests of a direct read in flight.
const WINDOW: usize = 8;

/// How often a read is repeated because the file changed, before it is done as a thread's read.
const TRIES: u32 = 8;

/// A mounted file system and the channel through which its files are read. Clones share both.
///
/// File data are read through the channel, so the reads of all tasks of a thread are in flight
/// together. Directories and inodes are read synchronously by the calling thread, through the
/// mount's own channels, and stay in the mount's memory.
///
/// ```
/// # use meantime::block::{self, OpenOptions};
/// # use meantime::ext4::{AsyncFileSystem, MountOptions};
/// # fn read(uri: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let device = block::open(uri, &OpenOptions::default())?;
/// let fs = AsyncFileSystem::mount(device, &MountOptions::default())?;
/// pollster::block_on(async {
///     let file = fs.open("/etc/hostname").await?;
///     let mut name = vec![0; 64];
///     let bytes = file.read_at(&mut name, 0).await?;
///     println!("{}", String::from_utf8_lossy(&name[..bytes]));
///     Ok(())
/// })
/// # }
/// ```
pub struct AsyncFileSystem<S: Sharing = Local> {
    fs: FileSystem,
    channel: AsyncChannel<Channel, S>,
    memory: Arc<Mutex<FillMemory>>,
}

/// A file open for reading by futures.
///
/// Dropping a future gives up its requests and its pages to fill. A future that was polled and is
/// kept without being polled blocks other tasks that need the pages it claimed: poll it, or drop
/// it.
///
/// Read-ahead uses the mount's own channels. On a mount for writing, data that change during the
/// read are read again.
pub struct AsyncFile<S: Sharing = Local> {
    file: File,
    channel: AsyncChannel<Channel, S>,
    memory: Arc<Mutex<FillMemory>>,
}

impl<S: Sharing> Clone for AsyncFileSystem<S> {
    fn clone(&self) -> Self {
        Self {
            fs: self.fs.clone(),
            channel: self.channel.clone(),
            memory: Arc::clone(&self.memory),
        }
    }
}

impl AsyncFileSystem {
    /// Mounts the file system on `device`, with a channel for tasks of the calling thread.
    ///
    /// # Errors
    /// The errors of [`FileSystem::mount`].
    pub fn mount(device: Device, options: &MountOptions) -> Result<Self, MountError> {
        let uri = device.info().uri.clone();
        let fs = FileSystem::mount(device, options)?;
        let channel_options =
            ChannelOptions { policy: options.policy, ..ChannelOptions::default() };
        let channel = fs.device().channel(&channel_options).map_err(|error| {
            MountError::Failed { uri, error: Error::Resources(error.to_string()) }
        })?;
        Ok(Self { memory: memory(&fs), fs, channel: AsyncChannel::new(channel) })
    }
}

/// Creates the memory for requests of page-cache pages, with no page in stock.
fn memory(fs: &FileSystem) -> Arc<Mutex<FillMemory>> {
    let device = fs.device();
    let memory = FillMemory::new(device.heap(), device.info().block_bytes, 0);
    Arc::new(Mutex::new(Rank::FillMemory, memory))
}

impl<S: Sharing> AsyncFileSystem<S> {
    /// Reads the files of `fs` through `channel`, which belongs to the same device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the channel is another device's.
    pub fn new(fs: FileSystem, channel: AsyncChannel<Channel, S>) -> Result<Self> {
        let buf = channel.alloc(PAGE_BYTES).map_err(|error| Error::Resources(error.to_string()))?;
        if !buf.is_of(fs.device().heap()) {
            return Err(Error::Invalid("the channel is one of another device"));
        }
        Ok(Self { memory: memory(&fs), fs, channel })
    }

    /// The channel, for an executor that drives it.
    pub fn channel(&self) -> &AsyncChannel<Channel, S> {
        &self.channel
    }

    /// The mount, for everything except reading files.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The errors of [`FileSystem::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<AsyncFile<S>> {
        Ok(self.with_file(self.fs.open(path)?))
    }

    /// Wraps `file`, which is on this mount, for reading by futures.
    pub fn with_file(&self, file: File) -> AsyncFile<S> {
        AsyncFile { file, channel: self.channel.clone(), memory: Arc::clone(&self.memory) }
    }
}

/// A request's tag, which gives up the duties for its pages when it is dropped.
struct Filling<'a> {
    cache: &'a PageCache,
    fill: Option<Fill>,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        if let Some(fill) = self.fill.take() {
            // The pages return to the heap once the device no longer uses them.
            self.cache.lose_pages(fill.pages().count());
            fill.abandon(self.cache);
        }
    }
}

/// A duty, which is given up when it is dropped.
struct Claimed<'a> {
    cache: &'a PageCache,
    duty: Option<FillDuty>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(duty) = self.duty.take() {
            self.cache.abandon(duty);
        }
    }
}

/// A request that was submitted, or that waits for room in the queue.
struct Sent<'a, S: Sharing> {
    io: Io<'a, Channel, S>,
    early: Option<Result<Done, Rejected>>,
}

impl<'a, S: Sharing> Sent<'a, S> {
    /// Submits `request`, or queues it until there is room.
    fn send(channel: &'a AsyncChannel<Channel, S>, request: Request, cx: &mut Context<'_>) -> Self {
        let mut io = channel.submit(request);
        let early = match Pin::new(&mut io).poll(cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        };
        Self { io, early }
    }

    /// Waits for the request's result.
    async fn outcome(self) -> Result<Done, Rejected> {
        match self.early {
            Some(outcome) => outcome,
            None => self.io.await,
        }
    }
}

/// A request for pages of the cache.
struct Flight<'a, S: Sharing> {
    sent: Sent<'a, S>,
    filling: Filling<'a>,
    first: u64,
}

/// The reads that a turn has begun.
struct Begun<'a, S: Sharing> {
    flights: VecDeque<Flight<'a, S>>,
    /// Pages to be assembled from several pieces.
    gathered: Vec<(u64, Claimed<'a>)>,
    /// Pages to be read past the cache.
    private: Vec<u64>,
}

impl<S: Sharing> AsyncFile<S> {
    /// The file, for everything except reading by futures.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The metadata, as `fstat` returns them.
    pub fn metadata(&self) -> Metadata {
        self.file.metadata()
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Announces how the range will be read (see [`File::advise`]).
    ///
    /// # Errors
    /// The errors of [`File::advise`].
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<()> {
        self.file.advise(offset, bytes, advice)
    }

    /// Reads into `buf` from byte `offset`. Returns the number of bytes, which is smaller than
    /// `buf` only at the end of the file.
    ///
    /// # Errors
    /// The errors of [`File::read_at`].
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at_with(buf, offset, &ReadOptions::default()).await
    }

    /// Reads into `buf` from byte `offset`, with `options`. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of [`File::read_at_with`].
    pub async fn read_at_with(
        &self,
        buf: &mut [u8],
        offset: u64,
        options: &ReadOptions,
    ) -> Result<usize> {
        let left = self.file.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if len == 0 || !self.file.is_in_blocks() || !self.file.may_be_read() {
            // None of these waits for the device, except to read inline data.
            return self.file.read_at_with(buf, offset, options);
        }
        let (mut at, end) = (offset, offset + len as u64);
        for _ in 0..TRIES {
            let mut bufs = [IoSliceMut::new(&mut buf[(at - offset) as usize..len])];
            let mut target = Target::new(&mut bufs);
            let read = if options.direct {
                self.read_direct(&mut target, at..end, options).await
            } else {
                self.read_cached(&mut target, at..end, options).await
            };
            at = match read {
                Ok(Read::Until(byte)) => byte,
                Ok(Read::Again(byte)) => {
                    at = byte;
                    continue;
                }
                Err(error) if at == offset => return Err(error),
                Err(_) => at,
            };
            self.file.note_access();
            return Ok((at - offset) as usize);
        }
        // The file keeps changing, so the rest is read by the thread, which keeps the file's blocks
        // meanwhile.
        let rest = self.file.read_at_with(&mut buf[(at - offset) as usize..len], at, options);
        match rest {
            Ok(read) => Ok((at - offset) as usize + read),
            Err(error) if at == offset => Err(error),
            Err(_) => Ok((at - offset) as usize),
        }
    }
}

/// The progress of a read.
enum Read {
    /// Everything before this byte of the file was read. An error or the end of the file may
    /// follow.
    Until(u64),
    /// From this byte on, the file changed during the read.
    Again(u64),
}

impl<S: Sharing> AsyncFile<S> {
    fn mount(&self) -> &Mount {
        &self.file.node().mount
    }

    fn memory(&self) -> MutexGuard<'_, FillMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's version, if the file may change.
    fn version(&self) -> Option<u64> {
        let inode = &self.file.node().inode;
        inode.writable.as_ref().map(|_| inode.version())
    }

    /// Reads `bytes`, which are within the file, past the cache.
    async fn read_direct(
        &self,
        target: &mut Target<'_, '_>,
        bytes: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Read> {
        let mount = self.mount();
        let (version, end, extents) = match &self.file.node().inode.writable {
            None => (None, bytes.end, self.file.extents_of(bytes.start, bytes.end)?),
            Some(writable) => {
                let (_guard, extents) = self.file.clean_extents(writable, bytes.clone())?;
                (self.version(), bytes.end.min(self.file.size()), extents)
            }
        };
        if end <= bytes.start {
            return Ok(Read::Until(bytes.start));
        }
        mount.counts.add(Count::Direct, (end - bytes.start).div_ceil(PAGE));
        let pieces = self.file.finder(&extents).pieces(bytes.start..end);
        let read = self.read_pieces(0, pieces, target, options.policy).await;
        match read {
            // Blocks may have been freed since, and may belong to another file.
            _ if version != self.version() => Ok(Read::Again(bytes.start)),
            Ok(()) => Ok(Read::Until(end)),
            Err(Stopped { done: 0, error }) => Err(error),
            Err(Stopped { done, .. }) => Ok(Read::Until(bytes.start + done as u64)),
        }
    }

    /// Reads `bytes`, which are within the file, through the cache.
    async fn read_cached(
        &self,
        target: &mut Target<'_, '_>,
        bytes: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Read> {
        let (mount, ino) = (self.mount(), u64::from(self.file.node().ino()));
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let at = copy_hits(mount.contexts.cache(), ino, bytes.clone(), target);
        let mut next = if at == bytes.end { pages.end } else { at / PAGE };
        mount.counts.add(Count::Hits, next - pages.start);
        self.file.send_due_window(&pages, options);
        let (mut miss_noted, mut end) = (false, bytes.end);
        while next * PAGE < end {
            let mut chunk = next..pages.end.min(next + CHUNK_PAGES_MAX);
            let (version, extents) = {
                let _guard = self.file.keep_blocks();
                // The file may have been truncated.
                end = end.min(self.file.size());
                chunk.end = chunk.end.min(end.div_ceil(PAGE));
                (self.version(), self.file.extents_of_pages(&chunk)?)
            };
            if chunk.is_empty() {
                break;
            }
            next = chunk.end;
            let bytes = bytes.start..end;
            let mut read = CachedRead::new(&self.file, &extents, target, bytes.clone(), options);
            (read.miss_noted, read.version) = (miss_noted, version);
            self.read_chunk(&mut read, chunk).await;
            miss_noted = read.miss_noted;
            // Data before an error or a change are valid.
            let again = read.stale.map(|index| (index * PAGE).max(bytes.start));
            match (again, read.failed) {
                (Some(byte), Some((failed, _))) if byte <= failed => return Ok(Read::Again(byte)),
                (_, Some((failed, error))) if failed <= bytes.start => return Err(error),
                (_, Some((failed, _))) => return Ok(Read::Until(failed)),
                (Some(byte), None) => return Ok(Read::Again(byte)),
                (None, None) => {}
            }
        }
        Ok(Read::Until(end.max(bytes.start)))
    }

    /// Reads `pages`, at most [`CHUNK_PAGES_MAX`] of them.
    async fn read_chunk(&self, read: &mut CachedRead<'_, '_, '_>, pages: Range<u64>) {
        let begun = poll_fn(|cx| Poll::Ready(self.begin(read, pages.clone(), cx))).await;
        let Begun { mut flights, gathered, private } = begun;
        while let Some(flight) = flights.pop_front() {
            self.land(flight, read).await;
        }
        for (index, claimed) in gathered {
            self.gather(index, claimed, read).await;
        }
        for index in private {
            self.read_private(index, read).await;
        }
        for index in std::mem::take(&mut read.others) {
            if read.failed.as_ref().is_some_and(|(at, _)| *at <= index * PAGE)
                || read.stale.is_some_and(|stale| stale <= index)
            {
                break;
            }
            self.wait_for_other(index, read).await;
        }
    }

    /// Submits reads for the missing pages of `pages`, and does the work that can wait: in the gap,
    /// unless the executor is collecting requests, and rings the doorbell later.
    fn begin<'a>(
        &'a self,
        read: &mut CachedRead<'_, '_, '_>,
        pages: Range<u64>,
        cx: &mut Context<'_>,
    ) -> Begun<'a, S> {
        let mut begun =
            Begun { flights: VecDeque::new(), gathered: Vec::new(), private: Vec::new() };
        // The file keeps its blocks until all pages are claimed. Blocks freed later are
        // invalidated, so they reach neither the cache nor this read.
        let _guard = self.file.keep_blocks();
        if read.version != self.version() {
            read.again_from(pages.start);
            return begun;
        }
        read.begin(pages);
        let cache = self.mount().contexts.cache();
        loop {
            let mut memory = self.memory();
            let (fill_range, request) = match read.step(memory.duties()) {
                Step::Send(fill_range) => {
                    (fill_range, memory.request(cache, fill_range, read.policy))
                }
                Step::Gather(index, duty) => {
                    begun.gathered.push((index, Claimed { cache, duty: Some(duty) }));
                    continue;
                }
                Step::Private(index) => {
                    begun.private.push(index);
                    continue;
                }
                Step::End => break,
            };
            drop(memory);
            match request {
                Ok((request, fill)) => {
                    let counts = &read.mount.counts;
                    counts.add(Count::Requests, 1);
                    counts.add(Count::RequestedBytes, fill_range.bytes as u64);
                    counts.add(Count::Misses, read.next - fill_range.first);
                    let filling = Filling { cache, fill: Some(fill) };
                    let sent = Sent::send(&self.channel, request, cx);
                    begun.flights.push_back(Flight { sent, filling, first: fill_range.first });
                }
                Err(NotSent::Failed(error)) => read.fail(fill_range.first, error),
                Err(NotSent::Full | NotSent::NoPage) => {
                    begun.private.push(fill_range.first);
                    read.next = fill_range.first + 1;
                }
            }
        }
        read.maintain_in_gap();
        begun.private.extend(read.copy_deferred());
        let missed = read.missed.take();
        if let Some(window) = read.window(missed) {
            self.file.send_window(window, read.policy);
        }
        begun
    }

    /// Completes `flight`, and copies its pages.
    async fn land(&self, flight: Flight<'_, S>, read: &mut CachedRead<'_, '_, '_>) {
        let Flight { sent, mut filling, first } = flight;
        let outcome = sent.outcome().await;
        let Some(fill) = filling.fill.take() else { return };
        let mut memory = self.memory();
        let (bytes, target) = (read.offset..read.end, &mut *read.target);
        let result = match outcome {
            Ok(done) => memory.complete(read.cache, done, fill, |index, page| {
                let PagePart { at, within, len } = part(bytes.clone(), index);
                target.put(at, &page[within..within + len]);
            }),
            Err(rejected) => match memory.take_rejected(read.cache, rejected, fill) {
                NotSent::Failed(error) => Err(error),
                NotSent::Full | NotSent::NoPage => return read.again_from(first),
            },
        };
        match result {
            // Blocks may have been freed since, and may belong to another file.
            Ok(is_there) if !is_there && read.version.is_some() => read.again_from(first),
            Ok(_) => {}
            Err(error) => read.fail(first, error),
        }
    }

    /// Assembles page `index` from its pieces.
    async fn gather(
        &self,
        index: u64,
        mut claimed: Claimed<'_>,
        read: &mut CachedRead<'_, '_, '_>,
    ) {
        let from = index * PAGE;
        let stop = (from + PAGE).min(self.file.size());
        let mut content = [0; PAGE_BYTES];
        let mut bufs = [IoSliceMut::new(&mut content)];
        let pieces = read.finder.pieces(from..stop);
        let gathered = self.read_pieces(0, pieces, &mut Target::new(&mut bufs), read.policy).await;
        if let Err(Stopped { error, .. }) = gathered {
            return read.fail(index, error);
        }
        let PagePart { at, within, len } = read.part(index);
        read.target.put(at, &content[within..within + len]);
        read.mount.counts.add(Count::Misses, 1);
        let mut is_there = false;
        // If there is no free page, dropping the duty gives it up.
        let page = self.memory().page(read.cache);
        if let Some(mut page) = page
            && let Some(duty) = claimed.duty.take()
        {
            page.set_len(PAGE_BYTES);
            page.copy_from_slice(&content);
            match read.cache.publish(duty, page) {
                Ok(_) => is_there = true,
                Err(page) => read.cache.give_pages([page]),
            }
        }
        if !is_there {
            read.note_if_stale(index);
        }
    }

    /// Reads page `index` past the cache.
    async fn read_private(&self, index: u64, read: &mut CachedRead<'_, '_, '_>) {
        if read.note_if_stale(index) {
            return;
        }
        let PagePart { at, within, len } = read.part(index);
        let from = index * PAGE + within as u64;
        read.mount.counts.add(Count::Private, 1);
        let pieces = read.finder.pieces(from..from + len as u64);
        let policy = read.policy;
        let result = self.read_pieces(at, pieces, read.target, policy).await;
        // The page was written or freed during the read.
        if read.note_if_stale(index) {
            return;
        }
        if let Err(Stopped { done, error }) = result {
            read.fail_at(read.offset + done as u64, error);
        }
    }

    /// Waits until another reader has filled page `index`.
    async fn wait_for_other(&self, index: u64, read: &mut CachedRead<'_, '_, '_>) {
        let (cache, mount, ino) = (read.cache, read.mount, read.ino);
        mount.counts.add(Count::Waits, 1);
        poll_fn(|cx| {
            let LookUp::Filling(filling) = cache.look_up(ino, index) else {
                return Poll::Ready(());
            };
            // An I/O context without a thread may be reading the page ahead. No thread would then
            // wake this task.
            mount.contexts.each_left(|io| io.reap_ahead(cache, &mount.counts));
            if mount.counts.is_ahead() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if cache.register(filling, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        if !read.copy(index) {
            // The page could not be read, or was evicted again.
            read.again_from(index);
        }
    }

    /// Reads `pieces`, which are contiguous and in order, into `target` from byte `at`.
    async fn read_pieces(
        &self,
        mut at: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<(), Stopped> {
        let channel = &self.channel;
        let counts = &self.mount().counts;
        let block_bytes = channel.info().block_bytes as usize;
        let mut flying: VecDeque<(Sent<'_, S>, usize, usize, usize)> = VecDeque::new();
        for piece in pieces {
            let mut to = at;
            at += piece.len;
            let Some(mut place) = target.put_piece(to, &piece) else { continue };
            while to < at {
                if flying.len() == WINDOW
                    && let Some(oldest) = flying.pop_front()
                {
                    land_copy(oldest, target).await?;
                }
                let lead = (place % block_bytes as u64) as usize;
                let bytes = (CHUNK_BYTES - lead).min(at - to);
                let done = flying.front().map_or(to, |(_, at, ..)| *at);
                let buf = channel.alloc((lead + bytes).next_multiple_of(block_bytes)).map_err(
                    |error| Stopped { done, error: Error::Resources(error.to_string()) },
                )?;
                let mut request = Some(Request::read(place / block_bytes as u64, buf));
                if let Some(request) = &mut request {
                    request.policy = policy;
                }
                counts.add(Count::Requests, 1);
                counts.add(Count::RequestedBytes, bytes as u64);
                let sent = poll_fn(|cx| match request.take() {
                    Some(request) => Poll::Ready(Sent::send(channel, request, cx)),
                    None => Poll::Pending,
                });
                flying.push_back((sent.await, to, lead, bytes));
                (place, to) = (place + bytes as u64, to + bytes);
            }
        }
        while let Some(oldest) = flying.pop_front() {
            land_copy(oldest, target).await?;
        }
        Ok(())
    }
}

async fn land_copy<S: Sharing>(
    (sent, at, lead, bytes): (Sent<'_, S>, usize, usize, usize),
    target: &mut Target<'_, '_>,
) -> Result<(), Stopped> {
    let stopped = |error| Stopped { done: at, error };
    let done = sent.outcome().await;
    let done = done.map_err(|rejected| stopped(RequestError::from(rejected.error).into()))?;
    done.result.map_err(|error| stopped(Error::from_io(error)))?;
    let buf = done.buf.ok_or_else(|| stopped(RequestError::Quarantined.into()))?;
    target.put(at, &buf[lead..lead + bytes]);
    Ok(())
}
