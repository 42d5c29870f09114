//! The longer texts of `--help`.

/// Version and revision.
pub(super) const VERSION: &str = env!("MEANTIME_VERSION");

/// `meantime --help`, at the top.
pub(super) const ABOUT: &str = "\
Meantime drives NVMe SSDs from user space and makes use of the time the device takes: it can sleep until \
the interrupt, poll, or sleep a while and then poll. This command measures what each way costs, on a \
software SSD (no hardware, no root and no set-up needed), beside the kernel's own stack.";

/// `meantime --help`, at the bottom.
pub(super) const AFTER: &str = "\
EXAMPLES
  meantime bench jobs/qd1.fio --device 'mem:256M?model=optane'
  meantime report before.json after.json --html report.html
  meantime info --device 'mem:1G?model=nand'
  meantime fs ls -l file:disk.img:/home
  meantime calibrate
  meantime anatomy --device 'mem:256M?model=fast12' --svg anatomy.svg
  meantime top
  meantime devices
  meantime run --device file:disk.img -- ls /mnt/meantime
  meantime ssd --socket /tmp/ssd.sock 'mem:1G?model=optane'

DEVICES
  mem:SIZE[?KEY=VALUE&…]    software SSD in this process, its medium in memory
  file:PATH[?KEY=VALUE&…]   the same, its medium a file
  vfio:ADDRESS              a PCIe SSD, e.g. vfio:0000:01:00.0
  vfio-user:SOCKET          a controller that another process serves, e.g. `meantime ssd`
  kernel:PATH[?KEY=VALUE&…] a file or block device by the kernel's own stack, e.g. kernel:/dev/nvme0n1
  Keys: model, lba, vwc, namespaces, nsid, mdts, boundary, cpu, queues, vectors, strict, lock, faults, create, ro.
  See `meantime bench --help`, option --device.";

/// The device, wherever one is named.
pub(super) const DEVICE_OF_INFO: &str = "\
The device to ask, e.g. mem:1G?model=optane or file:disk.img. See `meantime bench --help` for what a URI can say.";

/// `bench --help`, at the top.
pub(super) const BENCH_ABOUT: &str = "\
Runs fio jobs on one or more devices and compares ways to wait for completions.

Each job is run on each device with each completion policy. These runs alternate in short turns (A B C A B C …), so \
that whatever drifts on the machine hits all of them alike.

Jobs of a file run at the same time, as in fio, unless stonewall stands between them: in each turn the threads of all of \
them do their I/O at once, each job on its own device, in the first turn by its first way to wait, in the next by \
its second. Such jobs have as many ways to wait as the others, or one, which is then that of every turn.";

/// `bench --help`, the job file.
pub(super) fn job_file() -> String {
    let keys = crate::job::subjects();
    format!(
        "A fio job file. Obeyed, with fio's meaning and units, are:\n\n{keys}\n\n{OF_JOB_FILES}"
    )
}

const OF_JOB_FILES: &str = "\
Where this differs from fio: a runtime without size, io_size, number_ios or loops is how long to go on, as with \
time_based, since a pass over a small device takes no time (time_based=0: one pass, and the runtime is a limit); with two rates a mixed job keeps its mix, so that the slower direction holds the other back; clones (numjobs) are shown as one; a flush waits for all writes before it, and fdatasync is \
counted as well; with rw and fsync=N there is one flush for N writes; random_generator's names are \
one generator, which visits each block once unless norandommap is given (lfsr: even then), but with several block sizes \
random I/Os may overlap. \
Times in logs are a job's own measured time, without that of the others' turns.

Keys that would change what is measured are an error, harmless ones are listed in one warning. ${NAME} is a variable of \
the environment.

Without a job file, the job options below say what to do; with one, they override it for every job. A key that is not \
among them is an option all the same: --ioengine=libaio, --rw_sequencer identical.";

/// `bench --device`.
pub(super) const DEVICE: &str = "\
Devices to measure. A comma separates URIs, and the option can be repeated. Default: the job's filename.

  mem:SIZE    software SSD in this process, its medium in memory; begins empty,
              and is filled with random data before it is read
  file:PATH   the same, its medium a file (create=SIZE makes it); keeps its contents.
              With ro=1 it is only read, and several processes may at once
  vfio:ADDRESS  a PCIe SSD, e.g. vfio:0000:01:00.0 (`meantime devices` lists them); taken from the
              kernel's driver for as long as it is used, unless something uses it
  vfio-user:SOCKET  a controller that another process serves (`meantime ssd`, SPDK's target)
  kernel:PATH a file or block device by the kernel's own stack, for comparison (create=SIZE
              makes a file)

