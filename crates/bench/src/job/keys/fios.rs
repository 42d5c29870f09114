//! fio's keys without a counterpart here, and its engines, grouped by reason.
//!
//! The names are those of fio 3.33 (`fio --cmdhelp=all`, its aliases, and the options of its
//! engines), and the newer ones that the examples of fio 3.41 use. A test compares the list with
//! the installed fio.

/// The accepted values of a key that has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::job) enum Accepts {
    /// Any value, or none.
    Any,
    /// Any value is accepted. A value is required.
    AnyValue,
    /// Only these values are accepted, since another value would ask for an effect.
    Only(&'static [&'static str]),
    /// fio's engines that do block I/O, as we do.
    Engine,
}
use Accepts::{Any, AnyValue, Engine, Only};

/// Keys for what we do anyway, or for something that has no counterpart here and changes no figure:
/// names, the values, and why they have no effect.
pub(in crate::job) const IGNORED: &[(&str, Accepts, &str)] = &[
    ("description", AnyValue, "a remark"),
    ("ioengine", Engine, "the device's URI says how I/O is done"),
    ("thread threads", Any, "jobs are threads"),
    ("nice", AnyValue, "say prio= or sched="),
    ("ioscheduler", AnyValue, "there is none in between"),
    ("kb_base", Only(&["1024"]), "it is fio's default"),
    ("unit_base", AnyValue, "bandwidth is in bytes"),
    ("nrfiles nr_files", Only(&["1"]), "a job has one device or file"),
    ("cpus_allowed_policy", Only(&["shared"]), "it is fio's default"),
    (
        "softrandommap rwmixcycle write_barrier experimental_verify flow_watermark",
        AnyValue,
        "no longer needed",
    ),
    ("allrandrepeat", Any, "all that is random here is one sequence; see randrepeat"),
    ("random_generator", Only(&["tausworthe", "tausworthe64"]), "all draw from one generator"),
    ("ignore_zone_limits", Any, "a device here has no limits of its own"),
    (
        "gtod_reduce gtod_cpu clocksource disable_lat disable_clat disable_slat \
         disable_bw_measurement disable_bw",
        Any,
        "latencies are always measured",
    ),
    (
        "slat_percentiles significant_figures unified_rw_reporting bwavgtime iopsavgtime stats \
         disk_util block_error_percentiles eta",
        Any,
        "the report is always the same",
    ),
    (
        "clat_percentiles lat_percentiles percentile_list",
        Any,
        "the JSON's bins of clat_ns and lat_ns have any percentile",
    ),
    (
        "log_entries log_compression log_compression_cpus log_store_compressed",
        AnyValue,
        "logs are written when the run ends",
    ),
    (
        "refill_buffers scramble_buffers zero_buffers buffer_pattern buffer_compress_percentage \
         buffer_compress_chunk dedupe_percentage dedupe_mode dedupe_working_set_percentage \
         dedupe_global",
        Any,
        "buffers hold random data",
    ),
    (
        "mem iomem iomem_align mem_align hugepage-size hugepage_size lockmem thp fixedbufs \
         registerfiles nonvectored userspace_reap",
        Any,
        "buffers are memory that the device reaches",
    ),
    ("directory", AnyValue, "devices and files are named by URIs"),
    (
        "invalidate fallocate lockfile openfiles file_service_type create_serialize create_fsync \
         create_on_open allow_file_create allow_mounted_write overwrite unlink unlink_each_loop",
        Any,
        "no files are made, opened anew or removed",
    ),
    ("replay_redirect", AnyValue, "a trace is replayed on the job's device"),
    ("rate_min ratemin rate_iops_min", AnyValue, "a job is not ended for being slow"),
    ("rate_cycle ratecycle rate_ignore_thinktime", Any, "I/Os are evenly spaced"),
    (
        "io_submit_mode",
        Only(&["inline"]),
        "a job's thread submits its I/Os; late ones are caught up",
    ),
    (
        "continue_on_error ignore_error error_dump",
        AnyValue,
        "errors are counted, and the job goes on",
    ),
    ("verify_fatal verify_dump", Any, "mismatches are counted, and the first is shown"),
    (
        "verify_write_sequence",
        Any,
        "a job knows which write came last, and in what order it checks",
    ),
    (
        "verify_backlog verify_backlog_batch verify_async verify_async_cpus verifysort \
         verifysort_nr",
        Any,
        "what a pass has written is checked at its end, in order",
    ),
];

