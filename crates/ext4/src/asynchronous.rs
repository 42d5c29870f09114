//! Files whose reads are futures.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;

use super::cache::{Claim, Claiming, LookUp, PAGE_BYTES, PageCache};
use super::counters::Count;
use super::error::{Error, MountError};
use super::file::File;
use super::file::read::cached::{PAGE, copy_hit, whole_pages};
use super::fs::FileSystem;
use super::inode::Mount;
use super::inode::extents::Finder;
use super::io::direct::CHUNK_BYTES;
use super::io::fill::CHUNK_PAGES;
use super::io::target::Target;
use super::io::target::{Piece, Place};
use super::options::{Advice, MountOptions, ReadOptions};
use meantime_block::{
    AsyncChannel, BlockDevice, Channel, ChannelOptions, Device, Done, Io, Local, Rejected, Request,
    RequestError, Sharing,
};
use meantime_completion::Policy;
use meantime_ext4_format::Metadata;
use meantime_hw::{DmaBuf, DmaPages};
use meantime_process::lock::{Mutex, Rank};

/// Pages that are gone through before what was sent is waited for.
const TURN_PAGES: u64 = 64;

/// Requests of a direct read that are under way at once.
const WINDOW: usize = 8;

/// A mounted file system, and the channel that its files are read through. Cloning shares both.
///
/// Data are read through the channel, so that tasks of one thread have their reads under way
/// together. What is read of directories and inodes is read at once, by the calling thread, through
/// the mount's own channels; the mount keeps it.
///
/// ```
/// # use meantime::block::{self, Executor, OpenOptions};
/// # use meantime::ext4::{AsyncFileSystem, MountOptions};
/// # fn read(uri: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let device = block::open(uri, &OpenOptions::default())?;
/// let fs = AsyncFileSystem::mount(device, &MountOptions::default())?;
/// let executor = Executor::new(fs.channel())?;
/// executor.block_on(async {
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
    lists: Arc<Mutex<Vec<DmaPages>>>,
}

/// A file that is open for reading by futures.
///
/// A future that is dropped gives up what it had asked for. Nothing is read ahead: a task that
/// wants the next part can ask for it.
pub struct AsyncFile<S: Sharing = Local> {
    file: File,
    channel: AsyncChannel<Channel, S>,
    lists: Arc<Mutex<Vec<DmaPages>>>,
}

impl<S: Sharing> Clone for AsyncFileSystem<S> {
    fn clone(&self) -> Self {
        Self { fs: self.fs.clone(), channel: self.channel.clone(), lists: Arc::clone(&self.lists) }
    }
}

impl AsyncFileSystem {
    /// Mounts the file system on `device`, with a channel for tasks of the calling thread.
    ///
    /// # Errors
    /// As [`FileSystem::mount`].
    pub fn mount(device: Device, options: &MountOptions) -> Result<Self, MountError> {
        let uri = device.info().uri.clone();
        let fs = FileSystem::mount(device, options)?;
        let channel_options = ChannelOptions {
            policy: options.policy.unwrap_or_default(),
            ..ChannelOptions::default()
        };
        let channel = fs.device().channel(&channel_options).map_err(|error| {
            MountError::Failed { uri, error: Error::Resources(error.to_string()) }
        })?;
        Ok(Self { fs, channel: AsyncChannel::new(channel), lists: no_lists() })
    }
}

impl<S: Sharing> AsyncFileSystem<S> {
    /// The files of `fs` by `channel`, which is one of its device's.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is another's.
    pub fn new(fs: FileSystem, channel: AsyncChannel<Channel, S>) -> Result<Self, Error> {
        let buf = channel.alloc(PAGE_BYTES).map_err(|error| Error::Resources(error.to_string()))?;
        if !buf.is_of(fs.device().heap()) {
            return Err(Error::Invalid("the channel is one of another device"));
        }
        Ok(Self { fs, channel, lists: no_lists() })
    }

    /// The channel: for an executor that drives it.
    pub fn channel(&self) -> &AsyncChannel<Channel, S> {
        &self.channel
    }

