//! fio job files and the keys of the command line. No text may panic; what is accepted is within
//! its limits; what is said of the rest can be printed on a line of a terminal.
//!
//! The input is a job file and, after the first NUL, lines `key=value` as from the command line.

use meantime_bench::job::{
    self, BS_MAX_BYTES, CPU_MAX, Extent, HOGS_MAX, IODEPTH_MAX, Ignored, Job, JobError,
    NUMJOBS_MAX, Note, Origin, PM_QOS_MAX_US, SECTOR_BYTES, SETTINGS_MAX, Sizes,
};

fn check_text(text: &str) {
    assert!(!text.is_empty() && text.len() < 4096, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?} has a control character");
}

fn check_error(error: &JobError) {
    check_text(&error.to_string());
}

fn check_ignored(ignored: Ignored) {
    assert!(job::known_key(ignored.key) == Some(ignored.key), "{}", ignored.key);
    check_text(&Ignored::line(&[ignored]));
}

fn check_note(note: &Note) {
    check_text(&note.to_string());
    if let Note::Ignored(ignored) = note {
        check_ignored(*ignored);
    }
}

fn check_extent(extent: Extent) {
    match extent {
        Extent::Bytes(bytes) => assert!(bytes.is_multiple_of(SECTOR_BYTES)),
        Extent::Percent(percent) => assert!(percent <= 100),
    }
    for device_bytes in [0, 4096, 1 << 30, u64::MAX] {
        let bytes = extent.resolve_bytes(device_bytes, 4096);
        assert!(
            matches!(extent, Extent::Bytes(_))
                || bytes <= device_bytes && bytes.is_multiple_of(4096)
        );
    }
}

/// The limits that the documentation promises.
fn check_job(job: &Job) {
    let sizes = [job.sizes_of(0), job.sizes_of(1)];
    let ends =
        sizes.iter().flat_map(|sizes| [sizes.min_bytes(), sizes.step_bytes(), sizes.max_bytes()]);
    for bs in
        ends.chain([job.bs_read_bytes, job.bs_write_bytes, job.bs_min_bytes(), job.bs_max_bytes()])
    {
        assert!((SECTOR_BYTES..=BS_MAX_BYTES).contains(&bs) && bs.is_multiple_of(SECTOR_BYTES));
    }
    for sizes in &sizes {
        assert!(
            sizes.min_bytes() <= sizes.max_bytes()
                && sizes.min_bytes().is_multiple_of(sizes.step_bytes())
        );
        if let Sizes::Split(shares) = sizes {
            assert_eq!(shares.iter().map(|(_, percent)| u32::from(*percent)).sum::<u32>(), 100);
        }
    }
    let batch = [job.batch.submit, job.batch.complete_min, job.batch.complete_max];
    assert!(batch.iter().flatten().all(|ios| *ios <= IODEPTH_MAX));
    assert!(job.number_ios != Some(0) && job.pace.thinktime_blocks > 0);
    let rates = job.pace.rate_iops.iter().chain(&job.pace.rate_bytes);
    assert!(rates.flatten().all(|rate| *rate > 0));
    assert!((1..=IODEPTH_MAX).contains(&job.iodepth) && (1..=NUMJOBS_MAX).contains(&job.numjobs));
    assert!((1..=u64::from(u32::MAX)).contains(&job.loops));
    assert!(job.rwmixread_percent <= 100);
    assert!(job.runtime.is_none_or(|time| !time.is_zero()));
    assert!(job.cpus_allowed.is_sorted_by(|a, b| a < b));
    assert!(job.cpus_allowed.last().is_none_or(|cpu| *cpu <= CPU_MAX));
    assert!(
        job.hogs <= HOGS_MAX
            && job.scheds.len() <= SETTINGS_MAX
            && job.pm_qos_us.len() <= SETTINGS_MAX
    );
    assert!(job.pm_qos_us.iter().flatten().all(|us| *us <= PM_QOS_MAX_US));
    for class in &job.scheds {
        assert_eq!(class.to_string().parse(), Ok(*class));
    }
    check_extent(job.offset);
    assert_ne!(job.offset, Extent::Percent(100));
    for size in [job.size, job.io_size].into_iter().flatten() {
        check_extent(size);
        assert!(!matches!(size, Extent::Bytes(0) | Extent::Percent(0)));
    }
    for text in [&job.filename, &job.completion].into_iter().flatten() {
        assert!(!text.is_empty() && !text.chars().any(char::is_control));
    }
    assert!(job.reads() || job.changes());
    match job.validate() {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| check_text(warning));
            assert!(job.time_based != Some(true) || job.runtime.is_some());
            assert!(
                !job.hipri || job.completion.as_deref().is_none_or(|list| list.trim() == "poll")
            );
            if let (Some(Extent::Bytes(size)), Extent::Bytes(offset)) = (job.size, job.offset) {
                assert!(size >= job.bs_max_bytes() && offset.checked_add(size).is_some());
            }
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            errors.0.iter().for_each(check_error);
        }
    }
    check_options(job);
}

/// The options as they are reported make the same job.
fn check_options(job: &Job) {
    let mut again = Job::new(&job.name);
    for (key, value) in job.fio_options() {
        assert!(job.is_set(&key));
        again
            .set(&key, Some(&value), &Origin::CommandLine)
            .expect("a value that was accepted before");
        // A list with gaps leaves as it is what an earlier one set, which is not reported.
        if key == "bs" && value.split(',').any(|part| part.trim().is_empty()) {
            (again.bs_read_bytes, again.bs_write_bytes) = (job.bs_read_bytes, job.bs_write_bytes);
        }
    }
    // Where they were set is all that differs, and what was refused there.
    again.take_origins(job);
    assert_eq!(again, *job);
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (file, lines) = text.split_once('\0').unwrap_or((text, ""));
    let mut job = Job::new("");
    let parsed = job::parse(file, "fuzz.fio");
    parsed.warnings.iter().for_each(|warning| check_text(warning));
    parsed.ignored.iter().copied().for_each(check_ignored);
    parsed.errors.iter().for_each(check_error);
    // What has no error has jobs; what has one may have those that are without.
    assert!(!parsed.errors.is_empty() || !parsed.jobs.is_empty());
    assert!(parsed.jobs.len() <= job::JOBS_MAX);
    for parsed in &parsed.jobs {
        let name = &parsed.name;
        assert!(!name.is_empty() && name != "global" && name.chars().count() <= 256);
        assert!(!name.chars().any(char::is_control));
        check_job(parsed);
    }
    assert!(!parsed.errors.is_empty() || parsed.jobs.iter().all(|job| !job.is_faulty));
    if let Some(first) = parsed.jobs.first() {
        job = first.clone();
    }
    for line in lines.lines() {
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (line, None),
        };
        let before = job.clone();
        match job.set(key, value, &Origin::CommandLine) {
            Ok(note) => note.iter().for_each(check_note),
            Err(error) => {
                check_error(&error);
                assert_eq!(job, before, "a value that was refused had an effect");
            }
        }
    }
    check_job(&job);
}
