//! Fused Compare and Write (1.4 §4.12, §6.2), as a host sees it entry by entry.

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::identify::{IdentifyController, cns, fuses};
use meantime_nvme_spec::opcode::{IoOpcode, io};
use meantime_nvme_spec::sqe::{Sqe, fuse};
use meantime_nvme_spec::status::{Status, StatusCode as S};
use meantime_ssd::{
    Fault, FaultControl as _, FaultRule, Model, OpcodeSet, SsdConfig, SteppedSsd, When,
};
use meantime_testkit::host::*;
use zerocopy::FromBytes;

struct Rig {
    ssd: SteppedSsd,
    host: Host,
    /// A page with what is expected, a page with what is to be written, and one to read to.
    pages: [u64; 3],
}

impl Rig {
    fn new(config: SsdConfig) -> Self {
        Self::with_entries(config, 8)
    }

    fn with_entries(config: SsdConfig, entries: u32) -> Self {
        let (ssd, mut host) = stepped(config);
        host.create_queues(1, entries, None);
        let pages = std::array::from_fn(|_| host.alloc(PAGE));
        Self { ssd, host, pages }
    }

    /// Returns a rig for every way that commands are fetched: at once, with a clock, by weighted
    /// round robin.
    fn all() -> Vec<Self> {
        let timed = Model {
            channels: 2,
            read: vec![(512, 1000)],
            write: vec![(512, 500)],
            ..Model::null()
        };
        let bounded = Model { inside: 1, ..timed.clone() };
        let of = |model| Self::new(SsdConfig { model, ..config(1 << 20, 512) });
        vec![of(Model::null()), of(timed), of(bounded)]
    }

    fn fill(&self, page: usize, byte: u8) {
        self.host.write(self.pages[page], &[byte; 512]);
    }

    /// Both commands for block `lba`, to compare with `expected` and write `new`.
    fn pair(&mut self, lba: u64, expected: u8, new: u8) -> [Sqe; 2] {
        self.fill(0, expected);
        self.fill(1, new);
        let cids = [self.host.cid(), self.host.cid()];
        let [compare, write, _] = self.pages;
        [
            Sqe::transfer(io::COMPARE, cids[0], 1, lba, 0, compare, 0, false)
                .with_fuse(fuse::FIRST),
            Sqe::transfer(io::WRITE, cids[1], 1, lba, 0, write, 0, false).with_fuse(fuse::SECOND),
        ]
    }

    /// Submits entries with one doorbell, and returns their statuses in order.
    fn run(&mut self, sqes: &[Sqe]) -> Vec<Status> {
        for sqe in sqes {
            self.host.put(1, sqe);
        }
        self.host.ring(1);
        let ended: Vec<Cqe> = sqes.iter().map(|_| self.host.wait(1)).collect();
        let of = |sqe: &Sqe| {
            ended.iter().find(|cqe| cqe.cid.get() == sqe.cid()).expect("one each").status()
        };
        sqes.iter().map(of).collect()
    }

    fn block(&mut self, lba: u64) -> u8 {
        let page = self.pages[2];
        ok(self.host.io(1, Sqe::read(0, 1, lba, 1, page, 0)));
        let block = self.host.read(page, 512);
        assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
        block[0]
    }
}

#[track_caller]
fn are(statuses: &[Status], codes: &[S]) {
    assert_eq!(statuses.iter().map(|status| status.code().unwrap()).collect::<Vec<_>>(), codes);
}

#[test]
fn it_is_announced() {
    let (_ssd, mut host) = stepped(SsdConfig { atomic_write_lbas: 8, ..config(1 << 20, 512) });
    let page = host.alloc(PAGE);
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let controller = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_eq!((controller.fuses.get(), controller.acwu.get()), (fuses::COMPARE_AND_WRITE, 7));
}

