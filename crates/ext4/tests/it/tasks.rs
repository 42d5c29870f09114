//! Files read by futures, also during writes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use meantime_block::{self as block, AsyncChannel, BlockDevice as _, ChannelOptions, OpenOptions};
use meantime_ext4::{
    Advice, Allocate, AsyncFile, AsyncFileSystem, MountOptions, OpenOptions as FileOptions,
    ReadOptions,
};
use meantime_testkit::Rng;
use meantime_testkit::filled::Image;
use meantime_testkit::image::writable;

use crate::read::{PAGE, byte, check, check_bytes, content, one_file};

async fn check_async<S: block::Sharing>(
    file: &AsyncFile<S>,
    seed: u64,
    offset: u64,
    len: usize,
    direct: bool,
) {
    let mut buf = vec![0xEE; len];
    let options = ReadOptions { direct, ..ReadOptions::default() };
    let read = file.read_at_with(&mut buf, offset, &options).await.unwrap();
    check_bytes(&buf, read, file.size(), seed, offset);
}

#[test]
fn tasks_of_one_thread_share_the_pages() {
    const PAGES: u64 = 300;
    for block_bytes in ["1024", "4096"] {
        let Some(image) = Image::make(&["-b", block_bytes], 16, one_file(PAGES * PAGE - 700))
        else {
            return;
        };
        let uri = format!("file:{}?model=null", image.path("image").display());
        let device = block::open(&uri, &OpenOptions::default()).unwrap();
        let fs = AsyncFileSystem::mount(device, &MountOptions::default()).unwrap();
        let reader = |task: u64| {
            let fs = &fs;
            Box::pin(async move {
                let file = fs.open("data").await.unwrap();
                let mut random = Rng::new(task / 2 + 1);
                for n in 0..150 {
                    let (offset, most) = (random.below(PAGES * PAGE), 1 + random.below(60_000));
                    check_async(&file, 1, offset, random.below(most) as usize, n % 8 == 7).await;
                }
            })
        };
        pollster::block_on(async {
            let [first, second] = [0, 2].map(|task| Box::pin(join(reader(task), reader(task + 1))));
            join(first, second).await;
            let file = fs.open("/data").await.unwrap();
            check_async(&file, 1, 0, (PAGES * PAGE) as usize, false).await;
        });
        let counters = fs.file_system().counters();
        assert!(counters.misses <= PAGES, "{counters:?}");
        let fetched = counters.misses + counters.ahead;
        assert!(fetched > PAGES * 9 / 10 || counters.private > 0, "{counters:?}");
    }
}

/// Threads and tasks share a cache; some futures are dropped half way.
#[test]
fn futures_and_threads_and_dropped_futures() {
    const PAGES: u64 = 400;
    let Some(image) = Image::make(&[], 16, one_file(PAGES * PAGE)) else { return };
    let fs = image.mount("", &MountOptions { cache_bytes: 1 << 20, ..MountOptions::default() });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs.open("data").unwrap();
            let mut random = Rng::new(8);
            for _ in 0..300 {
                check(
                    &file,
                    1,
                    random.below(PAGES * PAGE),
                    random.below(50_000) as usize,
                    &ReadOptions::default(),
                );
            }
        });
        let channel =
            AsyncChannel::shared(fs.device().channel(&ChannelOptions::default()).unwrap());
        let tasks = AsyncFileSystem::new(fs.clone(), channel).unwrap();
        for thread in 0..2 {
            let tasks = tasks.clone();
            scope.spawn(move || {
                pollster::block_on(async {
                    let file = tasks.open("data").await.unwrap();
                    let mut random = Rng::new(20 + thread);
                    for n in 0..300 {
                        let (offset, len) =
                            (random.below(PAGES * PAGE), random.below(50_000) as usize);
                        if n % 5 == 0 {
                            // Polled once, then dropped.
                            let mut buf = vec![0; len];
                            let mut read = std::pin::pin!(file.read_at(&mut buf, offset));
                            std::future::poll_fn(|cx| {
                                let _ = read.as_mut().poll(cx);
                                std::task::Poll::Ready(())
                            })
                            .await;
                            continue;
                        }
                        check_async(&file, 1, offset, len, n % 7 == 0).await;
                    }
                });
            });
        }
    });
    check(&fs.open("data").unwrap(), 1, 0, (PAGES * PAGE) as usize, &ReadOptions::default());
}

fn read_write() -> FileOptions {
    FileOptions { read: true, write: true, ..FileOptions::default() }
}

