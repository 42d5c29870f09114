//! The page in headless Chromium: it fits, it can be read, it loads nothing.
//!
//! The page itself stays as it is. It is put into frames of a test page, which looks into them and
//! writes what it saw into its own document, which `--dump-dom` prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::succeed;
use serde_json::{Value, json};

/// What the test page does with each frame.
const MEASURE: &str = r#"
function luminance(color) {
  const part = color.match(/[\d.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
}
function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function behind(win, element) {
  for (let at = element; at; at = at.parentElement) {
    const color = win.getComputedStyle(at).backgroundColor;
    if (color !== 'rgba(0, 0, 0, 0)' && color !== 'transparent') return color;
  }
  return 'rgb(255, 255, 255)';
}
function look(frame) {
  const win = frame.contentWindow, doc = frame.contentDocument, root = doc.documentElement;
  const faint = new Set(), out = [], overlaps = [], small = [];
  let texts = 0, least = 99;
  const walker = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('title, .unseen, style')) continue;
    const style = win.getComputedStyle(element);
    const ink = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const ratio = contrast(ink, behind(win, element));
    texts += 1;
    least = Math.min(least, ratio);
    if (ratio < 4.5) faint.add(element.tagName + '.' + element.getAttribute('class') + ' ' + ratio.toFixed(2));
  }
  const strokes = new Set();
  for (const curve of doc.querySelectorAll('.curve')) {
    const style = win.getComputedStyle(curve);
    const ratio = contrast(style.stroke, behind(win, curve));
    if (ratio < 3) strokes.add(curve.getAttribute('class') + ' ' + ratio.toFixed(2));
  }
  for (const svg of doc.querySelectorAll('svg')) {
    const box = svg.getBoundingClientRect();
    if (box.width < 10 || box.height < 5) small.push(svg.getAttribute('class'));
    if (box.right > root.clientWidth + 1 && !svg.closest('.scroll')) out.push('svg beyond the page');
    const labels = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    for (const [words, at] of labels) {
      if (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1)
        out.push(words);
    }
    labels.forEach(([one, a], index) => labels.slice(index + 1).forEach(([two, b]) => {
      // Boxes are higher than letters are.
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
        overlaps.push(one + ' / ' + two);
    }));
  }
  const fonts = [...doc.querySelectorAll('.plot text')].map(text => text.getBoundingClientRect().height);
  return {
    width: win.innerWidth, dark: win.matchMedia('(prefers-color-scheme: dark)').matches,
    overflow: root.scrollWidth - root.clientWidth, texts, least, faint: [...faint], strokes: [...strokes], out, overlaps, small,
    plots: doc.querySelectorAll('svg.plot').length, lowest: Math.min(...fonts),
    requests: win.performance.getEntriesByType('resource').map(entry => entry.name),
    title: doc.title,
  };
}
onload = () => {
  const seen = [...document.querySelectorAll('iframe')].map(look);
  document.getElementById('seen').textContent = JSON.stringify(seen);
};
"#;

/// The browser, by any of its names.
fn chromium() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no Chromium in PATH: run `make setup-test` (or install the package chromium)")
    })
}

/// What the browser saw of each frame, and what its console said.
struct Seen {
    frames: Vec<Value>,
    console: Vec<String>,
}

/// What the browser saw of pages in frames of these widths.
fn look(dir: &Path, pages: &[(&str, u32)], dark: bool) -> Seen {
    let frame = |(page, width): &(&str, u32)| {
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{page}\"></iframe>"
        )
    };
    let frames: String = pages.iter().map(frame).collect();
    let test_page = format!(
        "<!doctype html><meta charset=utf-8><pre id=seen></pre>{frames}<script>{MEASURE}</script>"
    );
    let path = dir.join(format!("test-{dark}.html"));
    std::fs::write(&path, test_page).unwrap();
    let mut command = Command::new(chromium());
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
    ]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]);
    command.args(["--enable-logging=stderr", "--window-size=1400,1000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", dir.join(format!("profile-{dark}")).display()));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let ran = command.arg(format!("file://{}", path.display())).output().unwrap();
    let (dom, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "Chromium failed: {log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let begin = dom.find("<pre id=\"seen\">").expect("the test page") + "<pre id=\"seen\">".len();
    let end = begin + dom[begin..].find("</pre>").unwrap();
    let seen = dom[begin..end].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let frames =
        serde_json::from_str(&seen).unwrap_or_else(|error| panic!("{error}: {seen:?} {log}"));
    Seen { frames, console }
}

