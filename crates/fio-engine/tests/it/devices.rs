//! Devices that others serve, and the end of a device.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use meantime_ssd::tcp::{DEFAULT_NQN, Target, TargetOptions};
use meantime_ssd::{Medium, SsdConfig};
use meantime_testkit::served::Rig;

use crate::{command, engine_option, fio, scratch};

const VERIFIED: &str = "--rw=randwrite\n--bs=4k\n--iodepth=4\n--size=512k\n--verify=crc32c";

#[test]
fn a_device_may_be_another_process() {
    let rig = Rig::plain();
    let ran = fio(&format!("--device=vfio-user:{}\n{VERIFIED}", rig.path().display()));
    assert_eq!(ran.job(0)["read"]["io_bytes"], 512 << 10);
}

#[test]
fn a_device_may_be_a_target() {
    let config = SsdConfig::with_namespace(1 << 20, 512);
    let medium = Medium::dram(1 << 20).unwrap();
    let target = Target::start(config, medium, TargetOptions::default()).unwrap();
    let uri = format!("nvme+tcp://{}/{DEFAULT_NQN}", target.addr());
    let ran =
        fio(&format!("--device={uri}\n--numjobs=2\n--thread=1\n{VERIFIED}\n--rw=read\n--verify=0"));
    assert_eq!(ran.job(1)["read"]["io_bytes"], 512 << 10);
    let ran = fio(&format!("--device={uri}\n{VERIFIED}"));
    assert_eq!(ran.job(0)["read"]["io_bytes"], 512 << 10);
}

#[test]
fn a_device_may_be_the_kernels() {
    let dir = scratch();
    let path = dir.path().join("disk.img");
    let ran = fio(&format!("--device=kernel:{}?create=1M&direct=0\n{VERIFIED}", path.display()));
    assert_eq!(ran.job(0)["read"]["io_bytes"], 512 << 10);
}

/// Ctrl-C ends the job and gives the device back, also that of a job that has not begun.
#[test]
fn an_interrupted_run_gives_its_devices_back() {
    let dir = scratch();
    let [first, second] = ["first.img", "second.img"].map(|name| {
        let path = dir.path().join(name);
        format!("file:{}?create=1M", path.display())
    });
    let endless = "--rw=randread\n--bs=4k\n--time_based\n--runtime=60\n--thread=1";
    let engine = engine_option();
    let options = format!(
        "--device={first}\n{endless}\n--name=later\n{engine}\n--device={second}\n{endless}\n\
         --stonewall"
    );
    let mut command = command("fio".as_ref(), &options);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !dir.path().join("second.img").exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "the job does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = loop {
        if running.try_wait().unwrap().is_some() {
            break running.wait_with_output().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "the job does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("bug") && !said.contains("panicked"), "{said}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("terminating on signal 2"), "{said}");
    for device in [first, second] {
        fio(&format!("--device={device}\n--rw=write\n--bs=64k")).job(0);
    }
}
