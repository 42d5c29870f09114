//! I/O of each kind, by each way to wait.

use crate::{engine_option, fio, scratch};

/// Data that fio wrote comes back, in whichever sizes and depths.
#[test]
fn what_was_written_is_read_back() {
    for options in [
        "--bs=4k\n--iodepth=1\n--completion=poll",
        "--bs=4k\n--iodepth=8",
        // fio lays out these without regard to pages.
        "--bs=512\n--iodepth=4\n--completion=interrupt",
        "--bsrange=512-17k\n--iodepth=4\n--completion=hybrid=2us",
        "--bs=64k\n--iodepth=16\n--iodepth_batch=8\n--completion=adaptive",
        "--bs=4k\n--iodepth=4\n--iomem_align=512",
        // More than a channel takes.
        "--bs=4k\n--iodepth=1500",
        "--bs=4k\n--iodepth=4\n--verify_async=1",
    ] {
        let verify = "--rw=randwrite\n--verify=crc32c\n--size=2M\n--device=mem:16M";
        let ran = fio(&format!("{verify}\n{options}"));
        let job = ran.job(0);
        assert_eq!(job["write"]["io_bytes"], 2 << 20, "{options}");
        assert_eq!(job["read"]["io_bytes"], 2 << 20, "{options}");
    }
}

/// Writes, flushes and trims arrive at the device.
#[test]
fn the_medium_has_what_was_written() {
    let dir = scratch();
    let path = dir.path().join("disk.img");
    let device = format!("--device=file:{}?create=1M", path.display());
    let write = "--rw=write\n--bs=4k\n--fsync=16\n--end_fsync=1\n--buffer_pattern=0xab";
    let ran = fio(&format!("{device}\n{write}"));
    let job = ran.job(0);
    assert_eq!(job["write"]["total_ios"], 256);
    assert!(job["sync"]["total_ios"].as_u64() >= Some(15), "{}", job["sync"]);
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0xab));

    let ran = fio(&format!("{device}\n--rw=trim\n--bs=64k\n--offset=512k"));
    assert_eq!(ran.job(0)["trim"]["total_ios"], 8);
    let now = std::fs::read(&path).unwrap();
    assert!(now[..512 << 10].iter().all(|byte| *byte == 0xab));
    assert!(now[512 << 10..].iter().all(|byte| *byte == 0));
}

/// Jobs on one URI have one device, also if one begins when the other has ended.
#[test]
fn jobs_share_a_device() {
    let pattern = "--device=mem:4M\n--bs=4k\n--verify=pattern\n--verify_pattern=0x5c";
    let reader = format!("--name=reader\n{}\n--thread=1\n{pattern}", engine_option());
    let ran = fio(&format!(
        "{pattern}\n--rw=write\n--do_verify=0\n{reader}\n--rw=read\n--numjobs=2\n--stonewall\n\
         --group_reporting"
    ));
    assert_eq!(ran.job(0)["write"]["io_bytes"], 4 << 20);
    assert_eq!(ran.job(1)["read"]["io_bytes"], 8 << 20);
}

/// fio's ranges, rates, mixes and times are as with any engine.
#[test]
fn fios_own_options_work() {
    let ran = fio("--device=mem:16M
        --rw=randrw
        --rwmixread=75
        --bs=4k
        --offset=4M
        --size=4M
        --io_size=8M
        --numjobs=2
        --iodepth=4
        --group_reporting");
    let (reads, writes) = (&ran.job(0)["read"], &ran.job(0)["write"]);
    let (read, written) =
        (reads["io_bytes"].as_u64().unwrap(), writes["io_bytes"].as_u64().unwrap());
    assert_eq!(read + written, 16 << 20);
    assert!(read > 2 * written, "{read} {written}");
    assert!(reads["slat_ns"]["mean"].as_f64() > Some(0.0), "{reads}");

    let ran = fio("--device=mem:16M
        --rw=randread
        --bs=4k
        --rate_iops=500
        --time_based
        --runtime=1");
    let ios = ran.job(0)["read"]["total_ios"].as_u64().unwrap();
    assert!((200..=600).contains(&ios), "{ios}");
}

/// `filename=` is as good as `device=`, with fio's escapes; a size beyond the device is cut.
#[test]
fn a_device_may_be_a_filename() {
    let ran = fio("--filename=mem\\:4M?model=null\n--rw=read\n--bs=64k\n--size=64M");
    assert_eq!(ran.job(0)["read"]["io_bytes"], 4 << 20);
}

/// An I/O by `poll` needs no system call, if the SSD's thread runs.
#[test]
fn polled_io_has_no_system_calls() {
    let calls = |ios: u32| {
        let dir = scratch();
        let trace = dir.path().join("trace");
        let mut traced = std::process::Command::new("strace");
        let options = format!(
            "--thread=1\n--device=mem:16M\n--completion=poll\n--rw=randread\n--bs=4k\n\
             --norandommap\n--number_ios={ios}\n--io_size=1G"
        );
        let fio = crate::command("fio".as_ref(), &options);
        traced.arg("-ff").arg("-o").arg(&trace).arg(fio.get_program()).args(fio.get_args());
        let output = crate::output(&mut traced);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        // Of the thread that does the I/O: the one that prints nothing and asks for its usage.
        let threads = std::fs::read_dir(dir.path()).unwrap();
        let texts = threads.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let of_job: Vec<_> = texts.filter(|text| text.contains("RUSAGE_THREAD")).collect();
        assert_eq!(of_job.len(), 1);
        // A waiter naps, or gives up its CPU, while others keep the SSD's thread off its own.
        let waits = ["sched_yield(", "nanosleep(", "clock_nanosleep(", "futex("];
        let is_wait = |line: &&str| waits.iter().any(|wait| line.starts_with(wait));
        of_job[0].lines().filter(|line| !is_wait(line)).count()
    };
    let (few, many) = (calls(1_000), calls(21_000));
    assert!(many < few + 500, "{few} system calls for 1,000 I/Os, {many} for 21,000");
}