/// Keys that are left to fio, which can run any job with our engine: zones, shares of a flow,
/// searches, the rarer places and sizes, the order of jobs, nodes, logs.
pub(in crate::job) const LEFT_TO_FIO: &str = "\
     bsrange blocksize_range filesize offset_increment fill_device fill_fs \
     random_distribution rw_sequencer blockalign ba iodepth_low \
     zonemode zonesize zonerange zoneskip zonecapacity max_open_zones job_max_open_zones \
     read_beyond_wp zone_reset_threshold zone_reset_frequency \
     flow flow_id flow_sleep \
     latency_target latency_window latency_percentile latency_run max_latency \
     steadystate ss steadystate_duration ss_dur steadystate_ramp_time ss_ramp \
     wait_for startdelay exitall exit_what \
     numa_cpu_nodes numa_mem_policy \
     write_bw_log write_iops_log write_hist_log log_hist_msec log_hist_coarseness log_max_value \
     log_prio per_job_logs";

/// Keys that would change what is measured: names, and the reason for the refusal or the
/// alternative.
pub(in crate::job) const REFUSED: &[(&str, &str)] = &[
    (
        "hipri_percentage",
        "say hipri or completion=poll; every I/O of a job is waited for in one way",
    ),
    ("sqthread_poll sqthread_poll_cpu", "say completion=poll"),
    ("bs_unaligned blocksize_unaligned", "a device takes whole blocks only; leave it out"),
    ("bs_is_seq_rand percentage_random percentage_sequential", "say two jobs, one of them random"),
    ("fsync_on_close", "a device is not closed within a run; say end_fsync=1"),
    ("sync_file_range", "a device has no file ranges; say fsync="),
    ("thinktime_blocks_type", "I/Os are counted as they complete; leave it out"),
    ("thinktime_iotime", "say thinktime_blocks="),
    ("exitall_on_error", "errors are counted, and the job goes on"),
    ("include", "a job file is read whole; put the sections into one file"),
    (
        "log_unix_epoch log_alternate_epoch log_alternate_epoch_clock_id",
        "a job's measured time has gaps, in which others have their turn; leave it out",
    ),
    ("write_iolog", "say write_lat_log= and log_offset=1"),
    (
        "read_iolog_chunked replay_scale replay_align replay_skip merge_blktrace_file \
         merge_blktrace_scalars merge_blktrace_iters",
        "a trace is read whole, and replayed as it is",
    ),
    (
        "filename_format unique_filename opendir file_append",
        "a job works on one device or file: say filename=",
    ),
    ("create_only pre_read", "files are taken as they are; leave it out"),
    ("offset_align", "say offset="),
    ("serialize_overlap", "say iodepth=1"),
    ("atomic", "no write is asked to be whole or nothing after a power loss; leave it out"),
    ("write_hint uncached nowait force_async", "I/Os carry no flags; leave it out"),
    ("verify_offset", "a header is at the beginning of its block or interval; leave it out"),
    ("verify_only", "say rw=read or randread with verify= in a job of its own"),
    (
        "verify_state_load verify_state_save",
        "a job that only reads checks all it reads; leave it out",
    ),
    (
        "trim_percentage trim_verify_zero trim_backlog trim_backlog_batch",
        "blocks that were verified are not deallocated",
    ),
    (
        "cmdprio_percentage cmdprio_class cmdprio cmdprio_hint cmdprio_bssplit",
        "only fio's own engines io_uring and libaio have it: run fio with one of them, or say two \
         jobs, each with prio=",
    ),
    ("cpumask", "say cpus_allowed="),
    ("exec_prerun exec_postrun", "run the program before or after this one"),
    ("cgroup cgroup_nodelete cgroup_weight", "start the command in the group"),
    ("uid gid", "start the command as that user"),
    ("profile", "say what the profile does by keys"),
    ("fdp fdp_pli", "writes name no placement; leave it out"),
    (
        "pi_act pi_chk apptag apptag_mask md_per_io_size",
        "protection information is the driver's own matter; leave it out",
    ),
    (
        "sprandom spr_op spr_num_regions spr_cache_size",
        "its way to bring a device to its steady state is not built; say loops=2 of rw=write, \
         then randwrite",
    ),
    ("num_range", "a trim is of one range; leave it out"),
    ("libblkio_driver libblkio_path", NO_ENGINE),
    ("cmd_type cuda_io gpu_dev_id gpu_dev_ids", NO_ENGINE),
    ("cpuload cpumode cpuchunks exit_on_io_done", "say hog= or competitor="),
    (
        "pool cont chunk_size chunck_size object_class svcl donorname inplace program arguments \
         grace_time std_redirect stat_type volume brick single-instance single_instance https \
         http_host http_user http_pass http_s3_key http_s3_keyid http_swift_auth_token \
         http_s3_region http_s3_sse_customer_key http_s3_sse_customer_algorithm \
         http_s3_storage_class http_mode http_verbose namenode hostname port hdfsdirectory \
         hdfs_use_direct initiator serverip direct_write_to_pmem busy_wait_polling skip_bad uri \
         protocol nodelay listen pingpong interface ttl window_size mss nfs_url clustername \
         rbdname clientname conf busy_poll touch_objects bindname verb readfua writefua \
         sg_write_mode stream_id no_completion_thread xnvme_be xnvme_async xnvme_sync xnvme_admin \
         xnvme_dev_nsid xnvme_iovec",
        NO_ENGINE,
    ),
];

