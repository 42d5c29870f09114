//! The proxy does to connections what it was told, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_testkit::Rng;
use meantime_testkit::proxy::{Cut, Direction, Proxy};

const PATIENCE: Duration = Duration::from_secs(60);

/// A target that serves each connection with `serve`, one after the other.
fn target(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    address
}

fn echo(mut stream: TcpStream) {
    let mut buf = [0; 8192];
    while let Ok(count @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..count]).is_err() {
            break;
        }
    }
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(3);
    (0..bytes).map(|_| rng.next() as u8).collect()
}

/// All that comes until the end, and whether that was a reset.
fn read_all(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let (mut all, mut buf) = (Vec::new(), [0; 8192]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (all, false),
            Ok(count) => all.extend_from_slice(&buf[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (all, true),
            Err(error) => panic!("{error}"),
        }
    }
}

fn sender(stream: &TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    })
}

#[test]
fn what_goes_in_comes_out_both_ways() {
    let proxy = Proxy::start(target(echo), 1).unwrap();
    let bytes = noise(3 << 20);
    for delay in [Duration::ZERO, Duration::from_millis(3)] {
        proxy.delay(delay);
        let mut stream = connect(&proxy);
        let sender = sender(&stream, bytes.clone());
        assert_eq!(read_all(&mut stream), (bytes.clone(), false));
        sender.join().unwrap();
    }
    assert_eq!(proxy.connections(), 2);
    let delivered = [Direction::Up, Direction::Down].map(|direction| proxy.delivered(direction));
    assert_eq!(delivered, [6 << 20; 2]);
}

/// More than proxy and sockets hold, to a target that reads nothing for a while.
#[test]
fn a_slow_target_slows_the_client() {
    let address = target(|mut stream| {
        std::thread::sleep(Duration::from_millis(200));
        let bytes = read_all(&mut stream).0.len() as u64;
        stream.write_all(&bytes.to_le_bytes()).unwrap();
    });
    let proxy = Proxy::start(address, 1).unwrap();
    let mut stream = connect(&proxy);
    let sender = sender(&stream, vec![7; 32 << 20]);
    assert_eq!(read_all(&mut stream).0, (32_u64 << 20).to_le_bytes());
    sender.join().unwrap();
}

#[test]
fn a_delay_is_kept() {
    let proxy = Proxy::start(target(echo), 1).unwrap();
    let mut stream = connect(&proxy);
    for delay in [Duration::from_micros(100), Duration::from_millis(5)] {
        proxy.delay(delay);
        proxy.lateness();
        for awake in [Duration::ZERO, Duration::from_millis(1)] {
            proxy.stay_awake(awake);
            for _ in 0..10 {
                let start = Instant::now();
                stream.write_all(&[1; 72]).unwrap();
                stream.read_exact(&mut [0; 72]).unwrap();
                assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
            }
        }
        let lateness = proxy.lateness();
        assert_eq!(lateness.chunks, 40);
        assert!(lateness.median <= lateness.p99 && lateness.p99 <= lateness.max, "{lateness:?}");
        assert_eq!(proxy.lateness().chunks, 0);
    }
}

/// Both PDUs of a read are cut at every boundary.
#[test]
fn a_cut_is_exact() {
    let address = target(|mut stream| {
        let mut request = [0; 72];
        let mut count = 0;
        while count < request.len() {
            match stream.read(&mut request[count..]) {
                Ok(more @ 1..) => count += more,
                _ => break,
            }
        }
        // It says how much of the request came.
        if count == request.len() {
            let _ = stream.write_all(&[9; 24]);
        }
        RECEIVED.lock().unwrap().push(count);
    });
    static RECEIVED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    let proxy = Proxy::start(address, 1).unwrap();
    for bytes in 0..=24 {
        proxy.cut(Cut { connection: None, ..Cut::first(Direction::Down, bytes) });
        let mut stream = connect(&proxy);
        let _ = stream.write_all(&[1; 72]);
        let (got, _) = read_all(&mut stream);
        assert_eq!(got.len() as u64, bytes);
    }
    RECEIVED.lock().unwrap().clear();
    for bytes in 1..=72 {
        proxy.cut(Cut { connection: None, ..Cut::first(Direction::Up, bytes) });
        let mut stream = connect(&proxy);
        let _ = stream.write_all(&[1; 72]);
        read_all(&mut stream);
    }
    let start = Instant::now();
    while RECEIVED.lock().unwrap().len() < 72 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(RECEIVED.lock().unwrap().iter().copied().eq(1..=72));
}

#[test]
fn a_reset_is_one() {
    let proxy = Proxy::start(target(echo), 1).unwrap();
    proxy.cut(Cut { connection: None, reset: true, ..Cut::first(Direction::Down, 10) });
    let mut stream = connect(&proxy);
    stream.write_all(&[1; 72]).unwrap();
    assert!(read_all(&mut stream).1);
    // Before anything.
    proxy.cut(Cut { connection: None, reset: true, ..Cut::first(Direction::Up, 0) });
    assert!(read_all(&mut connect(&proxy)).1);
}

#[test]
fn a_random_cut_has_a_seed() {
    let cuts = |seed| {
        let proxy = Proxy::start(target(echo), seed).unwrap();
        proxy.cut(Cut { connection: None, bytes: 100..=5000, ..Cut::first(Direction::Down, 0) });
        [(); 5].map(|()| {
            let mut stream = connect(&proxy);
            let _ = stream.write_all(&[1; 8192]);
            read_all(&mut stream).0.len()
        })
    };
    let first = cuts(1);
    assert!(first.iter().all(|bytes| (100..=5000).contains(bytes)), "{first:?}");
    assert_eq!(cuts(1), first);
    assert_ne!(cuts(2), first);
}

#[test]
fn only_that_connection_is_cut() {
    let proxy = Proxy::start(target(echo), 1).unwrap();
    proxy.cut(Cut { connection: Some(1), ..Cut::first(Direction::Down, 5) });
    for expected in [72, 5, 72] {
        let mut stream = connect(&proxy);
        let _ = stream.write_all(&[1; 72]);
        let _ = stream.shutdown(Shutdown::Write);
        assert_eq!(read_all(&mut stream).0.len(), expected);
    }
}

#[test]
fn a_stall_ends() {
    let proxy = Proxy::start(target(echo), 1).unwrap();
    let mut stream = connect(&proxy);
    stream.write_all(&[1; 8]).unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    let (start, time) = (Instant::now(), Duration::from_millis(60));
    proxy.stall(time);
    stream.write_all(&[2; 8]).unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    assert!(start.elapsed() >= time, "{:?}", start.elapsed());
    // Until told otherwise.
    proxy.stall(Duration::MAX);
    stream.write_all(&[3; 8]).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    proxy.resume();
    stream.read_exact(&mut [0; 8]).unwrap();
}

#[test]
fn all_at_once_and_none_at_all() {
    // Each connection has a thread: several are open.
    let address = target(|stream| drop(std::thread::spawn(|| echo(stream))));
    let proxy = Proxy::start(address, 1).unwrap();
    let mut streams = [(); 3].map(|()| connect(&proxy));
    for stream in &mut streams {
        stream.write_all(&[1; 8]).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
    }
    proxy.cut_now();
    for stream in &mut streams {
        assert!(read_all(stream).1);
    }
    proxy.refuse(true);
    assert!(read_all(&mut connect(&proxy)).0.is_empty());
    proxy.refuse(false);
    let mut stream = connect(&proxy);
    stream.write_all(&[1; 8]).unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    assert_eq!(proxy.connections(), 5);
    drop(proxy);
    read_all(&mut stream);
}
