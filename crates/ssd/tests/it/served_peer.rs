//! The SSD served to a client from another project: the crate `vfio_user` of Cloud Hypervisor.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Instant;

use meantime_ssd::served::{Server, Socket, SocketOptions};
use meantime_ssd::{Medium, MonotonicClock, Ssd, SsdConfig};
use meantime_testkit::by_hand::{ENTRIES, IOVA, Memory, PATIENCE, u16_at, u32_at, u64_at};
use std::sync::atomic::Ordering;

const TRIGGER_EVENTFD: u32 = 0x24;

#[test]
fn anothers_client_drives_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = SsdConfig::with_namespace(1 << 20, 512);
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
    let socket = Socket::bind(&dir.path().join("ssd.sock"), &SocketOptions::default()).unwrap();
    let server = Server::start(socket, ssd.function_port(), |_| {}).unwrap();

    let mut client = vfio_user::Client::new(server.path()).unwrap();
    // The crate has it the wrong way round.
    assert!(!client.resettable());
    client.reset().unwrap();
    let irqs = client.get_irq_info(2).unwrap();
    assert_eq!((irqs.count, irqs.flags & 1), (65, 1));
    let mut class = [0; 3];
    client.region_read(7, 9, &mut class).unwrap();
    assert_eq!(class, [0x02, 0x08, 0x01]);

    // BAR0's doorbells, mapped as Cloud Hypervisor does.
    let bar0 = client.region(0).unwrap();
    let area = &bar0.sparse_areas[0];
    assert_eq!((bar0.sparse_areas.len(), area.offset), (1, 0x1000));
    let file = bar0.file_offset.as_ref().unwrap();
    let fd = rustix::io::fcntl_dupfd_cloexec(file.file().as_fd(), 0).unwrap();
    let bells = Memory::of(fd, file.start() + area.offset, area.size as usize);

    let memory = Memory::new(1 << 16);
    client.dma_map(0, IOVA, 1 << 16, memory.file.as_raw_fd()).unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    client.set_irqs(2, TRIGGER_EVENTFD, 0, 1, &[event.as_raw_fd()]).unwrap();

    // Enabled by hand.
    let mut cap = [0; 8];
    client.region_read(0, 0, &mut cap).unwrap();
    let stride = 4usize << (u64_at(&cap, 0) >> 32 & 0xf);
    client.region_write(0, 0x24, &((ENTRIES - 1) << 16 | (ENTRIES - 1)).to_le_bytes()).unwrap();
    client.region_write(0, 0x28, &IOVA.to_le_bytes()).unwrap();
    client.region_write(0, 0x30, &(IOVA + 0x1000).to_le_bytes()).unwrap();
    client.region_write(0, 0x14, &0x0046_0001u32.to_le_bytes()).unwrap();
    let start = Instant::now();
    loop {
        let mut csts = [0; 4];
        client.region_read(0, 0x1c, &mut csts).unwrap();
        if u32_at(&csts, 0) == 1 {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
    }

    let mut queues = [(0usize, 0x1000usize, 0u32), (0x2000, 0x3000, 0)];
    let mut run = |qid: usize, sqe: [u8; 64]| {
        let (sq, cq, tail) = &mut queues[qid];
        let at = *cq + *tail as usize * 16;
        memory.put(*sq + *tail as usize * 64, &sqe);
        *tail += 1;
        bells.word(qid * 2 * stride).store(*tail, Ordering::Release);
        let start = Instant::now();
        while memory.word(at + 12).load(Ordering::Acquire) >> 16 & 1 == 0 {
            assert!(start.elapsed() < PATIENCE, "no completion");
        }
        assert_eq!(u16_at(&memory.get(at, 16), 14) >> 1, 0, "{:?}", memory.get(at, 16));
        bells.word((qid * 2 + 1) * stride).store(*tail, Ordering::Release);
    };
    let command = |opcode: u8, nsid: u32, prp1: u64, dw10: u64| {
        let mut sqe = [0; 64];
        sqe[0] = opcode;
        sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
        sqe[24..32].copy_from_slice(&prp1.to_le_bytes());
        sqe[40..48].copy_from_slice(&dw10.to_le_bytes());
        sqe
    };
    run(0, command(0x06, 0, IOVA + 0x4000, 1));
    assert!(memory.get(0x4000 + 24, 40).starts_with(b"Meantime software SSD"));
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    let size = u64::from(ENTRIES - 1) << 16 | 1;
    run(0, command(0x05, 0, IOVA + 0x3000, 1 << 32 | size));
    run(0, command(0x01, 0, IOVA + 0x2000, 0x0001_0001 << 32 | size));
    memory.put(0x4000, &[0x77; 512]);
    run(1, command(1, 1, IOVA + 0x4000, 5));
    run(1, command(2, 1, IOVA + 0x5000, 5));
    assert_eq!(memory.get(0x5000, 512), [0x77; 512]);

    client.dma_unmap(IOVA, 1 << 16).unwrap();
    client.set_irqs(2, 0x21, 0, 0, &[]).unwrap();
    client.shutdown().unwrap();
    drop(client);
    // And the next.
    vfio_user::Client::new(server.path()).unwrap();
}
