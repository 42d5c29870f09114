//! A runner that makes figures up.

use serde_json::{Value, json};

use crate::guest::Boot;
use crate::runner::{RunError, Runner};

/// Answers commands with figures that depend on nothing but the command's arguments and a seed.
pub(super) struct MadeUp {
    seed: u64,
    /// The scratch directory, which differs each time and is left out of arguments.
    scratch: String,
    state: u64,
    /// Refuses what needs a right that this user may not have.
    refuses: bool,
    /// The commands, with hashes of the files that they name.
    pub(super) lines: Vec<String>,
}

/// FNV-1a, which is the same with every version of Rust.
pub(super) fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Images have a name that does not matter.
fn without_names(text: &str) -> String {
    let mut parts: Vec<&str> = text.split(".img").collect();
    let last = parts.pop().unwrap_or_default();
    let mut out = String::new();
    for part in parts {
        let end = part.rfind([':', '/', ' ', '=']).map_or(0, |at| at + 1);
        out += &part[..end];
        out += "IMG";
    }
    out + last
}

impl MadeUp {
    pub(super) fn new(seed: u64, scratch: &str, refuses: bool) -> Self {
        Self { seed, scratch: scratch.to_owned(), state: 0, refuses, lines: Vec::new() }
    }

    fn next(&mut self) -> f64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        1_000.0 + (self.state >> 40) as f64 / 1_000.0
    }

    /// Takes note of a command with the files that it names, and lets figures follow from it.
    fn begin(&mut self, program: &str, args: &[String]) -> Result<(), RunError> {
        let shared = format!("/dev/shm/meantime-{}-", std::process::id());
        let scratch = format!("{}/", self.scratch);
        let plain = |text: &str| {
            without_names(
                &text.replace(&scratch, "").replace(&self.scratch, ".").replace(&shared, ""),
            )
        };
        let mut line = plain(&format!("{program} {}", args.join(" ")));
        self.state = hash(&format!("{} {line}", self.seed));
        for arg in args {
            let paths = arg.split(['=', '&', '?']).filter(|part| part.starts_with(&scratch));
            for path in paths.filter(|path| !path.ends_with(".img")) {
                if let Ok(text) = std::fs::read_to_string(path) {
                    line += &format!("\n  {}: {:x}", plain(path), hash(&plain(&text)));
                }
            }
        }
        if args.iter().any(|arg| arg == "--replay") {
            let of = |name| Self::of(args, name).join("");
            let path = format!("{scratch}{}us-{}.trace", of("--times"), of("--shapes"));
            let text = std::fs::read_to_string(path).unwrap();
            line += &format!("\n  trace: {:x}", hash(&text));
        }
        self.lines.push(line.clone());
        let has = |what: &str| args.iter().any(|arg| arg.contains(what));
        let denied = has("--pm-qos=") || has("rr:1") || has("slice:");
        let polled = has("preadv2") && args.windows(2).any(|pair| pair == ["--completion", "poll"]);
        if self.refuses && (denied || polled) {
            let message = if polled { "it cannot wait by poll" } else { "not permitted" };
            return Err(RunError::Failed { command: line, message: message.to_owned() });
        }
        Ok(())
    }

    fn of<'a>(args: &'a [String], name: &str) -> Vec<&'a str> {
        let at = args.iter().position(|arg| arg == name);
        let list = at.and_then(|at| args.get(at + 1)).map_or("", String::as_str);
        list.split(',').filter(|part| !part.is_empty()).collect()
    }

    /// Returns the jobs of a job file, or the one of the command line: name, direction, ways to
    /// wait.
    fn jobs(args: &[String]) -> Vec<(String, String, Vec<String>)> {
        let ways: Vec<String> =
            Self::of(args, "--completion").iter().map(|&way| way.into()).collect();
        let Some(file) = args.iter().find(|arg| arg.ends_with(".fio")) else {
            return vec![("job".to_owned(), Self::of(args, "--rw").join(""), ways)];
        };
        let mut jobs: Vec<(String, String, Vec<String>)> = Vec::new();
        let mut global = (String::new(), ways);
        let mut grouped = false;
        for line in std::fs::read_to_string(file).unwrap().lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                if name != "global" {
                    jobs.push((name.to_owned(), global.0.clone(), global.1.clone()));
                }
                continue;
            }
            grouped |= jobs.is_empty() && line == "group_reporting=1";
            let (rw, ways) = match jobs.last_mut() {
                Some((_, rw, ways)) => (rw, ways),
                None => (&mut global.0, &mut global.1),
            };
            match line.split_once('=') {
                Some(("rw", direction)) => direction.clone_into(rw),
                Some(("completion", list)) => *ways = list.split(',').map(str::to_owned).collect(),
                Some(("hipri", "1")) => *ways = vec!["poll".to_owned()],
                _ => {}
            }
        }
        // If `[global]` groups the jobs' reports, they are reported as one.
        jobs.truncate(if grouped { 1 } else { usize::MAX });
        jobs
    }

    fn bench(&mut self, args: &[String]) -> Value {
        let limits = args.iter().find_map(|arg| arg.strip_prefix("--pm-qos="));
        let limits: Vec<Option<&str>> =
            limits.map_or(vec![None], |list| list.split(',').map(Some).collect());
        let mut rows = Vec::new();
        for (name, rw, ways) in Self::jobs(args) {
            for completion in ways {
                let row =
                    |limit: &Option<_>| (name.clone(), rw.clone(), completion.clone(), *limit);
                rows.extend(limits.iter().map(row));
            }
        }
        let given = ["sched", "hog"].map(|key| (key, Self::of(args, &format!("--{key}")).join("")));
        let jobs = rows.into_iter().map(|(name, rw, completion, limit)| {
            let bins: Value = [9_000, 900, 100]
                .map(|count| (format!("{:.0}", self.next()), json!(count)))
                .into_iter()
                .collect();
            let sync_bins = json!({format!("{:.0}", self.next()): 100});
            let stats = json!({
                "slat_ns": {"mean": self.next()},
                "total_ios": 10_000, "iops": self.next(), "slowest_1_in_6000_ns": self.next(),
                "lat_ns": {"mean": self.next(), "stddev": self.next(), "min": self.next(),
                    "max": self.next(), "bins": bins},
            });
            let none = json!({"total_ios": 0, "iops": 0.0, "lat_ns": {"mean": 0.0}});
            let (read, write) = match rw.as_str() {
                "randrw" | "rw" => (stats.clone(), stats),
                "randwrite" | "write" => (none, stats),
                _ => (stats, none),
            };
            let mut options = json!({"completion": completion});
            if let Some(limit) = limit {
                options["pm_qos"] = json!(limit);
            }
            for (key, value) in given.iter().filter(|(_, value)| !value.is_empty()) {
                options[*key] = json!(value);
            }
            json!({
                "jobname": name, "job options": options, "read": read, "write": write,
                "usr_cpu": self.next() / 100.0, "sys_cpu": self.next() / 1000.0,
                "ctx": self.next().round(), "competitor_percent": self.next() / 100.0,
                "sync": {"lat_ns": {"mean": self.next(), "bins": sync_bins}},
                "extra": self.counters(),
            })
        });
        let jobs: Vec<_> = jobs.collect();
        json!({"jobs": jobs, "meantime": {"dma_bytes": self.next()}})
    }

    /// Returns made-up counters of a file system.
    fn counters(&mut self) -> Value {
        let names = [
            "cache_hits",
            "cache_misses",
            "cache_waits",
            "read_past_cache",
            "file_requests",
            "file_requested_bytes",
            "deferrable_ns",
            "hidden_ns",
            "commits",
            "log_blocks",
        ];
        names.iter().map(|name| ((*name).to_owned(), json!(self.next()))).collect()
    }

    fn anatomy(&mut self, args: &[String]) -> Value {
        let mut bars = Vec::new();
        for size in Self::of(args, "--bs") {
            let bytes = size.strip_suffix('k').map_or_else(
                || size.parse::<u64>().unwrap(),
                |kib| kib.parse::<u64>().unwrap() << 10,
            );
            for completion in Self::of(args, "--completion") {
                let mut times = || {
                    json!({"mean_ns": self.next(), "stddev_ns": self.next(),
                        "p50_ns": self.next(), "p99_ns": self.next(), "max_ns": self.next()})
                };
                let (total, host, device) = (times(), times(), times());
                let mut named = |names: &[&str]| -> Value {
                    names.iter().map(|name| ((*name).to_owned(), json!(self.next()))).collect()
                };
                let typical = named(&[
                    "submit_ns",
                    "doorbell_ns",
                    "queue_ns",
                    "service_ns",
                    "wake_ns",
                    "cqe_seen_ns",
                    "complete_ns",
                    "total_ns",
                ]);
                let fast12 = named(&[
                    "ta_ns",
                    "ta_before_ns",
                    "ta_after_ns",
                    "td_ns",
                    "tb_ns",
                    "tu_ns",
                    "ta_tb_ns",
                    "total_ns",
                    "share_percent",
                    "speed_percent",
                ]);
                bars.push(json!({"completion": completion, "bs_bytes": bytes, "fast12": fast12,
                    "alone": {"total": total, "host": host, "device": device, "typical": typical,
                        "slowest": {"host_excess_percent": self.next() / 100.0},
                        "submit_percentile_ns": {"50.000000": 100, "99.000000": 200},
                        "host_percentile_ns": {"50.000000": 100, "99.000000": 200},
                        "device_percentile_ns": {"50.000000": 100, "99.000000": 200}}}));
            }
        }
        let alone = json!({"ran_ns": self.next(), "wall_ns": self.next()});
        json!({"bars": bars, "competitor": {"alone": alone}})
    }

    fn waits(&mut self, args: &[String]) -> Value {
        let mut cells = Vec::new();
        for time in Self::of(args, "--times") {
            let time = format!("{time}us");
            for shape in Self::of(args, "--shapes") {
                let ways: Vec<Value> = Self::of(args, "--policies")
                    .iter()
                    .map(|completion| {
                        json!({"completion": completion, "mean_ns": self.next(),
                            "p50_ns": self.next(), "p99_ns": self.next(),
                            "slowest_1_in_6000_ns": self.next(), "iops": self.next(),
                            "cpu_percent": self.next() / 100.0})
                    })
                    .collect();
                cells.push(json!({"name": format!("{time}-{shape}"), "ways": ways}));
            }
        }
        json!({"cells": cells})
    }

    fn calibrate(&mut self) -> Value {
        let mut rows = || -> Value {
            let mut row = |us| {
                let (mean, median) = (self.next(), self.next());
                json!({"idle_us": us, "mean_ns": mean, "median_ns": median})
            };
            [20, 100, 1000].map(&mut row).into()
        };
        let (free, held, futex) = (rows(), rows(), rows());
        json!({"eventfd_wake": free, "futex_wake": futex,
            "pm_qos": {"held": !self.refuses, "refused": "not permitted",
                "eventfd_wake": if self.refuses { json!([]) } else { held }}})
    }
}

