//! What cannot be is said, and errors of the device reach fio.

use std::path::Path;

use crate::{fio, run, scratch};

#[test]
fn what_cannot_be_is_said() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    std::fs::write(&image, [0; 65_536]).unwrap();
    let read_only = format!("--rw=write\n--device=file:{}?ro=1", image.display());
    for (options, said) in [
        ("--rw=read", "say device=URI"),
        ("--rw=read\n--filename=mem:1M", "one device, and here are 2 files"),
        ("--rw=read\n--device=floppy:1", "unknown scheme \"floppy\""),
        ("--rw=read\n--device=file:/nonexistent/disk.img", "No such file"),
        ("--rw=read\n--device=vfio:9999:99:1f.7", "9999:99:1f.7"),
        ("--rw=read\n--device=vfio-user:/nonexistent", "/nonexistent"),
        ("--rw=read\n--device=mem:1M\n--bs=1000", "have 512 bytes"),
        ("--rw=trim\n--device=mem:1M?lba=4096\n--bs=512", "have 4096 bytes"),
        ("--rw=read\n--device=mem:1M\n--completion=magic", "no completion policy"),
        ("--rw=read\n--device=mem:1M\n--io_submit_mode=offload", "offload"),
        (&read_only, "cannot be written: ro=1"),
    ] {
        fio(options).refused(said);
        if options.contains("device") && !said.contains("offload") {
            // In the job's own thread.
            fio(&format!("{options}\n--create_serialize=0")).refused(said);
        }
    }
    // fio's processes would not share the device.
    run(Path::new("fio"), "--rw=read\n--device=mem:1M").refused("say thread=1");
    let own = "--rw=read\n--device=mem:1M\n--create_serialize=0";
    run(Path::new("fio"), own).refused("say thread=1");
}

/// A device in memory with one rule of faults.
fn faulty(rule: &str, options: &str) -> crate::Ran {
    let dir = scratch();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, format!("[[fault]]\n{rule}")).unwrap();
    fio(&format!("--device=mem:16M?vwc=1&faults={}\n{options}", plan.display()))
}

const BAD_BLOCKS: &str = "fault = \"status\"
    status = \"unrecovered-read-error\"
    dnr = true
    opcode = \"read\"
    lba = \"128-159\"";

#[test]
fn an_error_of_the_device_is_an_error_of_the_job() {
    for depth in [1, 8] {
        let ran = faulty(BAD_BLOCKS, &format!("--rw=read\n--bs=4k\n--iodepth={depth}"));
        ran.refused("read at LBA 128: the device answered: Unrecovered Read Error");
        ran.refused("Input/output error: read offset=65536");
        assert_eq!(ran.json["jobs"][0]["error"], 5, "{}", ran.said);
    }
    let on = "--rw=read\n--bs=4k\n--iodepth=4\n--continue_on_error=read";
    let ran = faulty(BAD_BLOCKS, on);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    let job = &ran.json["jobs"][0];
    assert_eq!((&job["total_err"], &job["first_error"]), (&4.into(), &5.into()));
    assert_eq!(job["read"]["total_ios"], 4096);
}

/// fio 3.33 does not look at the error of a flush.
#[test]
fn a_failed_flush_fails_the_job() {
    let rule = "fault = \"status\"\nstatus = \"write-fault\"\ndnr = true\nopcode = \"flush\"";
    for flush in ["--fsync=32", "--fdatasync=32\n--iodepth=8", "--end_fsync=1"] {
        let ran = faulty(rule, &format!("--rw=write\n--bs=4k\n{flush}"));
        ran.refused("flush: the device answered: Write Fault");
        assert_eq!(ran.json["jobs"][0]["error"], 5, "{}", ran.said);
    }
}

#[test]
fn a_device_that_vanishes_ends_the_job() {
    let rule = "fault = \"surprise-removal\"\nafter = \"300ms\"";
    for options in ["--iodepth=1", "--iodepth=8", "--iodepth=8\n--continue_on_error=all"] {
        let work = "--rw=randrw\n--bs=4k\n--time_based\n--runtime=3";
        let ran = faulty(rule, &format!("{work}\n{options}"));
        ran.refused("the device is gone");
        ran.refused("No such device");
    }
}