#[test]
fn what_is_as_expected_is_written_and_else_nothing() {
    for mut rig in Rig::all() {
        // There are more pairs than the queue has entries, so some cross its end.
        for round in 1..=20 {
            let pair = rig.pair(5, round - 1, round);
            are(&rig.run(&pair), &[S::SuccessfulCompletion; 2]);
            assert_eq!(rig.block(5), round);
            let pair = rig.pair(5, 0xee, 0xff);
            are(&rig.run(&pair), &[S::CompareFailure, S::CommandAbortedFailedFused]);
            assert_eq!(rig.block(5), round);
        }
    }
}

#[test]
fn the_last_entry_and_the_first_are_next_to_each_other() {
    for entries in [4, 5] {
        let mut rig = Rig::with_entries(config(1 << 20, 512), entries);
        for turn in 0..entries {
            let pair = rig.pair(0, turn as u8, turn as u8 + 1);
            are(&rig.run(&pair), &[S::SuccessfulCompletion; 2]);
            // One further, so that in the end each entry was the first of a pair.
            let page = rig.pages[2];
            ok(rig.host.io(1, Sqe::read(0, 1, 0, 1, page, 0)));
        }
    }
}

#[test]
fn half_a_pair_is_aborted() {
    for mut rig in Rig::all() {
        let [first, second] = rig.pair(3, 0, 9);
        are(&rig.run(&[first]), &[S::CommandAbortedMissingFused]);
        are(&rig.run(&[second]), &[S::CommandAbortedMissingFused]);
        are(&rig.run(&[second, first]), &[S::CommandAbortedMissingFused; 2]);
        let page = rig.pages[2];
        let cid = rig.host.cid();
        let between = Sqe::read(cid, 1, 0, 1, page, 0);
        are(
            &rig.run(&[first, between, second]),
            &[
                S::CommandAbortedMissingFused,
                S::SuccessfulCompletion,
                S::CommandAbortedMissingFused,
            ],
        );
        let [again, _] = rig.pair(3, 0, 9);
        are(
            &rig.run(&[first, again, second]),
            &[S::CommandAbortedMissingFused, S::SuccessfulCompletion, S::SuccessfulCompletion],
        );
        assert_eq!(rig.block(3), 9);
    }
}

#[test]
fn pairs_are_not_made_across_queues_or_doorbells() {
    for mut rig in Rig::all() {
        rig.host.create_queues(2, 8, None);
        let [first, second] = rig.pair(3, 0, 9);
        rig.host.put(1, &first);
        rig.host.put(2, &second);
        rig.host.ring(1);
        rig.host.ring(2);
        for qid in [1, 2] {
            assert!(rig.host.wait(qid).status().is(S::CommandAbortedMissingFused));
        }
        rig.host.submit(1, &first);
        rig.host.run_until_idle();
        rig.host.submit(1, &second);
        for _ in 0..2 {
            assert!(rig.host.wait(1).status().is(S::CommandAbortedMissingFused));
        }
        assert_eq!(rig.block(3), 0);
    }
}

#[test]
fn what_is_no_compare_and_write_of_the_same_blocks_is_refused() {
    for mut rig in Rig::all() {
        let [first, second] = rig.pair(3, 0, 9);
        let as_other = |sqe: &Sqe, opcode: u8, lba: u64, nlb: u16| {
            let [page, cid] = [sqe.prp1.get(), u64::from(sqe.cid())];
            Sqe::transfer(opcode, cid as u16, 1, lba, nlb, page, 0, false).with_fuse(sqe.fuse())
        };
        for pair in [
            [first, as_other(&second, io::WRITE, 4, 0)],
            [first, as_other(&second, io::WRITE, 3, 1)],
            [first, as_other(&second, io::READ, 3, 0)],
            [as_other(&first, io::WRITE, 3, 0), second],
        ] {
            are(&rig.run(&pair), &[S::InvalidFieldInCommand; 2]);
        }
        // The first pair is longer than ACWU, which is one block. The second has nothing to write
        // from.
        let long = [as_other(&first, io::COMPARE, 3, 1), as_other(&second, io::WRITE, 3, 1)];
        are(&rig.run(&long), &[S::InvalidFieldInCommand, S::CommandAbortedFailedFused]);
        let nowhere = [first, second.with_prps(0x9999_0000_0000, 0)];
        are(&rig.run(&nowhere), &[S::SuccessfulCompletion, S::DataTransferError]);
        let beyond =
            [as_other(&first, io::COMPARE, 1 << 40, 0), as_other(&second, io::WRITE, 1 << 40, 0)];
        are(&rig.run(&beyond), &[S::LbaOutOfRange, S::CommandAbortedFailedFused]);
        // FUSE has a reserved value in the first, and the second is an admin command.
        are(&rig.run(&[first.with_fuse(3)]), &[S::InvalidFieldInCommand]);
        let page = rig.pages[2];
        let identify = Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0).with_fuse(fuse::FIRST);
        refused(rig.host.admin(identify), S::InvalidFieldInCommand);
        assert_eq!(rig.block(3), 0);
    }
}

