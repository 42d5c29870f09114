use super::*;

#[test]
fn every_command_has_a_page_with_its_sections() {
    let pages = pages();
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["meantime", "meantime-bench", "meantime-fs-ls", "meantime-ssd-ctl"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for hidden in ["meantime-competitor", "meantime-man", "meantime-complete", "meantime-help"] {
        assert!(!names.contains(&hidden), "{hidden}");
    }
    for (name, page) in &pages {
        let mut from = 0;
        for title in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            let heading = format!("\n.SH \"{title}\"\n");
            let at = page[from..].find(&heading);
            from += at.unwrap_or_else(|| panic!("{name} has no {title} where it belongs"));
        }
        assert!(page.is_ascii(), "{name}");
    }
}

/// A text for a command that is not there would be on no page.
#[test]
fn what_is_added_belongs_to_a_command() {
    let names: Vec<String> = pages().into_iter().map(|(name, _)| name).collect();
    for line in EXTRA.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(names.iter().any(|name| name == line), "{line}");
    }
}

#[test]
fn an_option_has_its_value_default_and_kinds() {
    let pages = pages();
    let page = |name: &str| &pages.iter().find(|(own, _)| own == name).unwrap().1;
    assert!(page("meantime-fs-ls").contains("\\fB\\-l\\fP, \\fB\\-\\-long\\fP\n"));
    assert!(page("meantime-run").contains("\\fI"));
    assert!(page("meantime-ssd").contains("[default: refused]"));
    assert!(page("meantime-bench").contains(".SH \"JOB OPTIONS\"\n"));
}
