//! How users name partitions.

use meantime_partitions::{Selector, Size};
use meantime_testkit::disk::{Entry, write_gpt};

use crate::image::Image;

#[test]
fn a_selector_is_written_as_it_is_read() {
    let cases = [
        ("2", Selector::Number(2), "2"),
        ("007", Selector::Number(7), "7"),
        ("4294967295", Selector::Number(u32::MAX), "4294967295"),
        ("label:root", Selector::Label("root".into()), "label:root"),
        ("label:2", Selector::Label("2".into()), "label:2"),
        ("label:a b&c=/%", Selector::Label("a b&c=/%".into()), "label:a%20b%26c%3D%2F%25"),
        ("label:%62%C3%B6t", Selector::Label("böt".into()), "label:b%C3%B6t"),
        ("label:a-b._~", Selector::Label("a-b._~".into()), "label:a-b._~"),
        ("label:uuid:1", Selector::Label("uuid:1".into()), "label:uuid%3A1"),
        ("uuid:1234abcd-01", Selector::Uuid("1234abcd-01".into()), "uuid:1234abcd-01"),
    ];
    for (text, selector, written) in cases {
        assert_eq!(text.parse(), Ok(selector.clone()));
        assert_eq!(selector.to_string(), written);
        assert_eq!(written.parse(), Ok(selector));
    }
}

#[test]
fn another_text_is_an_error_that_says_the_three_forms() {
    let texts = [
        "",
        "0",
        "-1",
        "+1",
        "1 ",
        "4294967296",
        "root",
        "label:",
        "uuid:",
        "LABEL:x",
        "label:%FF",
        "label",
        "0x1",
    ];
    for text in texts {
        let error = text.parse::<Selector>().unwrap_err();
        assert_eq!(error.text, text);
        let said = error.to_string();
        for form in ["number (2)", "label:NAME", "uuid:UUID"] {
            assert!(said.contains(form), "{said}");
        }
    }
}

#[test]
fn an_error_lists_what_there_is() {
    let mut disk = vec![0; 4 << 20];
    let entry = |first: u64| Entry { kind: 1, first, last: first + 9 };
    let unused = Entry { kind: 0, first: 0, last: 0 };
    let mut entries = vec![unused; 128];
    // Labels are p0 to p9, by the last digit.
    [1, 2, 11].into_iter().for_each(|n| entries[n] = entry(2048 + 10 * n as u64));
    write_gpt(&mut disk, 512, &entries);
    let image = Image::of(&disk, 512);
    let table = image.table();
    let select = |text: &str| table.select(&text.parse().unwrap(), image.size());
    assert_eq!(
        select("1").unwrap_err(),
        "The disk has no partition 1. It has 2 (label \"p1\"), 3 (label \"p2\") and 12 (label \
         \"p1\")."
    );
    assert_eq!(
        select("label:p1").unwrap_err(),
        "Several partitions are label:p1: 2 (label \"p1\") and 12 (label \"p1\"). Name one by its \
         number."
    );
    assert_eq!(select("label:p2").unwrap().number, 3);
    let uuid = &table.partitions[1].uuid;
    assert_eq!(select(&format!("uuid:{}", uuid.to_lowercase())).unwrap().number, 3);
    assert!(select("uuid:x").unwrap_err().starts_with("The disk has no partition uuid:x."));

    // A list has an end.
    (0..128).for_each(|n| entries[n] = entry(2048 + 10 * n as u64));
    write_gpt(&mut disk, 512, &entries);
    let table = Image::of(&disk, 512).table();
    let why = table.select(&Selector::Number(129), image.size()).unwrap_err();
    assert!(why.ends_with("16 (label \"p5\") and 112 more."), "{why}");
}

#[test]
fn a_size_of_zero_blocks_or_bytes_is_no_disk() {
    let mut read = |_: &mut [u8], _: u64| -> Result<(), ()> { panic!("a read") };
    for (block_bytes, blocks) in [(0, 0), (0, 9), (512, 0), (1, u64::MAX)] {
        let size = Size { block_bytes, blocks };
        assert_eq!(meantime_partitions::Table::read(&mut read, size), Ok(None));
    }
}