    /// The mount: for everything but reading files.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<AsyncFile<S>, Error> {
        Ok(self.with_file(self.fs.open(path)?))
    }

    /// `file`, which is one of this mount's, to be read by futures.
    pub fn with_file(&self, file: File) -> AsyncFile<S> {
        AsyncFile { file, channel: self.channel.clone(), lists: Arc::clone(&self.lists) }
    }
}

/// Claims whose pages are with a request. If that is given up, so are they.
struct Held<'a> {
    cache: &'a PageCache,
    claims: Vec<Claim>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The pages go back to the heap, when the device is done with them.
        self.cache.lose_pages(self.claims.len());
        self.claims.drain(..).for_each(|claim| self.cache.abandon(claim));
    }
}

/// A request that was sent, if there was room for it.
struct Sent<'a, S: Sharing> {
    io: Io<'a, Channel, S>,
    early: Option<Result<Done, Rejected>>,
}

impl<'a, S: Sharing> Sent<'a, S> {
    async fn send(channel: &'a AsyncChannel<Channel, S>, request: Request) -> Self {
        let mut io = channel.submit(request);
        let early = poll_fn(|cx| match Pin::new(&mut io).poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => Poll::Ready(None),
        });
        let early = early.await;
        Self { io, early }
    }

    /// What came of it: the buffer, and whether it holds what was asked for.
    async fn outcome(self) -> (Option<DmaBuf>, Result<(), Error>) {
        let outcome = match self.early {
            Some(outcome) => outcome,
            None => self.io.await,
        };
        match outcome {
            Ok(Done { result: Ok(()), buf: None, .. }) => {
                (None, Err(RequestError::Quarantined.into()))
            }
            Ok(done) => (done.buf, done.result.map_err(Error::from_io)),
            Err(rejected) => (rejected.request.buf, Err(RequestError::from(rejected.error).into())),
        }
    }
}

/// A request for pages of the cache.
struct Flight<'a, S: Sharing> {
    sent: Sent<'a, S>,
    held: Held<'a>,
    first: u64,
    bytes: usize,
}

impl<S: Sharing> AsyncFile<S> {
    /// The file, for everything but reading by futures.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What `fstat` tells.
    pub fn metadata(&self) -> Metadata {
        self.file.metadata()
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// As [`File::advise`].
    ///
    /// # Errors
    /// As there.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<(), Error> {
        self.file.advise(offset, bytes, advice)
    }

    /// Reads into `buf` from byte `offset` on; how many bytes: fewer than asked for only at the end
    /// of the file.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read_at_with(buf, offset, &ReadOptions::default()).await
    }

    /// As [`read_at`](Self::read_at), as `options` say.
    ///
    /// # Errors
    /// As [`File::read_at_with`].
    pub async fn read_at_with(
        &self,
        buf: &mut [u8],
        offset: u64,
        options: &ReadOptions,
    ) -> Result<usize, Error> {
        let left = self.file.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if len == 0
            || options.no_wait
            || !self.file.is_in_blocks()
            || self.file.node().known.live.is_some()
        {
            // Nothing of that waits for the device; but where files may change, a read is one of
            // the calling thread's.
            return self.file.read_at_with(buf, offset, options);
        }
        let end = offset + len as u64;
        let mount = &*self.file.node().mount;
        let extents = self.file.extents_of_pages(&(offset / PAGE..end.div_ceil(PAGE)))?;
        let mut bufs = [IoSliceMut::new(buf)];
        let reader =
            Reader { file: self, mount, finder: self.file.finder(&extents), offset, end, options };
        let mut target = Target::new(&mut bufs);
        let read = if options.direct {
            mount.counts.add(Count::Direct, len.div_ceil(PAGE_BYTES) as u64);
            reader.read_past(0, offset..end, &mut target).await
        } else {
            reader.read_through(&mut target).await
        };
        match read {
            Ok(()) => Ok(len),
            Err((0, error)) => Err(error),
            Err((done, _)) => Ok(done),
        }
    }
}

/// An error, and how many bytes of the read came before it.
type Stopped = (usize, Error);