fn check(seen: &Value, dark: bool, plots: u64) {
    let nothing = json!([]);
    assert_eq!(seen["dark"], dark, "{seen}");
    assert_eq!(seen["overflow"], 0, "the page scrolls sideways at {}", seen["width"]);
    for what in ["out", "overlaps", "small", "faint", "strokes", "requests"] {
        assert_eq!(seen[what], nothing, "{what} at {} px, dark: {dark}", seen["width"]);
    }
    assert!(seen["texts"].as_u64().unwrap() > 100, "{seen}");
    assert_eq!(seen["plots"], plots, "{seen}");
    // 11 px, but for what scaling rounds.
    assert!(seen["lowest"].as_f64().unwrap() >= 10.9, "letters in plots are too small: {seen}");
}

/// A result of a bench with what may be in it besides.
fn rich(dir: &Path) -> Value {
    let job = [
        "--rw",
        "randread",
        "--runtime",
        "150ms",
        "--completion",
        "poll,interrupt,hybrid",
        "--name",
        "rr4k",
    ];
    let device =
        ["bench", "--device", "mem:1M?model=fast12,mem:1M?model=optane", "--json", "a.json"];
    succeed(dir, &[&device[..], &job[..]].concat());
    let mut report = crate::common::json(&dir.join("a.json"));
    report["meantime"]["left_out"] =
        json!([{"device": "kernel:/dev/nvme0n1", "completion": "poll", "why": "no polled queues"}]);
    for (at, job) in report["jobs"].as_array_mut().unwrap().iter_mut().enumerate() {
        let mean_ns = job["read"]["lat_ns"]["mean"].as_f64().unwrap();
        let moment = |ms: u32| json!({"at_ms": ms, "ios": 9, "mean_ns": mean_ns, "p99_ns": (mean_ns * 3.0) as u64, "max_ns": (mean_ns * 9.0) as u64});
        job["series"] = (0..20).map(|step| moment(step * 100)).collect();
        job["competitor_percent"] = json!(10 * at);
        job["floor_ns"] = json!(700);
        job["floor_ratio"] = json!(1.5);
        job["errors"] = json!(at);
    }
    report
}

#[test]
fn the_page_fits_and_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut report = rich(dir);
    std::fs::write(dir.join("a.json"), report.to_string()).unwrap();
    // Long names, other machines, another kind of device.
    report["meantime"]["cpu"] = json!("Another CPU with a rather long name @ 3.00GHz");
    report["meantime"]["a_fact_of_later"] = json!("x".repeat(300));
    for job in report["jobs"].as_array_mut().unwrap() {
        job["job options"]["device"] =
            json!(format!("kernel:/dev/disk/by-id/{}", "nvme-long".repeat(12)));
    }
    std::fs::write(dir.join("b.json"), report.to_string()).unwrap();
    succeed(dir, &["report", "a.json", "--html", "one.html"]);
    succeed(dir, &["report", "a.json", "b.json", "--html", "two.html"]);
    // Sixty ways, all at the same place.
    let jobs = report["jobs"].as_array_mut().unwrap();
    *jobs = (0..60).map(|at| jobs[at % 3].clone()).collect();
    for (at, job) in jobs.iter_mut().enumerate() {
        job["job options"]["completion"] = json!(format!("hybrid={at}us"));
    }
    std::fs::write(dir.join("c.json"), report.to_string()).unwrap();
    succeed(dir, &["report", "c.json", "--html", "many.html"]);
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let pages = [("one.html", 8), ("two.html", 12), ("many.html", 32)]
        .map(|(name, plots)| (page(name), plots));
    std::thread::scope(|scope| {
        for dark in [false, true] {
            let pages = &pages;
            scope.spawn(move || {
                let widths = [390, 800, 1280];
                let frames: Vec<(&str, u32)> = pages
                    .iter()
                    .flat_map(|(page, _)| widths.map(|width| (page.as_str(), width)))
                    .collect();
                let seen = look(dir, &frames, dark);
                assert!(seen.console.is_empty(), "the console says: {:?}", seen.console);
                assert_eq!(seen.frames.len(), frames.len());
                for (at, frame) in seen.frames.iter().enumerate() {
                    check(frame, dark, pages[at / widths.len()].1);
                }
            });
        }
    });
}