fn created() -> FileOptions {
    FileOptions { create: true, ..read_write() }
}

/// A mount for writing and for tasks, on a device so slow that no read ends while it is sent.
fn slow(image: &Image, cache_bytes: usize) -> AsyncFileSystem {
    let model = image.path("slow.toml");
    std::fs::write(
        &model,
        "name = \"slow\"\nsource = \"made up\"\nchannels = 8\nflush_ns = 1000\ntrim_ns = 1000\n\
         read = [[4096, 3000000]]\nwrite = [[4096, 10000]]\n",
    )
    .unwrap();
    let uri = format!("file:{}?model={}", image.path("image").display(), model.display());
    let device = block::open(&uri, &OpenOptions::default()).unwrap();
    let options = MountOptions { background: false, cache_bytes, ..writable() };
    AsyncFileSystem::mount(device, &options).unwrap()
}

/// Polls `read` once, so that its requests are in flight.
async fn poll_once<T>(mut read: Pin<&mut impl Future<Output = T>>) -> bool {
    poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await
}

/// A task reads a file that loses blocks meanwhile, which another file gets and writes: the task
/// sees none of the new data.
#[test]
fn blocks_that_another_file_got_are_not_read() {
    const PAGES: u64 = 64;
    let Some(image) = Image::make(&[], 16, one_file(PAGES * PAGE)) else { return };
    let fs = slow(&image, 4 << 20);
    let mut seen_cut = 0;
    for turn in 0..60u64 {
        let direct = turn % 3 == 0;
        pollster::block_on(async {
            let sync = fs.file_system();
            // The other file takes almost all free blocks.
            let name = format!("other{turn}");
            let file = fs.with_file(sync.open_with("data", &read_write()).unwrap());
            file.file().sync_all().unwrap();
            file.file().advise(0, 0, Advice::DontNeed).unwrap();
            let size = file.size();
            let mut buf = vec![0xEE; size as usize];
            let options = ReadOptions { direct, ..ReadOptions::default() };
            let mut read = Box::pin(file.read_at_with(&mut buf, 0, &options));
            assert!(!poll_once(read.as_mut()).await);
            file.file().set_len(turn % 5 * PAGE + 100).unwrap();
            sync.sync().unwrap();
            // The next free block is a truncated one, or will be soon.
            let other = sync.open_with(&name, &created()).unwrap();
            other.write_at(&content(2, 2 * PAGES * PAGE), 0).unwrap();
            other.sync_all().unwrap();
            let bytes = read.await.unwrap();
            seen_cut += u64::from(bytes < size as usize);
            for (at, got) in buf[..bytes].iter().enumerate() {
                assert!(
                    *got == byte(1, at as u64) || *got == 0,
                    "turn {turn}: byte {at} of {bytes} is another file's"
                );
            }
            drop(other);
            sync.remove_file(&name).unwrap();
            file.file().set_len(0).unwrap();
            file.file().write_at(&content(1, PAGES * PAGE), 0).unwrap();
        });
    }
    assert!(seen_cut > 0, "no read came upon a file that was cut off");
}

/// A page that a task of this thread has requested can be written at once.
#[test]
fn a_write_to_a_page_that_a_task_reads_does_not_wait_for_it() {
    let Some(image) = Image::make(&[], 16, one_file(8 * PAGE)) else { return };
    let fs = slow(&image, 4 << 20);
    pollster::block_on(async {
        let file = fs.with_file(fs.file_system().open_with("data", &read_write()).unwrap());
        let mut buf = vec![0; 8 * PAGE as usize];
        let mut read = Box::pin(file.read_at(&mut buf, 0));
        assert!(!poll_once(read.as_mut()).await);
        file.file().write_at(b"meanwhile", 3 * PAGE + 5).unwrap();
        assert_eq!(read.await.unwrap() as u64, 8 * PAGE);
        let mut again = vec![0; 8 * PAGE as usize];
        assert_eq!(file.read_at(&mut again, 0).await.unwrap() as u64, 8 * PAGE);
        let mut wanted = content(1, 8 * PAGE);
        wanted[3 * 4096 + 5..][..9].copy_from_slice(b"meanwhile");
        assert!(again == wanted);
        file.file().sync_all().unwrap();
        file.file().advise(0, 0, Advice::DontNeed).unwrap();
        assert_eq!(file.read_at(&mut again, 0).await.unwrap() as u64, 8 * PAGE);
        assert!(again == wanted);
    });
}