struct Reader<'a, S: Sharing> {
    file: &'a AsyncFile<S>,
    mount: &'a Mount,
    finder: Finder<'a>,
    offset: u64,
    end: u64,
    options: &'a ReadOptions,
}

impl<'a, S: Sharing> Reader<'a, S> {
    fn cache(&self) -> &'a PageCache {
        self.mount.contexts.cache()
    }

    fn ino(&self) -> u64 {
        u64::from(self.file.file.node().ino())
    }

    fn policy(&self) -> Option<Policy> {
        self.options.policy
    }

    /// The bytes of page `index` that are wanted: where in the target, where in the page, how many.
    fn part(&self, index: u64) -> (usize, usize, usize) {
        let (begin, stop) = ((index * PAGE).max(self.offset), ((index + 1) * PAGE).min(self.end));
        ((begin - self.offset) as usize, (begin - index * PAGE) as usize, (stop - begin) as usize)
    }

    fn copy(&self, index: u64, target: &mut Target<'_, '_>) -> bool {
        let (at, within, len) = self.part(index);
        copy_hit(self.cache(), self.ino(), index, within, at, len, target)
    }

    async fn read_through(&self, target: &mut Target<'_, '_>) -> Result<(), Stopped> {
        let pages = self.offset / PAGE..self.end.div_ceil(PAGE);
        let mut next = pages.start;
        while next < pages.end && self.copy(next, target) {
            next += 1;
        }
        self.mount.counts.add(Count::Hits, next - pages.start);
        while next < pages.end {
            let turn = next..pages.end.min(next + TURN_PAGES);
            next = turn.end;
            self.turn(turn, target).await?;
        }
        Ok(())
    }

    async fn turn(&self, pages: Range<u64>, target: &mut Target<'_, '_>) -> Result<(), Stopped> {
        let mut flights = VecDeque::new();
        let mut later = Vec::new();
        let mut next = pages.start;
        while next < pages.end {
            let most = (pages.end - next).min(CHUNK_PAGES as u64);
            let block_bytes = self.file.channel.info().block_bytes;
            let whole = whole_pages(block_bytes, &self.finder, self.file.size(), next, most);
            let claimed = match whole {
                Some((place, count, bytes)) => self.send(next, place, count, bytes).await,
                None => None,
            };
            match claimed {
                Some(flight) => {
                    next += flight.held.claims.len() as u64;
                    flights.push_back(flight);
                }
                None => {
                    later.push(next);
                    next += 1;
                }
            }
        }
        // In the gap.
        self.cache().maintain(0, 0);
        let mut stopped: Result<(), Stopped> = Ok(());
        while let Some(flight) = flights.pop_front() {
            let first = flight.first;
            if let Err(error) = self.land(flight, target).await {
                self.mount.counts.add(Count::Failed, 1);
                let (at, ..) = self.part(first);
                stopped = stopped.and(Err((at, error)));
            }
        }
        for index in later {
            let (at, ..) = self.part(index);
            if stopped.as_ref().is_err_and(|(stop, _)| at >= *stop) {
                break;
            }
            self.read_later(index, target).await?;
        }
        stopped
    }

    /// Claims up to `count` pages from `first` on and has them read; `None` if the first cannot be
    /// claimed.
    async fn send(
        &self,
        first: u64,
        place: u64,
        count: usize,
        bytes: usize,
    ) -> Option<Flight<'a, S>> {
        let (cache, ino) = (self.cache(), self.ino());
        let mut held = Held { cache, claims: Vec::new() };
        let claimed = cache.claim_run(ino, first, count, &mut held.claims);
        if claimed == 0 {
            return None;
        }
        let mut pages = Vec::with_capacity(claimed);
        let taken = cache.take_pages(claimed, &mut pages);
        let bytes = bytes.min(claimed * PAGE_BYTES);
        let block_bytes = self.file.channel.info().block_bytes as usize;
        let whole = bytes.next_multiple_of(block_bytes);
        let buf = if taken < claimed { None } else { self.file.buffer(&mut pages, whole) };
        let Some(buf) = buf else {
            cache.give_pages(pages);
            held.claims.drain(..).for_each(|claim| cache.abandon(claim));
            return None;
        };
        let mut request = Request::read(place / block_bytes as u64, buf);
        request.policy = self.policy();
        let counts = &self.mount.counts;
        counts.add(Count::Requests, 1);
        counts.add(Count::RequestedBytes, bytes as u64);
        counts.add(Count::Misses, claimed as u64);
        let sent = Sent::send(&self.file.channel, request).await;
        Some(Flight { sent, held, first, bytes })
    }

    async fn land(&self, flight: Flight<'_, S>, target: &mut Target<'_, '_>) -> Result<(), Error> {
        let Flight { sent, mut held, first, bytes } = flight;
        let cache = self.cache();
        let (buf, result) = sent.outcome().await;
        let Some(buf) = buf else { return result };
        let pages: Vec<DmaBuf> = match DmaPages::from_buf(buf) {
            Ok(mut list) => {
                let pages = list.drain().collect();
                self.file.lists.lock().unwrap_or_else(PoisonError::into_inner).push(list);
                pages
            }
            Err(page) => vec![page],
        };
        if result.is_err() {
            cache.give_pages(pages);
            held.claims.drain(..).for_each(|claim| cache.abandon(claim));
            return result;
        }
        for ((index, mut page), claim) in (first..).zip(pages).zip(held.claims.drain(..)) {
            page.set_len(PAGE_BYTES);
            let there = bytes.saturating_sub((index - first) as usize * PAGE_BYTES);
            if there < PAGE_BYTES {
                page[there..].fill(0);
            }
            let (at, within, len) = self.part(index);
            target.put(at, &page[within..within + len]);
            if let Err(page) = cache.publish(claim, page) {
                cache.give_pages([page]);
            }
        }
        Ok(())
    }

    /// A page that could not be asked for with others: it is there, somebody else is reading it, or
    /// it is in pieces.
    async fn read_later(&self, index: u64, target: &mut Target<'_, '_>) -> Result<(), Stopped> {
        let (at, _, len) = self.part(index);
        loop {
            if self.copy(index, target) {
                return Ok(());
            }
            match self.cache().look_up(self.ino(), index) {
                LookUp::Hit(_) => {}
                LookUp::Filling(_) => {
                    self.mount.counts.add(Count::Waits, 1);
                    self.wait_for_other(index).await;
                }
                LookUp::Absent => break,
            }
        }
        let start = index * PAGE;
        let stop = (start + PAGE).min(self.file.size());
        let Piece { place, .. } = self.finder.find(start, (stop - start) as usize);
        if matches!(place, Place::Device(_))
            && let Claiming::Claimed(claim) = self.cache().claim(self.ino(), index)
        {
            return self.fill(index, claim, target).await;
        }
        // A hole, or no room for it in the cache.
        self.mount.counts.add(Count::Private, 1);
        let from = self.offset + at as u64;
        self.read_past(at, from..from + len as u64, target).await
    }

    /// Puts page `index` together from its pieces.
    async fn fill(
        &self,
        index: u64,
        claim: Claim,
        target: &mut Target<'_, '_>,
    ) -> Result<(), Stopped> {
        let (at, within, len) = self.part(index);
        let cache = self.cache();
        let mut held = Held { cache, claims: vec![claim] };
        let mut pages = Vec::new();
        cache.take_pages(1, &mut pages);
        let from = index * PAGE;
        let stop = (from + PAGE).min(self.file.size());
        let mut content = [0; PAGE_BYTES];
        let mut bufs = [IoSliceMut::new(&mut content)];
        let read = self.read_past(0, from..stop, &mut Target::new(&mut bufs)).await;
        let page = pages.pop();
        if let Some(mut page) = page {
            page.set_len(PAGE_BYTES);
            page.copy_from_slice(&content);
            let claim = if read.is_ok() { held.claims.pop() } else { None };
            let unused = match claim {
                Some(claim) => cache.publish(claim, page).err(),
                None => Some(page),
            };
            self.mount.counts.add(Count::Misses, u64::from(read.is_ok()));
            cache.give_pages(unused);
        }
        // Whatever is left was read by nobody, and has no page.
        held.claims.drain(..).for_each(|claim| cache.abandon(claim));
        if read.is_ok() {
            target.put(at, &content[within..within + len]);
        }
        read.map_err(|(_, error)| (at, error))
    }

    /// Waits until whoever reads page `index` is done with it.
    async fn wait_for_other(&self, index: u64) {
        let (cache, mount, ino) = (self.cache(), self.mount, self.ino());
        poll_fn(|cx| {
            let LookUp::Filling(filling) = cache.look_up(ino, index) else {
                return Poll::Ready(());
            };
            // A context that no thread holds may be reading it ahead: then no thread would wake
            // this task.
            mount.contexts.each_left(|io| io.reap_ahead(cache, &mount.counts));
            if mount.counts.is_ahead() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if cache.register(filling, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Reads bytes `range` of the file past the cache to `at` of `target`, and on.
    async fn read_past(
        &self,
        mut at: usize,
        range: Range<u64>,
        target: &mut Target<'_, '_>,
    ) -> Result<(), Stopped> {
        let channel = &self.file.channel;
        let block_bytes = channel.info().block_bytes as usize;
        let mut flying: VecDeque<(Sent<'_, S>, usize, usize, usize)> = VecDeque::new();
        for Piece { place, len } in self.finder.pieces(range) {
            let begin = at;
            at += len;
            let mut place = match place {
                Place::Zero => {
                    target.zero(begin, len);
                    continue;
                }
                Place::Memory(bytes, from) => {
                    target.put(begin, &bytes[from..from + len]);
                    continue;
                }
                Place::Device(place) => place,
            };
            let mut to = begin;
            while to < at {
                if flying.len() == WINDOW
                    && let Some(oldest) = flying.pop_front()
                {
                    land_past(oldest, target).await?;
                }
                let lead = (place % block_bytes as u64) as usize;
                let bytes = (CHUNK_BYTES - lead).min(at - to);
                let before = flying.front().map_or(to, |(_, at, ..)| *at);
                let buf = channel
                    .alloc((lead + bytes).next_multiple_of(block_bytes))
                    .map_err(|error| (before, Error::Resources(error.to_string())))?;
                let mut request = Request::read(place / block_bytes as u64, buf);
                request.policy = self.policy();
                self.mount.counts.add(Count::Requests, 1);
                self.mount.counts.add(Count::RequestedBytes, bytes as u64);
                flying.push_back((Sent::send(channel, request).await, to, lead, bytes));
                (place, to) = (place + bytes as u64, to + bytes);
            }
        }
        while let Some(oldest) = flying.pop_front() {
            land_past(oldest, target).await?;
        }
        Ok(())
    }
}

async fn land_past<S: Sharing>(
    (sent, at, lead, bytes): (Sent<'_, S>, usize, usize, usize),
    target: &mut Target<'_, '_>,
) -> Result<(), Stopped> {
    let (buf, result) = sent.outcome().await;
    result.map_err(|error| (at, error))?;
    if let Some(buf) = buf {
        target.put(at, &buf[lead..lead + bytes]);
    }
    Ok(())
}

/// Lists for pages of reads of many: none yet.
fn no_lists() -> Arc<Mutex<Vec<DmaPages>>> {
    Arc::new(Mutex::new(Rank::PageLists, Vec::new()))
}

impl<S: Sharing> AsyncFile<S> {
    /// A buffer of `pages`, which it takes, for `bytes` bytes.
    fn buffer(&self, pages: &mut Vec<DmaBuf>, bytes: usize) -> Option<DmaBuf> {
        if pages.len() == 1 {
            let mut page = pages.pop()?;
            page.set_len(bytes);
            return Some(page);
        }
        let list = self.lists.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let heap = self.file.device().heap();
        let mut list = list.or_else(|| DmaPages::with_capacity(heap, CHUNK_PAGES).ok())?;
        for page in pages.drain(..) {
            list.push(page).ok()?;
        }
        list.set_range(0, bytes);
        Some(list.into_buf())
    }
}