DEVICE:/PATH is a file in the ext4 file system on a device, e.g. file:disk.img:/data or kernel:/dev/sdb1:/data, read over our own file layer: through its page cache (--cache, --overlap, --fadvise-hint), or with --direct past it. Its reads are done one at a time, so that --iodepth is 1 and several need --numjobs. It can be compared with the device itself, in one run, and with the kernel's own file system (kernel:/mnt/data?direct=0&engine=preadv2).

What a job writes replaces what was there. What the kernel has mounted or uses otherwise, also as the file of a loop device, is only read: a job that writes is refused.

Parameters follow a question mark, joined by &. Of vfio: and vfio-user: nsid=N, sgl=1 (data by SGLs), shadow=0 or 1 (shadow doorbells). Of kernel: engine=io_uring (default) or preadv2, direct=0 (through the page cache), fixed=0 (memory \
not registered with io_uring), lba=512 or 4096, create=SIZE. Of the others: model=null (default, takes no time), fast12, dram-nvme, nvram, \
optane, zssd, nand, or the path of a model file; lba=512 or 4096 (bytes per logical block); vwc=0 or 1 (volatile \
write cache); cpu=N (the SSD's thread; default the last); mdts=BYTES (most data of one command); boundary=BLOCKS; \
queues=N; vectors=N; strict=1 (refuse also what is harmless; docs/faults.md); lock=1 (lock the driver's memory); faults=FILE (a plan of faults); namespaces=N and nsid=N (mem: only).

In a shell, quote URIs: ? and & mean something to it.";

/// `bench --completion`.
pub(super) const COMPLETION: &str = "\
Ways to wait, separated by commas. Default: the job's completion key, else interrupt,poll,hybrid,adaptive.

  interrupt     sleep until the device's interrupt
  poll          look until the completion is there
  adaptive      sleep as long as that can be afforded, then poll: by what is learned of
                the device and measured of the machine. With a goal:
    adaptive:latency=PERCENT  least CPU, this much over polling at most (default: 3)
    adaptive:cpu=PERCENT      best latency with so much of a CPU
    adaptive:p99=TIME         least CPU with 99 % done in TIME; likewise p99.9
  auto          choose between interrupt, adaptive and poll while running
  hybrid=TIME   sleep for TIME, then poll; e.g. hybrid=2us

