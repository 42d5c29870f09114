//! Programs that know nothing of it.

use meantime_mount::Options;
use meantime_testkit::e2fs;

use crate::served::Served;

#[test]
fn trees_are_copied_packed_and_unpacked() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    let from = "/usr/include/linux";
    if !std::path::Path::new(from).exists() {
        return println!("skipped: no {from}");
    }
    served.sh(&format!("cp -a {from} copy; diff -r {from} copy"));
    served.sh(
        "ln -s copy link; mkdir more; ln copy/fuse.h more/hard; tar cf tree.tar copy link more",
    );
    served.sh("mkdir out; tar xf tree.tar -C out; diff -r copy out/copy; test out/more/hard -ef out/copy/fuse.h");
    served.sh("find out -type f | wc -l; du -s out; ls -lR out > /dev/null; rm -r out copy");
    served.end();
}

#[test]
fn repositories_are_made_and_checked() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    if !e2fs::has("git") {
        return;
    }
    let env = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a";
    served.sh(&format!(
        "{env}; git init -q r; cd r; for n in 1 2 3 4 5; do seq $n 2000 > f$n; git add f$n; git commit -qm $n; done; \
         git gc -q; git fsck --strict; cd ..; git clone -q r s; cd s; git status --porcelain; diff ../r/f5 f5"
    ));
    served.end();
}

#[test]
fn databases_are_whole() {
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    if !e2fs::has("sqlite3") {
        return;
    }
    for journal in ["delete", "wal", "truncate"] {
        let made = served.sh(&format!(
            "sqlite3 {journal}.db 'pragma journal_mode={journal}; create table t(a integer primary key, b);' > /dev/null
             for n in 1 2 3; do
               (for i in $(seq 30); do sqlite3 -cmd '.timeout 60000' {journal}.db \"insert into t(b) values(randomblob(3000));\"; done) &
             done; wait
             sqlite3 {journal}.db 'pragma integrity_check; select count(*) from t;'"
        ));
        assert_eq!(made, "ok\n90", "{journal}");
    }
    served.end();
}

#[test]
fn fio_finds_what_it_wrote() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    if !e2fs::has("fio") {
        return;
    }
    for engine in ["psync", "libaio --iodepth=8 --direct=1", "mmap", "psync --direct=1 --numjobs=3"]
    {
        let size = "--size=8M --bs=4k --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1";
        served.sh(&format!(
            "fio --name=f --output=/dev/null --fallocate=none --ioengine={engine} {size} --fsync=64"
        ));
    }
    served.end();
}

#[test]
fn locks_are_the_kernels() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("flock") {
        return;
    }
    let text = served.sh(
        "flock lock sh -c 'touch held; until test -e tried; do sleep 0.05; done; echo first' &
         until test -e held; do sleep 0.05; done
         ! flock -n lock true; touch tried; flock lock echo second; wait",
    );
    assert_eq!(text, "first\nsecond");
    served.end();
}
