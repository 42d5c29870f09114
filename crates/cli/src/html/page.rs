//! The page: findings first, then a section a job, then what the figures rest on.

use super::markup::{Attr, Markup};
use super::model::{Report, Source, device_name};
use super::{differences, figures, headline, tables};

/// Nothing may be loaded from anywhere: the page is one file, and says so to the browser.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What every page has at its top: nothing of it is loaded from anywhere.
pub(crate) fn head(out: &mut Markup, title: &str, styles: &[&'static str]) {
    out.with("head", &[], |out| {
        out.empty("meta", &[("charset", &"utf-8")]);
        out.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
        out.empty(
            "meta",
            &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")],
        );
        out.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
        let generator = concat!("meantime ", env!("MEANTIME_VERSION"));
        out.empty("meta", &[("name", &"generator"), ("content", &generator)]);
        out.element("title", &[], title);
        for style in styles {
            out.style(style);
        }
    });
}

/// The page as one file.
pub(crate) fn page(report: &Report) -> String {
    let mut out = Markup::default();
    let title = title(report);
    out.with("html", &[("lang", &"en")], |out| {
        out.newline();
        head(out, &title, &[include_str!("style.css")]);
        out.newline();
        out.with("body", &[], |out| {
            out.with("main", &[], |out| {
                header(out, report, &title);
                warnings(out, report);
                findings(out, report);
                for job in &report.jobs {
                    out.with("section", &[("class", &"job")], |out| {
                        out.with("h2", &[], |out| {
                            out.text(&job.name);
                            let what =
                                format!("{}, {}", job.workload.words(), job.workload.setting());
                            out.element("span", &[("class", &"aside")], &what);
                        });
                        tables::table(out, report, job);
                        figures::figures(out, report, job);
                    });
                    out.newline();
                }
                left_out(out, report);
                machine(out, report);
                method(out, report);
                commands(out, report);
            });
        });
    });
    out.into_page()
}

fn title(report: &Report) -> String {
    let mut devices: Vec<String> = Vec::new();
    for block in report.jobs.iter().flat_map(|job| &job.blocks) {
        let name = device_name(&block.device);
        if !devices.contains(&name) {
            devices.push(name);
        }
    }
    let more = devices.len().saturating_sub(3);
    devices.truncate(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("I/O latency: {}{more}", devices.join(", "))
}

fn header(out: &mut Markup, report: &Report, title: &str) {
    out.with("header", &[], |out| {
        out.element("h1", &[], title);
        for source in &report.sources {
            let mut parts = Vec::new();
            if report.sources.len() > 1 {
                parts.push(source.label.clone());
            }
            parts.extend(
                source
                    .time
                    .as_ref()
                    .map(|time| if source.is_fio() { time.clone() } else { format!("{time} UTC") }),
            );
            let cpus = source.fact("cpus").map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
            parts.extend(source.fact("cpu").map(|cpu| format!("{cpu}{cpus}")));
            parts.extend(source.fact("kernel").map(|kernel| format!("Linux {kernel}")));
            if source.fact("virtual_machine") == Some("yes") {
                parts.push("virtual machine".to_owned());
            }
            parts.push(tool(source));
            out.element("p", &[("class", &"source")], &parts.join(" · "));
        }
    });
    out.newline();
}

fn tool(source: &Source) -> String {
    let revision =
        source.fact("revision").map_or(String::new(), |revision| format!(" ({revision})"));
    format!("{}{revision}", source.tool.replacen('-', " ", 1))
}

fn warnings(out: &mut Markup, report: &Report) {
    let warnings = differences::warnings(report);
    if warnings.is_empty() {
        return;
    }
    out.with("section", &[("class", &"warnings"), ("role", &"note")], |out| {
        out.element("h2", &[], "Before you compare");
        out.with("ul", &[], |out| {
            for warning in &warnings {
                out.with("li", &[], |out| {
                    out.element("b", &[], &warning.what);
                    out.text(" ");
                    out.text(&warning.so);
                });
            }
        });
    });
    out.newline();
}

fn findings(out: &mut Markup, report: &Report) {
    out.with("section", &[("class", &"findings")], |out| {
        out.element("h2", &[], "What was found");
        out.with("ul", &[], |out| {
            for finding in headline::findings(report) {
                out.with("li", &[], |out| {
                    out.element("b", &[], &format!("{}:", finding.about));
                    out.text(" ");
                    out.text(&finding.found);
                });
            }
        });
        out.element(
            "p",
            &[("class", &"notes")],
            "Latencies are means; CPU is what the waiting threads used.",
        );
    });
    out.newline();
}

fn left_out(out: &mut Markup, report: &Report) {
    if report.left_out.is_empty() {
        return;
    }
    out.with("section", &[], |out| {
        out.element("h2", &[], "What could not be measured");
        out.with("ul", &[], |out| {
            for one in &report.left_out {
                out.with("li", &[], |out| {
                    let source = if report.sources.len() > 1 {
                        format!(" ({})", report.sources[one.source].label)
                    } else {
                        String::new()
                    };
                    out.element("b", &[], &format!("{}, {}{source}:", one.device, one.way));
                    out.text(&format!(" {}", one.why));
                });
            }
        });
    });
    out.newline();
}

/// Names of facts in words; others are shown as they are.
const FACTS: [(&str, &str); 15] = [
    ("cpu", "CPU"),
    ("cpus", "CPUs usable"),
    ("virtual_machine", "virtual machine"),
    ("kernel", "Linux"),
    ("governor", "frequency governor"),
    ("isolcpus", "CPUs kept from the scheduler"),
    ("dma_pages", "pages of DMA memory"),
    ("cacheline_rtt_ns", "cache line there and back, ns (median)"),
    ("turns_repeated", "turns repeated because the CPUs moved"),
    ("turns_disturbed", "turns counted although the CPUs moved"),
    ("interrupted", "ended early"),
    ("version", "meantime"),
    ("revision", "revision"),
    ("command", ""),
    ("left_out", ""),
];

fn machine(out: &mut Markup, report: &Report) {
    out.with("section", &[], |out| {
        let several = report.sources.len() > 1;
        out.element("h2", &[], if several { "The machines and revisions" } else { "The machine" });
        let mut names: Vec<&str> = FACTS.iter().map(|(name, _)| *name).collect();
        for (name, _) in report.sources.iter().flat_map(|source| &source.facts) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let words = |name: &str| {
            FACTS.iter().find(|(known, _)| *known == name).map(|(_, words)| (*words).to_owned())
        };
        out.with(
            "div",
            &[
                ("class", &"scroll"),
                ("tabindex", &"0"),
                ("role", &"region"),
                ("aria-label", &"facts of the machine"),
            ],
            |out| {
                out.with("table", &[("class", &"facts")], |out| {
                    if several {
                        out.with("tr", &[], |out| {
                            out.element("th", &[], "");
                            for source in &report.sources {
                                out.element("th", &[("scope", &"col")], &source.label);
                            }
                        });
                    }
                    let mut row = |name: &str, of: &dyn Fn(&Source) -> Option<String>| {
                        let values: Vec<Option<String>> = report.sources.iter().map(of).collect();
                        if values.iter().all(Option::is_none) {
                            return;
                        }
                        let differs =
                            values.iter().any(|value| value.is_some() && *value != values[0]);
                        let class: &dyn std::fmt::Display = if differs { &"differs" } else { &"" };
                        let attrs: [Attr<'_>; 1] = [("class", class)];
                        out.with("tr", if differs { &attrs } else { &[] }, |out| {
                            out.element("th", &[("scope", &"row")], name);
                            for value in &values {
                                let text = value.as_deref().unwrap_or("not told");
                                out.element("td", &[], if text.is_empty() { "none" } else { text });
                            }
                        });
                    };
                    row("measured by", &|source| Some(source.tool.replacen('-', " ", 1)));
                    row("ended", &|source| source.time.clone());
                    for name in names {
                        let name_in_words = words(name).unwrap_or_else(|| name.replace('_', " "));
                        if !name_in_words.is_empty() && name != "version" {
                            row(&name_in_words, &|source| source.fact(name).map(str::to_owned));
                        }
                    }
                });
            },
        );
    });
    out.newline();
}

fn method(out: &mut Markup, report: &Report) {
    out.with("section", &[], |out| {
        out.element("h2", &[], "How it was measured");
        out.with("ul", &[], |out| {
            let mut say = |what: &str, text: &str| {
                out.with("li", &[], |out| {
                    out.element("b", &[], what);
                    out.text(text);
                });
            };
            if report.sources.iter().any(|source| !source.is_fio()) {
                say(
                    "Turns. ",
                    "Within a job, devices and ways to wait have short turns one after the other (A B C A B C …), so that \
                     whatever drifts on the machine hits all of them alike.",
                );
            }
            if report.sources.len() > 1 {
                say(
                    "Files. ",
                    "Results of different files are of different runs, which did not take turns: a difference of a few percent \
                     between files may be the machine's drift. Repeat both before believing it.",
                );
            }
            say(
                "Latency ",
                "is from the call that submits an I/O until the caller has seen its completion. The slowest 1 in 6,000 \
                 is the latency that the slowest one in 6,000 I/Os reached: rare enough to hide from p99.9, frequent enough \
                 to be met many times a second.",
            );
            say(
                "CPU ",
                "is user and system time of the waiting threads over wall time; 100 % is one core, wholly busy. A software \
                 SSD's own thread is not in it: it stands for the device. Sleeping is not fully charged: the kernel's work \
                 to put a thread to sleep and wake it is in part on nobody's account, so what another program on \
                 the same core could do with the rest is less than 100 % minus this.",
            );
            if report.sources.iter().any(Source::is_fio) {
                say(
                    "fio ",
                    "measures with its own clock and loop. Its results went through the kernel's stack, \
                     and it tells nothing of the machine.",
                );
            }
        });
    });
    out.newline();
}

fn commands(out: &mut Markup, report: &Report) {
    let known: Vec<&Source> =
        report.sources.iter().filter(|source| source.command.is_some()).collect();
    let files: Vec<&str> =
        report.sources.iter().filter_map(|source| source.path.as_deref()).collect();
    if known.is_empty() && files.is_empty() {
        return;
    }
    out.with("section", &[], |out| {
        out.element("h2", &[], "How to make it again");
        for source in known {
            let label = if report.sources.len() > 1 {
                format!("# {}\n", source.label)
            } else {
                String::new()
            };
            let text = format!("{label}{}", source.command.as_deref().unwrap_or(""));
            out.with("pre", &[("tabindex", &"0")], |out| out.element("code", &[], &text));
        }
        if !files.is_empty() {
            let words: Vec<String> =
                files.iter().map(|path| super::read::shell_word(path)).collect();
            let text = format!("meantime report {}", words.join(" "));
            out.with("pre", &[("tabindex", &"0")], |out| out.element("code", &[], &text));
        }
    });
    out.newline();
}