impl Runner for MadeUp {
    fn json(&mut self, args: &[String]) -> Result<Value, RunError> {
        self.begin("json", args)?;
        Ok(match args[0].as_str() {
            "bench" => self.bench(args),
            "anatomy" => self.anatomy(args),
            "waits" => self.waits(args),
            "calibrate" => self.calibrate(),
            other => panic!("no such command: {other}"),
        })
    }

    fn text(&mut self, program: &str, args: &[String]) -> Result<String, RunError> {
        self.begin(if program == "meantime" { "text" } else { program }, args)?;
        Ok(match (program, args[0].as_str()) {
            ("meantime", "fs") | ("db_bench", _) => String::new(),
            ("meantime", "run") if args.iter().any(|arg| arg == "printenv") => "A:B\n".to_owned(),
            ("meantime", "run") => {
                let name = args.iter().find_map(|arg| arg.strip_prefix("--benchmarks=")).unwrap();
                let name = name.rsplit(',').next().unwrap();
                format!("{name} : 20.000 micros/op {:.0} ops/sec 1.000 seconds", self.next())
            }
            _ => panic!("no such command: {program} {args:?}"),
        })
    }

    fn guest(&mut self, kernel: &str, at: usize) -> Result<Boot, RunError> {
        self.lines.push(format!("guest {kernel} {at}"));
        self.state = hash(&format!("{} {kernel}", self.seed));
        let plan = include_str!("../../../../scripts/guest/reproduce.plan");
        let rows = plan.lines().filter_map(|line| line.strip_prefix(kernel)?.strip_prefix(' '));
        let mut cells = Vec::new();
        for row in rows {
            let words: Vec<&str> = row.split(' ').collect();
            for way in &words[2..] {
                let mut report = self.bench(&["--completion".into(), (*way).to_owned()]);
                cells.push(json!({
                    "controller": words[0], "bytes": words[1].parse::<u64>().unwrap(), "way": way,
                    "interrupts": self.next(), "reads": 500, "job": report["jobs"][0].take(),
                }));
            }
        }
        Ok(Boot { cells, ..Boot::default() })
    }
}