#[test]
fn identifiers_conflict_one_by_one() {
    for mut rig in Rig::all() {
        let [first, mut second] = rig.pair(3, 0, 9);
        second.set_cid(first.cid());
        for sqe in [first, second] {
            rig.host.put(1, &sqe);
        }
        rig.host.ring(1);
        let mut codes: Vec<_> = (0..2).map(|_| rig.host.wait(1).status().code().unwrap()).collect();
        codes.sort_by_key(|code| *code as u16);
        assert_eq!(codes, [S::SuccessfulCompletion, S::CommandIdConflict]);
        assert_eq!(rig.block(3), 0);
    }
}

#[test]
fn faults_spare_neither_nor_break_the_order() {
    for model in ["null", "optane"] {
        let model = Model::named(model).unwrap();
        let mut rig = Rig::new(SsdConfig { model, ..config(1 << 20, 512) });
        let fails = |opcode| {
            let when = When { opcodes: Some(OpcodeSet::io(&[opcode])), ..When::ALWAYS };
            FaultRule::new(Fault::Status(Status::from_code(S::InternalError)), when)
        };
        rig.ssd.add_fault(fails(IoOpcode::Compare)).unwrap();
        let pair = rig.pair(3, 0, 9);
        are(&rig.run(&pair), &[S::InternalError, S::CommandAbortedFailedFused]);
        assert_eq!(rig.block(3), 0);
        rig.ssd.clear_faults();
        rig.ssd.add_fault(fails(IoOpcode::Write)).unwrap();
        are(&rig.run(&pair), &[S::SuccessfulCompletion, S::InternalError]);
        assert_eq!(rig.block(3), 0);
        rig.ssd.clear_faults();
        are(&rig.run(&pair), &[S::SuccessfulCompletion; 2]);
        assert_eq!(rig.block(3), 9);
        // The block has changed: the same pair fails, and the fault takes it apart.
        rig.ssd.add_fault(FaultRule::new(Fault::Unfused, When::ALWAYS)).unwrap();
        let pair = rig.pair(3, 0, 8);
        are(&rig.run(&pair), &[S::CompareFailure, S::SuccessfulCompletion]);
        assert_eq!(rig.block(3), 8);
    }
}

#[test]
fn a_pair_waits_for_room_for_both_completions() {
    for mut rig in Rig::all() {
        // Of 8 entries 7 can be in use: 6 reads that are not acknowledged leave room for one.
        let page = rig.pages[2];
        for _ in 0..6 {
            let cid = rig.host.cid();
            rig.host.submit(1, &Sqe::read(cid, 1, 0, 1, page, 0));
            rig.ssd.clock().advance(1_000_000);
            ok(rig.host.peek(1).expect("there is room"));
        }
        let pair = rig.pair(3, 0, 9);
        for sqe in &pair {
            rig.host.put(1, sqe);
        }
        rig.host.ring(1);
        rig.ssd.clock().advance(1_000_000);
        assert!(rig.host.peek(1).is_none(), "half of it was begun");
        rig.host.ring_head(1);
        for _ in 0..2 {
            ok(rig.host.wait(1));
        }
        assert_eq!(rig.block(3), 9);
    }
}
