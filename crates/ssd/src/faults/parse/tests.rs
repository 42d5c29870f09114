use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use meantime_nvme_spec::status::StatusCode;
use proptest::prelude::*;

use super::super::rule::OpcodeSet;
use super::*;

fn rules(text: &str) -> Vec<FaultRule> {
    FaultPlan::parse(text).unwrap().rules.iter().copied().collect()
}

#[test]
fn a_plan_is_read() {
    let text = "
        seed = 7
        [[fault]]
        fault = \"status\"
        status = \"Unrecovered Read Error\"
        dnr = true
        opcode = [\"read\", \"compare\"]
        lba = [0x10, 31]
        nsid = 1
        ppm = 1_000
        [[fault]]
        fault = 'late-completion'
        by = '3ms'
        queue = 2
        every = 10
        from = 5
        times = 3
        after = '1s'
        until = '2s'
        [[fault]]
        fault = 'slow-admin'
        by = '1us'
        opcode = 'identify,get-log-page'";
    assert_eq!(FaultPlan::parse(text).unwrap().seed, 7);
    let first = FaultRule {
        fault: Fault::Status(Status::from_code(StatusCode::UnrecoveredReadError).with_dnr()),
        when: When {
            opcodes: Some(OpcodeSet::io(&[IoOpcode::Read, IoOpcode::Compare])),
            nsid: Some(1),
            lbas: Some((16, 31)),
            probability_ppm: 1_000,
            ..When::ALWAYS
        },
    };
    let second = FaultRule {
        fault: Fault::LateCompletion(3_000_000),
        when: When {
            queue: Some(2),
            every: 10,
            from: 5,
            times: Some(3),
            after_ns: 1_000_000_000,
            until_ns: Some(2_000_000_000),
            ..When::ALWAYS
        },
    };
    let opcodes = Some(OpcodeSet::admin(&[AdminOpcode::Identify, AdminOpcode::GetLogPage]));
    let third =
        FaultRule { fault: Fault::SlowAdmin(1_000), when: When { opcodes, ..When::ALWAYS } };
    assert_eq!(rules(text), [first, second, third]);
}

#[test]
fn an_empty_plan_injects_nothing() {
    assert!(FaultPlan::parse("").unwrap().is_none());
    assert!(FaultPlan::parse("seed = 3").unwrap().is_none());
    assert!(!FaultPlan::parse("[[fault]]\nfault = 'stuck-admin'").unwrap().is_none());
}

#[test]
fn errors_name_line_and_key_and_what_is_possible() {
    for (text, words) in [
        ("seed = ", &["line 1"][..]),
        ("seed = -1", &["line 1", "`seed`", "number"]),
        ("sead = 1", &["line 1", "`sead`", "[[fault]]"]),
        ("fault = 1", &["line 1", "`fault`", "[[fault]]"]),
        ("\n[[fault]]\nppm = 1", &["line 2", "`fault`", "missing", "lost-completion"]),
        ("[[fault]]\nfault = 'lost'", &["line 2", "`fault`", "lost-completion"]),
        ("[[fault]]\nfault = 'status'", &["`status`", "missing", "write-fault"]),
        (
            "[[fault]]\nfault = 'status'\nstatus = 'read error'",
            &["line 3", "`status`", "unrecovered-read-error"],
        ),
        (
            "[[fault]]\nfault = 'status'\nstatus = 'write-fault'\nsct = 1\nsc = 1",
            &["line 3", "not both"],
        ),
        ("[[fault]]\nfault = 'status'\nsct = 1", &["line 3", "`sct`", "sc belong"]),
        ("[[fault]]\nfault = 'status'\nsct = 0\nsc = 0", &["`status`", "success"]),
        ("[[fault]]\nfault = 'status'\nsct = 8\nsc = 0", &["line 3", "from 0 to 7"]),
        ("[[fault]]\nfault = 'stuck-admin'\nlba = 3", &["line 3", "`lba`", "it has opcode, ppm"]),
        (
            "[[fault]]\nfault = 'never-ready'\nopcode = 'read'",
            &["line 3", "`opcode`", "it has ppm"],
        ),
        (
            "[[fault]]\nfault = 'stray-cqe'\n\nopcod = 'read'",
            &["line 4", "`opcod`", "opcode, nsid"],
        ),
        (
            "[[fault]]\nfault = 'stray-cqe'\nopcode = 'reed'",
            &["line 3", "`opcode`", "write-zeroes"],
        ),
        ("[[fault]]\nfault = 'stray-cqe'\nopcode = []", &["line 3", "`opcode`", "write-zeroes"]),
        ("[[fault]]\nfault = 'stray-cqe'\nopcode = 'read,abort'", &["line 3", "two rules"]),
        (
            "[[fault]]\nfault = 'slow-admin'\nby = '1ms'\nopcode = 'read'",
            &["line 4", "admin commands"],
        ),
        ("[[fault]]\nfault = 'stray-cqe'\nqueue = 0\nopcode = 'read'", &["line 4", "queue 0"]),
        ("[[fault]]\nfault = 'stray-cqe'\nqueue = 1\nopcode = 'abort'", &["line 3", "queue 0"]),
        ("[[fault]]\nfault = 'stray-cqe'\nqueue = 0\nlba = 1", &["line 4", "no blocks"]),
        ("[[fault]]\nfault = 'torn-write'\nqueue = 0", &["line 2", "I/O commands"]),
        ("[[fault]]\nfault = 'late-completion'", &["`by`", "3ms"]),
        ("[[fault]]\nfault = 'late-completion'\nby = 3", &["line 3", "`by`", "3ms"]),
        ("[[fault]]\nfault = 'stray-cqe'\nlba = '9-7'", &["line 3", "`lba`", "0-7"]),
        ("[[fault]]\nfault = 'stray-cqe'\nlba = [1, 2, 3]", &["line 3", "`lba`", "not a list"]),
        ("[[fault]]\nfault = 'stray-cqe'\nppm = 1_000_001", &["line 3", "`ppm`", "1000000"]),
        ("[[fault]]\nfault = 'stray-cqe'\nppm = 0.5", &["line 3", "`ppm`"]),
        ("[[fault]]\nfault = 'stray-cqe'\nevery = 0", &["line 3", "`every`", "from 1"]),
        ("[[fault]]\nfault = 'stray-cqe'\nafter = '2s'\nuntil = '1s'", &["line 4", "`until`"]),
        ("[[fault]]\nfault = 'corrupt-read'\nbits = 0", &["line 3", "`bits`"]),
        ("[[fault]]\nfault = ['stray-cqe', 'status']", &["line 2", "not a list"]),
    ] {
        let error = FaultPlan::parse(text).unwrap_err().to_string();
        assert!(error.contains("fault plan"), "{error}");
        for word in words {
            assert!(error.contains(word), "{text:?} lacks {word:?}: {error}");
        }
    }
    let many = "[[fault]]\nfault = 'stray-cqe'\n".repeat(33);
    assert!(FaultPlan::parse(&many).unwrap_err().to_string().contains("line 65: there are 32"));
}

#[test]
fn lines_are_read_as_plans_are() {
    let line = "status status=write-fault dnr=true crd=2 opcode=write,write-zeroes lba=0-7 times=1";
    let plan = "[[fault]]\nfault='status'\nstatus='Write Fault'\ndnr=true\ncrd=2\nopcode=['write','Write Zeroes']\nlba=[0,7]\ntimes=1";
    let rule = FaultRule::parse_line(line).unwrap();
    assert_eq!(rules(plan), [rule]);
    assert_eq!(rule.to_string(), line);
    for (line, word) in [
        ("", "begins with the name"),
        ("stray-cqe once", "no key=value"),
        ("stray-cqe ppm=1 ppm=2", "twice"),
        ("stray-cqe fault=2", "twice"),
        ("stray-cqe ppm=", "`ppm`"),
    ] {
        assert!(FaultRule::parse_line(line).unwrap_err().to_string().contains(word), "{line}");
    }
}

#[test]
fn a_file_that_is_none_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan.toml");
    let error = FaultPlan::read(&path).unwrap_err().to_string();
    assert!(error.contains("plan.toml") && error.contains("reading the fault plan"), "{error}");
    std::fs::write(&path, "[[fault]]\nfault = 3").unwrap();
    let error = FaultPlan::read(&path).unwrap_err().to_string();
    assert!(error.contains("plan.toml") && error.contains("line 2"), "{error}");
    std::fs::write(&path, "\n".repeat(1 << 20)).unwrap();
    assert!(FaultPlan::read(&path).unwrap_err().to_string().contains("a few lines"));
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (1u16..0x800, any::<bool>(), 0u8..4).prop_filter_map("success", |(bits, dnr, crd)| {
            let status = Status::from_bits(bits & 0x7ff).with_crd(crd).with_dnr_bit(dnr);
            (!status.is_success()).then_some(Fault::Status(status))
        }),
        Just(Fault::LostCompletion),
        (0..3_600_000_000_000u64).prop_map(Fault::LateCompletion),
        Just(Fault::DuplicateCqe),
        Just(Fault::StrayCqe),
        Just(Fault::WrongPhase),
        Just(Fault::LostInterrupt),
        Just(Fault::IgnoredFlush),
        any::<u16>().prop_map(Fault::WrongSqhd),
        (1..4097u32).prop_map(Fault::CorruptRead),
        (1..4097u32).prop_map(Fault::CorruptWrite),
        Just(Fault::TornWrite),
        Just(Fault::Unfused),
        Just(Fault::FatalStatus),
        Just(Fault::SurpriseRemoval),
    ]
}