and published rules, to compare with: hybrid (half the mean device time, Linux 4.10), hybrid-bucket (the same by direction and size, Linux 4.12), hybrid-min (half the shortest run time seen, io_uring's HYBRID_IOPOLL), ehp (JSA 2022), pas, dpas (FAST 2026).

On kernel: devices, interrupt is what the kernel does by itself, poll is IOPOLL, hybrid-min HYBRID_IOPOLL. What a device \
cannot do is left out of the comparison, with the reason, if another device of the job can; else it is an error.";

/// `bench --floor`.
pub(super) const FLOOR: &str = "\
Measure the floor, too: one core sets a flag, the other copies the payload from a random place of a medium as large as \
the device's and sets a flag back. No queue, no command: no protocol between two cores can beat it. It is \
measured around every turn, at least 9 times; shown are its median and the median of the ratios of each turn's \
median latency to it. Needs the device's size in memory once more.";

/// `bench --json`.
pub(super) const JSON: &str = "\
Write the results in fio's JSON format to FILE, which is replaced as a whole at the end, or to standard output (-); the \
text then goes to standard error. Beside fio's keys each job has device and completion in \"job options\", bins (as in \
fio's json+), series (latency over time), and with --floor floor_ns and floor_ratio; \"meantime\" holds facts of the machine.";

/// `bench --html`.
pub(super) const HTML: &str = "\
Write a report to FILE, which is replaced as a whole at the end, or to standard output (-); the text then goes to \
standard error. It is one page that loads nothing from anywhere: findings, tables, plots of the latencies, \
facts of the machine; for a browser, light or dark, for a phone and for print. `meantime report` makes the same \
from JSON files, several together if you like.";

/// `bench --rounds`.
pub(super) const ROUNDS: &str = "\
How often each device and policy has its turn within a job. Default: so that a turn takes about half a second (a \
quarter with --floor, and then there are at least 9).";

/// `bench --no-control`.
pub(super) const NO_CONTROL: &str = "\
Serve no control socket. Without this option `meantime top` can look at the run while it lasts, and change how its queues wait; it is served by a thread of \
its own, which sleeps unless it is asked. Results say if a policy was changed so.";

/// `bench --help`, at the bottom.
pub(super) const BENCH_AFTER: &str = "\
OUTPUT
  Per job, device and policy the figures as fio prints them. slat is the time until the doorbell has been rung, \
clat from there until the completion was seen, lat the whole. Then a table, a row for each:

    mean … max    latency (lat) in µs, reads and writes together; \"1 in 6,000\" is what the
                  slowest one in 6,000 reached
    IOPS, CPU %   I/Os per second; user + system time of the waiting threads over wall time
    IOPS/CPU-%    what a percent of a CPU bought. Sleeping is not fully charged by the kernel.
    vs first      change of the mean latency against the device's first row
    sched, PM QoS µs, hogs
                  with the option of that name: the threads' scheduling class, the limit on
                  idling that was held in this row's turns, and how many programs competed
    rival         with competitor or hog: the share of their lone speed that the competing
                  programs kept
    ¹, ², …       this device is another one than the job's first: what it is, below the table
    floor         see --floor; ratio 1.20 means 20 % above what two cores can do at best

  Below it, the machine. On a virtual machine CPUs move: the time a cache line takes between them is probed around \
every turn, and turns in which it changed by more than half are repeated, which the report says.

SCHEDULER AND POWER
  With --sched, threads are in a class during their row's turns only; what is in force is read back, and a kernel that does something else is an error. rr and fifo \
need CAP_SYS_NICE or an RLIMIT_RTPRIO, slices Linux 6.12 or later. A thread that polls in a real-time class leaves the others 5 % of its CPU. \
--pm-qos needs root, or the right to write to /dev/cpu_dma_latency, which is held in that row's turns only and for all CPUs. Programs of --hog run on the CPU of the \
job's first thread, to which all threads are bound then. Several classes and limits are compared in turns, as ways to wait are; in JSON, \
\"job options\" has those of the row, and extra competitor_share_percent (the share of time in which the competing programs ran, by the time \
stamp counter) and competitor_ns_per_io.

VERIFY
  With --verify crc32c each block written carries its place, a number and checksums. When the range has been written \
once (or time is up), all of it is read back and checked; mixed jobs also check what they read. A block that \
is not what was written is reported with its offset, and the exit status is 1. Devices and policies then run one \
after another, not in turns; several threads (--numjobs) share the range, a part each. --ramp-time has no effect.

EXAMPLES
  Two kinds of SSD, four ways to wait, 4 KiB random reads, 5 s each:
    meantime bench --rw randread --device 'mem:256M?model=optane,mem:256M?model=zssd'

  How near polling comes to what the machine can do:
    meantime bench --rw randread --device mem:256M --completion poll --floor

  The kernel's own stack beside ours, and a page with plots:
    meantime bench jobs/qd1.fio --device 'mem:256M?model=optane,kernel:/dev/nvme0n1' --html report.html

  A fio job file, results for fio's tools:
    meantime bench jobs/qd1.fio --device 'mem:256M?model=fast12' --json result.json

  What a program on the same CPU does to a thread that polls, and what cures it:
    meantime bench --rw randread --device 'mem:256M?model=nand' --completion poll,interrupt \\
        --hog 1 --sched other,rr:1,slice:100us

  A file over our file layer, beside the device that it is on:
    meantime bench --rw randread --completion poll --direct=1 \\
        --device 'file:disk.img:/data,file:disk.img'

  How much of an interrupt's latency is the idle state:
    meantime bench --rw randread --device 'mem:256M?model=nand' --completion interrupt \\
        --pm-qos=none,0

  How polling fares beside a writer that flushes, with a log of every read:
    printf '%s\\n' '[read]' rw=randread write_lat_log '[write]' rw=randwrite fsync=32 > j.fio
    meantime bench j.fio --device mem:256M --runtime 2

  Write 64 MiB to a disk image in random order, 16 at a time, and check it:
    meantime bench --rw randwrite --size 64m --iodepth 16 --verify crc32c \\
        --device 'file:disk.img?create=64M' --completion poll

EXIT STATUS
  0    everything was measured
  1    an error (one line on standard error), I/O errors, or data that was not what had been written
  2    the command line cannot be obeyed
  130  ended by Ctrl-C; what was measured until then was printed. A second one kills at once.";

/// `report --help`, at the top.
pub(super) const REPORT_ABOUT: &str = "\
Makes one HTML page from the results of earlier runs, to be read and forwarded: what was found, the tables, and for \
each job plots of the latency distribution, of its tail, of CPU against latency, and of latency over time.

Several files are put side by side: a job that does the same in each (kind, block size, depth, threads) is compared, \
whatever it is called. Results of different machines are kept apart; different kernels and revisions are \
said at the top.";

/// `report FILE.json`.
pub(super) const REPORT_FILES: &str = "\
Files that `meantime bench --json FILE` wrote, and fio's own (`--output-format=json`, better json+: with the \
whole histogram the curves are exact). fio's results appear as \"fio, kernel\", with the engine; a job of fio's is compared \
with ours on kernel:PATH if its filename is the same PATH.";

/// `report --html`.
pub(super) const REPORT_HTML: &str = "\
Write the page to FILE, which is replaced as a whole, or to standard output (-); the table then goes to standard error.";

/// `report --help`, at the bottom.
pub(super) const REPORT_AFTER: &str = "\
OUTPUT
  The comparison table, as bench prints it (\"–\" is what a file does not tell), what keeps results from being \
compared, and the name of the page. The page is one file that loads nothing from anywhere and needs no script: it can be \
mailed, opened in any browser, light or dark, on a phone, and printed.

EXAMPLES
  What a change did; the page is meantime-report.html:
    meantime bench JOB.fio --json before.json
    meantime bench JOB.fio --json after.json
    meantime report before.json after.json

  Beside the kernel's stack, as fio sees it:
    fio --name=rr --filename=/dev/nvme0n1 --rw=randread --bs=4k --direct=1 --runtime=5 \\
        --output-format=json+ --output=fio.json
    meantime report fio.json ours.json --html report.html

  The table only:
    meantime report result.json --text

EXIT STATUS
  0 made · 1 an error (one line on standard error), nothing was written · 2 the command line cannot be obeyed";

/// `info --help`, at the top.
pub(super) const INFO_ABOUT: &str = "\
Opens a device and shows what its controller says of itself: model, serial number, firmware and version; what \
its capability register (CAP) allows; its namespaces, and why one cannot be used; features with their current \
values; and the SMART / health log.";

/// `info --help`, at the bottom.
pub(super) const INFO_AFTER: &str = "\
OUTPUT
  Four tables: controller, namespaces, features, health. Features the controller does not have are shown with what \
it answered. With --json one object with the keys controller, namespaces, features, smart.

EXAMPLES
  meantime info
  meantime info --device 'mem:1G?model=nand&lba=4096&namespaces=2'
  meantime info --device file:disk.img --json

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

/// `calibrate --help`, at the top.
pub(super) const CALIBRATE_ABOUT: &str = "\
Measures what waiting costs on this machine, here and now: how long a cache line takes from one CPU to another and \
back, what reading the clock costs, how late a thread runs that sleeps on an eventfd (the form an interrupt has \
here) or a futex, how late short sleeps end, by each way of sleeping, and what a sleep costs in CPU time. No figure of this kind is built into Meantime.

Each is measured twice, in turns: as the machine is, and while /dev/cpu_dma_latency is held at 0 (PM QoS), so that no CPU enters a C-state \
that takes time to leave. That needs root, or the right to write to that file; without, there is one set of figures. The C-states the \
kernel has are shown, with the governor that chooses among them.

The measuring thread runs on the first CPU this process may use, its peer on the last.";

/// `calibrate --help`, at the bottom.
pub(super) const CALIBRATE_AFTER: &str = "\
OUTPUT
  A row per measurement with median, p99 and maximum. The cache-line row says how far apart two cores are; no I/O \
through a queue pair is quicker than such a trip. Sleeping instead of polling can pay only for I/Os that take \
longer than the oversleep. The CPU time of a sleep is what the kernel charges its thread for (means of 16 sleeps): sleeping saves less than it seems. \
What PM QoS takes off a wake-up is what leaving C-states costs, which is said below the table in time and per cent; the rest is interrupt and scheduler.

  With --json: cacheline_rtt_ns (the median), and cacheline_rtt, clock_read, eventfd_wake, futex_wake, oversleep (nanosleep), oversleep_by_way (the others), sleep_cpu \
with median_ns, p99_ns, max_ns, mean_ns and count each; pm_qos (held, refused: why not, in_force_us: somebody else's limit) with the same under the limit; idle_cost \
(idle_us, wake_ns, pm_qos_wake_ns, idle_state_ns, idle_state_percent); waited_percent (of the time, others had the CPU); idle (driver, governor, boot_options, states with name, description, exit_latency_us, residency_us, disabled).

EXAMPLES
  meantime calibrate
  meantime calibrate --quick --json

EXIT STATUS
  0 measured · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";
