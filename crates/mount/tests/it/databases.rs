//! Databases on the mount: the next process finds what they have written, too.

use meantime_mount::Options;
use meantime_testkit::e2fs;

use crate::programs::{is_library, source};
use crate::served::{Served, by_each_way};
use crate::way::Way;

by_each_way!(rocksdb_finds_what_it_wrote);

fn rocksdb_finds_what_it_wrote(way: Way) {
    if !e2fs::has("db_bench") {
        return;
    }
    let Some(served) = Served::by(way, "256M", &Options::default()) else { return };
    let before = served.data_calls();
    let db = "db_bench --db=db --num=3000 --value_size=400 --write_buffer_size=262144";
    served.sh(&format!("{db} --benchmarks=fillsync > /dev/null 2>&1"));
    let all = "(3000 of 3000 found)";
    let filled = served.sh(&format!("{db} --benchmarks=fillseq,readrandom 2>&1"));
    // Numbers are drawn with repetition. Each that was written is found.
    assert!(filled.contains(all), "{filled}");
    served.went_their_way("db_bench", before);
    for how in ["--mmap_read=1", "--use_direct_reads --use_direct_io_for_flush_and_compaction"] {
        let text = served.sh(&format!(
            "{db} --use_existing_db=1 {how} \
             --benchmarks=readrandom,compact,verifychecksum,readrandom 2>&1"
        ));
        assert_eq!(text.matches(all).count(), 2, "{how}: {text}");
    }
    served.end();
}

#[test]
fn leveldb_finds_what_it_wrote() {
    if !e2fs::has("python3") || !is_library("libleveldb.so.1d", "libleveldb1d") {
        return;
    }
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    let program = source("leveldb.py");
    assert_eq!(served.sh(&format!("python3 {program} put; python3 {program} look")), "4000");
    assert_eq!(served.sh(&format!("python3 {program} look")), "4000");
    served.end();
}

#[test]
fn lmdb_maps_what_it_wrote() {
    if !e2fs::has("mdb_load") {
        return;
    }
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    // Each key and each value is a line. Readers concurrent with the writer share its lock file's
    // mapping.
    let text = served.sh(
        "for n in $(seq 10000 11499); do printf 'key%d\\nvalue %0200d\\n' $n $n; done > text
         mkdir db
         mdb_load -T -f text db & load=$!
         while kill -0 $load 2> /dev/null; do mdb_stat -r db > /dev/null 2>&1 || true; done
         wait $load
         mdb_dump -p db | grep -c '^ value'
         mdb_dump -p db | sed -n 's/^ //p' | cmp - text
         mkdir copy; mdb_copy -c db copy; mdb_dump -p copy | sed -n 's/^ //p' | cmp - text",
    );
    assert_eq!(text, "1500");
    served.end();
}

#[test]
fn postgresql_recovers_from_its_own_end() {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let Some(bin) = versions.flatten().map(|version| version.path().join("bin")).max() else {
        return println!("skipped: there is no PostgreSQL here (package postgresql)");
    };
    let bin = bin.display();
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become the user postgres");
    }
    let options = Options { allow_other: true, ..Options::default() };
    let Some(served) = Served::new("512M", &options) else { return };
    let start = "pg_ctl -D pg -s -w -l log -o \"-k $PWD -h ''\" start";
    let script = format!(
        "export PATH={bin}:$PATH PGHOST=$PWD PGDATABASE=postgres
         initdb -D pg -A trust > /dev/null
         {start}
         pgbench -i -q -s 1 > /dev/null 2>&1
         pgbench -n -T 1 -c 4 -j 2 > /dev/null
         before=$(psql -Atc 'select count(*) from pgbench_history')
         pgbench -n -T 30 -c 4 > /dev/null 2>&1 &
         sleep 1
         kill -9 $(head -n 1 pg/postmaster.pid)
         wait
         # Its children need a moment to see that it has gone.
         for try in $(seq 50); do {start} 2> errors && break; sleep 0.1; done
         psql -Atc \"select count(*) > $before, sum(delta) = (select sum(tbalance) from
           pgbench_tellers), sum(delta) = (select sum(abalance) from pgbench_accounts)
           from pgbench_history\"
         pg_ctl -D pg -s -m fast stop"
    );
    served.sh("chmod 755 .. .; mkdir home; chown postgres home");
    let home = served.dir().join("home");
    let text = served.run_for(60, |command| {
        command.args(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.args(["sh", "-e", "-c", &format!("cd {}\n{script}", home.display())]);
    });
    assert_eq!(text, "t|t|t");
    served.end();
}