/// Tasks read while another task writes, truncates and syncs, in a small cache: each block has one
/// of its former contents.
#[test]
fn tasks_read_what_another_one_writes() {
    const PAGES: u64 = 200;
    const SECTOR: usize = 512;
    for block_bytes in ["1024", "4096"] {
        let Some(image) = Image::make(&["-b", block_bytes], 16, one_file(PAGES * PAGE)) else {
            return;
        };
        let fs = slow(&image, 1 << 20);
        let ready = std::cell::Cell::new(false);
        let readers = async {
            let mut random = Rng::new(3);
            while !ready.get() {
                let file = fs.open("data").await.unwrap();
                let (one, two) = (random.next(), random.next());
                join(Box::pin(read_some(&file, one)), Box::pin(read_some(&file, two))).await;
            }
        };
        let writer = async {
            let sync = fs.file_system();
            let file = sync.open_with("data", &read_write()).unwrap();
            let mut random = Rng::new(4);
            for turn in 0..400u64 {
                let at = random.below(PAGES * PAGE) / SECTOR as u64 * SECTOR as u64;
                let len = (random.below(30_000) / SECTOR as u64 + 1) * SECTOR as u64;
                let len = len.min(PAGES * PAGE - at) as usize;
                match random.below(8) {
                    0 => file.set_len(at).unwrap(),
                    1 => file.sync_all().unwrap(),
                    2 => {
                        file.allocate(at, len as u64, Allocate::Punch).unwrap();
                    }
                    _ => {
                        let seed = 1 + turn % 3;
                        let data: Vec<u8> = (0..len as u64).map(|n| byte(seed, at + n)).collect();
                        file.write_at(&data, at).unwrap();
                    }
                }
                yield_now().await;
            }
            ready.set(true);
        };
        pollster::block_on(join(Box::pin(readers), Box::pin(writer)));
        let counters = fs.file_system().counters();
        assert!(counters.misses > 100 && counters.hits > 100, "{counters:?}");
    }
}

/// Reads somewhere, and checks that each sector is of one of the written files.
async fn read_some(file: &AsyncFile, seed: u64) {
    let mut random = Rng::new(seed);
    let offset = random.below(file.size() + 1) / 512 * 512;
    let mut buf = vec![0xEE; random.below(100_000) as usize];
    let options = ReadOptions { direct: random.below(4) == 0, ..ReadOptions::default() };
    let bytes = file.read_at_with(&mut buf, offset, &options).await.unwrap();
    for (number, sector) in buf[..bytes].chunks(512).enumerate() {
        let place = offset + number as u64 * 512;
        let is = |seed| sector.iter().zip(place..).all(|(got, at)| *got == byte(seed, at));
        // A concurrent reader could see part of a write, but no write runs in this thread
        // meanwhile.
        assert!(
            is(1) || is(2) || is(3) || sector.iter().all(|byte| *byte == 0),
            "sector at {place} of a read of {bytes} at {offset}"
        );
    }
}

async fn yield_now() {
    let mut is_first = true;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// Polls both futures in turn until both have ended.
async fn join(
    mut one: Pin<Box<impl Future<Output = ()>>>,
    mut two: Pin<Box<impl Future<Output = ()>>>,
) {
    let (mut one_ended, mut two_ended) = (false, false);
    poll_fn(|cx| {
        one_ended = one_ended || one.as_mut().poll(cx).is_ready();
        two_ended = two_ended || two.as_mut().poll(cx).is_ready();
        if one_ended && two_ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Reads in order are read ahead, and return the right bytes.
#[test]
fn tasks_read_ahead() {
    const PAGES: u64 = 256;
    for write in [false, true] {
        let Some(image) = Image::make(&[], 16, one_file(PAGES * PAGE)) else { return };
        let uri = format!("file:{}?model=optane", image.path("image").display());
        let device = block::open(&uri, &OpenOptions::default()).unwrap();
        let options = MountOptions { write, ..MountOptions::default() };
        let fs = AsyncFileSystem::mount(device, &options).unwrap();
        pollster::block_on(async {
            let file = fs.open("data").await.unwrap();
            for page in 0..PAGES {
                check_async(&file, 1, page * PAGE, PAGE as usize, false).await;
            }
        });
        let counters = fs.file_system().counters();
        assert!(counters.ahead > PAGES * 9 / 10, "{counters:?}");
        assert_eq!(counters.misses + counters.ahead, PAGES, "{counters:?}");
    }
}