#[test]
fn the_page_of_waits_fits_and_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    succeed(dir, &["waits", "--simulate", "--times", "4.1,100", "--html", "waits.html"]);
    let page = std::fs::read_to_string(dir.join("waits.html")).unwrap();
    // What is folded is laid out, too.
    let unfolded = page.replace("<details>", "<details open=\"\">");
    for dark in [false, true] {
        let frames =
            [(unfolded.as_str(), 390), (unfolded.as_str(), 800), (unfolded.as_str(), 1280)];
        let seen = look(dir, &frames, dark);
        assert!(seen.console.is_empty(), "the console says: {:?}", seen.console);
        for frame in &seen.frames {
            check(frame, dark, 14);
        }
    }
}

#[test]
fn what_is_wrong_with_a_page_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let page = "<!doctype html><body style='background:#fff'><div \
                style='width:2000px;color:#bbb'>faint</div>\
                <svg class='plot' viewBox='0 0 100 100' width='100' height='100' \
                style='overflow:visible'>\
                <text x='5' y='50'>one</text><text x='10' y='50'>two</text><text x='90' \
                y='20'>beyond</text>\
                <polyline class='curve' style='stroke:#ddd' points='1,1 9,9'/></svg>\
                <svg width='3' height='3'></svg><img src='http://127.0.0.1:9/x.png'>\
                <script>console.error('said')</script>";
    let seen = look(dir.path(), &[(page, 390)], false);
    assert_eq!(seen.console.len(), 1, "{:?}", seen.console);
    let seen = &seen.frames[0];
    assert!(seen["overflow"].as_i64().unwrap() > 1000, "{seen}");
    for (what, how_many) in
        [("out", 1), ("overlaps", 1), ("small", 1), ("faint", 1), ("strokes", 1), ("requests", 1)]
    {
        assert_eq!(seen[what].as_array().map(Vec::len), Some(how_many), "{what}: {seen}");
    }
}

#[test]
fn the_page_forbids_itself_to_load_anything() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = [
        "bench",
        "--device",
        "mem:1M",
        "--rw",
        "randread",
        "--runtime",
        "50ms",
        "--completion",
        "poll",
        "--html",
        "a.html",
    ];
    succeed(dir, &args);
    // What a page of ours would do if somebody smuggled this into it: nothing.
    let page = std::fs::read_to_string(dir.join("a.html")).unwrap();
    let smuggled = "<img src='file:///etc/hostname'><script>document.title = 'run'</script></main>";
    std::fs::write(dir.join("b.html"), page.replace("</main>", smuggled)).unwrap();
    let mut command = Command::new(chromium());
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--dump-dom",
    ]);
    command.args([
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]);
    command.arg(format!("--user-data-dir={}", dir.join("profile").display()));
    let ran = command.arg(format!("file://{}", dir.join("b.html").display())).output().unwrap();
    let (dom, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(dom.contains("<title>I/O latency: mem:1M</title>"), "the script ran");
    assert!(log.matches("Content Security Policy").count() >= 2, "{log}");
}