fn any_when() -> impl Strategy<Value = When> {
    let opcodes = proptest::sample::subsequence(IoOpcode::ALL.to_vec(), 1..5);
    let opcodes = proptest::option::of(opcodes.prop_map(|list| OpcodeSet::io(&list)));
    let lbas = proptest::option::of(
        (0..1000u64, 0..1000u64).prop_map(|(first, len)| (first, first + len)),
    );
    let counts = (0..=1_000_000u32, 1..1000u64, 1..1000u64, proptest::option::of(0..1000u64));
    let times = (0..1_000_000u64, proptest::option::of(1..1_000_000u64));
    (opcodes, proptest::option::of(1..9u32), lbas, proptest::option::of(1..9u16), counts, times)
        .prop_map(
            |(
                opcodes,
                nsid,
                lbas,
                queue,
                (probability_ppm, every, from, times),
                (after_ns, more),
            )| When {
                opcodes,
                nsid,
                lbas,
                queue,
                probability_ppm,
                every,
                from,
                times,
                after_ns,
                until_ns: more.map(|more| after_ns + more),
            },
        )
}

proptest! {
    #[test]
    fn what_a_rule_shows_is_read_as_the_same_rule(fault in any_fault(), when in any_when()) {
        let rule = FaultRule { fault, when };
        prop_assert_eq!(FaultRule::parse_line(&rule.to_string()).unwrap(), rule);
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,80}") {
        let _ = FaultPlan::parse(&text);
        let _ = FaultRule::parse_line(&text);
    }

    #[test]
    fn likely_texts_do_not_panic(key in "fault|status|lba|by|opcode|seed", value in "[-0-9a-z_'\\[\\]., xms]{0,12}") {
        let _ = FaultPlan::parse(&format!("[[fault]]\nfault = 'status'\n{key} = {value}"));
        let _ = FaultRule::parse_line(&format!("late-completion {key}={value}"));
    }
}
