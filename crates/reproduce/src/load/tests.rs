//! Files that are refused: the message names the file and the key.

use super::*;

/// A whole file.
const RIGHT: &str = r#"
title = "A title"
place = "Figure 1"
question = "A question?"
there = "There."
here = """Here, on
  two lines."""

lists.size = { "512 B" = "512", "4 KiB" = "4096" }
lists.way = ["interrupt", "poll"]
steps."{size}" = "bench --device {ssd:fast12} --completion interrupt,poll --bs {size}"
derived."{size}/saved_percent".saved = ["{size}/poll/mean_ns", "{size}/interrupt/mean_ns"]
plot.bars."{size.title}" = [{ name = "{way}", here = "{size}/{way}/mean_ns", there = "figure2/tu" }]

[[claims]]
text = "A claim"
here = { ratio = ["512/poll/mean_ns", "512/interrupt/mean_ns"], at_most = "there" }
there.ratio = ["figure1/poll/4096", "figure1/interrupt/4096"]
"#;

fn refusal(text: &str) -> String {
    read("fast12-new", text).unwrap_err()
}

#[test]
fn lists_repeat_steps_and_marks() {
    let experiments = read("fast12-new", RIGHT).unwrap();
    let [one] = experiments.as_slice() else { panic!("{experiments:?}") };
    assert_eq!((one.id.as_str(), one.here.as_str()), ("fast12-new", "Here, on two lines."));
    let steps: Vec<_> = one.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(steps, ["512", "4096"]);
    assert!(one.steps[1].run[0].ends_with("--bs 4096"), "{:?}", one.steps);
    assert_eq!(one.derived[1].0, "4096/saved_percent");
    let series: Vec<_> = one.plot.series().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(series, ["512 B", "4 KiB"]);
    let here = one.plot.marks().last().unwrap().here.as_ref().unwrap();
    assert_eq!(here.operands, ["4096/poll/mean_ns"]);
}

#[test]
fn a_file_of_several_experiments_has_a_name_for_each() {
    let text = format!("for.of = {{ One = \"a\", Two = \"b\" }}\n{RIGHT}");
    let text = text.replace("A title", "{of.title}");
    let named = read("fast12-new", &text).unwrap().into_iter().map(|one| (one.id, one.title));
    let named: Vec<_> = named.collect();
    let expected = [("fast12-new-a", "One"), ("fast12-new-b", "Two")];
    assert_eq!(named, expected.map(|(id, title)| (id.to_owned(), title.to_owned())));
}

#[test]
fn a_wrong_file_is_refused_with_its_name_and_the_key() {
    for (right, wrong, said) in [
        ("question = ", "quesstion = ", "quesstion"),
        ("question = \"A question?\"\n", "", "question"),
        ("title = \"A title\"", "title = 1", "title"),
        ("A title", "{way}", "names a list"),
        ("{ssd:fast12}", "{ssd:fast13}", "fast13"),
        ("{ssd:fast12}", "mem:64M?model=fast13&vwc=0", "{ssd:fast13}"),
        ("{ssd:fast12}", "{file:fast12.toml}", "{file:fast12.toml}"),
        ("{ssd:fast12}", "{sdd:fast12}", "{sdd:fast12}"),
        ("\"bench --device", "\"bunch --device", "steps.\"512\""),
        ("at_most = ", "at_moost = ", "at_moost"),
        ("here = { ratio", "here = { rato", "rato"),
        ("[\"512/poll/mean_ns\", \"512/interrupt/mean_ns\"]", "[\"512/poll/mean_ns\"]", "Ratio"),
        ("\"512/poll/mean_ns\"", "\"1024/poll/mean_ns\"", "claim \"A claim\""),
        ("here = \"{size}/", "here = \"{size}k/", "mark \"interrupt\""),
        ("{size}/poll/mean_ns", "{size}k/poll/mean_ns", "derived.\"512/saved_percent\""),
        ("figure2/tu", "figure2/tv", "figure2/tv"),
        ("lists.way = [", "lists.way = 1 # ", "lists.way"),
    ] {
        assert!(RIGHT.contains(right), "{right}");
        let refusal = refusal(&RIGHT.replacen(right, wrong, 1));
        assert!(refusal.starts_with("experiments/fast12-new.toml: "), "{refusal}");
        assert!(refusal.contains(said), "{said}: {refusal}");
    }
    assert!(read("fast13-new", RIGHT).unwrap_err().contains("fast13"));
}

#[test]
fn every_file_is_an_experiment() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut there: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    there.sort();
    let mut listed: Vec<_> = FILES.iter().map(|(name, _)| format!("{name}.toml")).collect();
    listed.push("common.toml".to_owned());
    listed.sort();
    assert_eq!(there, listed);
    assert_eq!(experiments().len(), 76);
}
