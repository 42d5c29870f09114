//! Which callers learn of a failed write.

use meantime_ext4::{File, FileSystem, NewNode, OpenOptions};
use meantime_nvme_spec::opcode::IoOpcode;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultPlan, FaultRule, OpcodeSet, SteppedSsd, When};

use crate::device::{Base, Config, make, mounted};
use crate::model::{beginning_id, content};
use crate::place::Place;
use crate::recovery::silent;

fn open(fs: &FileSystem) -> File {
    let node = fs.resolve(&fs.root().unwrap(), "/a", false).unwrap();
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    fs.open_node_with(&node, &options).unwrap()
}

/// Makes the next write fail without a retry.
fn fail_next_write(ssd: &SteppedSsd) {
    let status = Status::from_code(StatusCode::WriteFault).with_dnr();
    let when = When { opcodes: Some(OpcodeSet::io(&[IoOpcode::Write])), ..When::ONCE };
    ssd.set_faults(FaultPlan::only(FaultRule::new(Fault::Status(status), when)));
}

fn begin(config: &Config) -> Option<(Place, Base)> {
    let base = make(config, &[""])?;
    let mut place = Place::new();
    place.load(&base);
    Some((place, base))
}

#[test]
fn each_open_file_once() {
    for volatile in [false, true] {
        let config = Config { volatile, ..Config::PLAIN };
        let Some((place, _)) = begin(&config) else { return };
        let (ssd, fs) = mounted(place.medium(), &config, &config.mount_options()).unwrap();
        let (first, second) = (open(&fs), open(&fs));
        first.write_at(&[7; 4096], 0).unwrap();
        fail_next_write(&ssd);
        assert!(first.sync_all().is_err(), "what it is told of first");
        let third = open(&fs);
        // The write is repeated, and succeeds.
        first.sync_all().unwrap();
        assert!(second.sync_data().is_err(), "it has not been told yet");
        second.sync_data().unwrap();
        third.sync_all().unwrap();
        drop((first, second, third));
        fs.unmount().unwrap();
        drop(ssd);
        silent(place.image(), "an unmount").unwrap();
        let (_ssd, fs) = mounted(place.medium(), &config, &config.recovery_options(false)).unwrap();
        let mut found = [0; 4096];
        assert_eq!(open_to_read(&fs).read_at(&mut found, 0).unwrap(), 4096);
        assert!(found.iter().all(|byte| *byte == 7), "it was written in the end");
    }
}

fn open_to_read(fs: &FileSystem) -> File {
    fs.open_node(&fs.resolve(&fs.root().unwrap(), "/a", false).unwrap()).unwrap()
}

/// A failed commit is reported to all its waiters, and nothing can change any more. What was synced
/// before is still there.
#[test]
fn everybody_after_a_failed_commit() {
    let config = Config::PLAIN;
    let Some((place, _)) = begin(&config) else { return };
    let (ssd, fs) = mounted(place.medium(), &config, &config.mount_options()).unwrap();
    let root = fs.root().unwrap();
    let new = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };
    fs.create(&root, "kept".as_ref(), &new).unwrap();
    fs.sync().unwrap();
    fs.create(&root, "lost".as_ref(), &new).unwrap();
    fail_next_write(&ssd);
    assert!(fs.sync_node(&root).is_err());
    assert!(fs.sync_node(&root).is_err(), "it is not there the second time, either");
    assert!(fs.create(&root, "later".as_ref(), &new).is_err(), "nothing is changed after that");
    drop(root);
    assert!(fs.unmount().is_err());
    drop(ssd);
    let (_ssd, fs) = mounted(place.medium(), &config, &config.recovery_options(false)).unwrap();
    let root = fs.root().unwrap();
    assert!(
        fs.lookup(&root, "kept".as_ref()).is_ok() && fs.lookup(&root, "lost".as_ref()).is_err()
    );
    let mut found = [0; 6000];
    assert_eq!(open_to_read(&fs).read_at(&mut found, 0).unwrap(), 6000);
    assert_eq!(found[..], content(beginning_id("a"), 0, 6000));
}