const NO_ENGINE: &str = "it belongs to an engine of fio's, and there are none here";

/// fio's engines that read and write blocks of a file or device, as every job here does.
pub(in crate::job) const BLOCK_ENGINES: &str = "\
     sync psync vsync pvsync pvsync2 libaio linuxaio posixaio \
     solarisaio windowsaio io_uring io_uring_cmd mmap splice null";

/// Other engines of fio, and why they are refused.
pub(in crate::job) const OTHER_ENGINES: &[(&str, &str)] = &[
    ("cpuio", "does no I/O; say hog= or competitor="),
    ("exec", "runs programs"),
    (
        "e4defrag falloc ftruncate filecreate filestat filedelete dircreate dirstat dirdelete",
        "works on what files are, not on what is in them",
    ),
    (
        "net netsplice rdma librpma_apm_client librpma_apm_server librpma_gpspm_client \
         librpma_gpspm_server",
        "measures a network",
    ),
    (
        "http rados rbd gfapi gfapi_async nfs libhdfs libiscsi nbd dfs ime_psync ime_psyncv \
         ime_aio",
        "speaks the protocol of a service; what it serves may be named by a device's URI",
    ),
    ("sg", "speaks SCSI"),
    ("libzbc", "drives zoned disks"),
    ("libpmem pmemblk dev-dax", "works on persistent memory"),
    ("mtd", "drives raw flash"),
    ("libcufile", "works on the memory of a GPU"),
    ("libblkio", "is a library of drivers, which the device's URI names here"),
];

/// Returns the names of a group.
pub(in crate::job) fn names(group: &'static str) -> impl Iterator<Item = &'static str> {
    group.split_whitespace()
}

/// Returns the group's name that equals `name`, if there is one.
pub(in crate::job) fn find(group: &'static str, name: &str) -> Option<&'static str> {
    names(group).find(|known| *known == name)
}
