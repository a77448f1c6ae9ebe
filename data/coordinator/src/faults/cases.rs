//! The cases that are tried.

use std::cell::RefCell;

use eyas_board::CallKind;
use eyas_faults::{Dice, run_twice, try_seeds};

use super::node::Boards;
use super::program::Deed;
use super::storage::TICK_US;
use super::world::{BEGIN_US, Case, Fault, IoOutcome};

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 60;
const SECOND: u64 = 1_000_000;

thread_local! {
    static BOARDS: RefCell<Boards> = RefCell::default();
}

/// Runs a case, some of them twice.
fn run(case: &Case) -> IoOutcome {
    let run = |case: &Case| BOARDS.with_borrow_mut(|boards| case.run(boards));
    if case.seed.is_multiple_of(8) { run_twice(case, run) } else { run(case) }
}

/// What a program does with one file.
fn reader(dice: &mut Dice, name: usize, pieces: u64) -> Vec<Deed> {
    let mut deeds = vec![Deed::Open { name, mount: u64::from(dice.chance(150)) }];
    let (pattern, step) = (dice.below(8), 1 + dice.below(2));
    let takes_bytes = !dice.chance(100);
    let mut call = |kind, first: u64, length: u64| {
        deeds.push(Deed::Call { kind, pieces: first..first + length, takes_bytes });
    };
    let calls = pieces.div_ceil(step);
    match pattern {
        0 => (0..calls).rev().for_each(|place| call(CallKind::Read, place * step, step)),
        1 => (0..calls).for_each(|_| call(CallKind::Read, dice.below(pieces), step)),
        2 => (0..calls).for_each(|place| call(CallKind::DirectRead, place * step, step)),
        3 => (0..calls / 4).for_each(|place| call(CallKind::Write, place * step, step)),
        4 => deeds.push(Deed::Stream { pieces: 0..pieces / 3 + 1 }),
        _ => (0..calls).for_each(|place| call(CallKind::Read, place * step, step)),
    }
    if pattern == 5 {
        deeds.insert(1, Deed::Call { kind: CallKind::Hint, pieces: 0..2, takes_bytes: false });
    }
    if dice.chance(500) {
        let at = 1 + dice.below(deeds.len() as u64) as usize;
        deeds.insert(at, Deed::Compute { us: dice.below(3 * SECOND) });
    }
    if !dice.chance(200) {
        deeds.push(Deed::Close);
    }
    deeds
}

fn fault(dice: &mut Dice, case: &Case) -> Fault {
    let node = dice.below(case.users.len() as u64) as usize;
    let name = dice.below(case.files.len() as u64) as usize;
    let pieces = case.files[name];
    let us = dice.below(2 * SECOND);
    match dice.below(12) {
        0 => Fault::AgentDies(node),
        1 => Fault::AgentStops(node, us),
        2 => Fault::CoordinatorDies(us),
        3 => Fault::CutOff(node, us),
        4 | 10 => Fault::ProgramDies(dice.below(case.programs.len() as u64) as usize),
        5 | 6 => Fault::Rewritten { name, piece: dice.below(pieces) },
        7 => Fault::Resized { name, pieces: dice.below(pieces) + pieces / 2 },
        8 => Fault::Replaced { name, pieces },
        9 => Fault::StorageIsSlow(us),
        _ => Fault::PagesLost(node),
    }
}

/// A random case for this seed.
fn faulty(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let nodes = 2 + dice.below(3);
    let two_users = dice.chance(200);
    let users = (0..nodes).map(|node| u8::from(two_users && node % 2 == 1)).collect();
    let skews_us = (0..nodes).map(|_| dice.below(SECOND) as i64 - SECOND as i64 / 2).collect();
    let files: Vec<u64> = (0..1 + dice.below(3)).map(|_| 2 + dice.below(20)).collect();
    let mut programs = Vec::new();
    for node in 0..nodes as usize {
        for _ in 0..1 + dice.below(2) {
            let mut deeds = Vec::new();
            for _ in 0..1 + dice.below(2) {
                let name = dice.below(files.len() as u64) as usize;
                deeds.extend(reader(&mut dice, name, files[name]));
            }
            programs.push((node, deeds));
        }
    }
    let liars = if dice.chance(200) { vec![dice.below(nodes) as usize] } else { Vec::new() };
    let lost_pages = [0.0, 0.0, 0.3][dice.below(3) as usize];
    let (faults, is_flash) = (Vec::new(), dice.chance(200));
    let mut case = Case {
        users,
        skews_us,
        files,
        programs,
        faults,
        liars,
        spread_us: SECOND / 2,
        is_flash,
        lost_pages,
        seed,
    };
    for _ in 0..dice.below(14) {
        let at_us = 2 * SECOND + dice.below(4 * SECOND);
        let fault = fault(&mut dice, &case);
        // Two changes may come in one moment.
        let again = matches!(fault, Fault::Rewritten { .. }) && dice.chance(300);
        if again {
            case.faults.push((at_us + dice.below(4_000), fault.clone()));
        }
        case.faults.push((at_us, fault));
    }
    case
}

/// A program that reads a file of this many pieces from its beginning.
fn sequential(pieces: u64) -> Vec<Deed> {
    let read =
        |piece| Deed::Call { kind: CallKind::Read, pieces: piece..piece + 1, takes_bytes: true };
    let open = [Deed::Open { name: 0, mount: 0 }];
    open.into_iter().chain((0..pieces).map(read)).collect()
}

fn quiet(programs: Vec<Vec<Deed>>, pieces: u64, seed: u64) -> Case {
    Case {
        users: vec![0; programs.len()],
        skews_us: vec![0; programs.len()],
        files: vec![pieces],
        programs: programs.into_iter().enumerate().collect(),
        faults: Vec::new(),
        liars: Vec::new(),
        spread_us: 1,
        is_flash: false,
        lost_pages: 0.0,
        seed,
    }
}

#[test]
fn four_nodes_read_a_file_once() {
    let run = |seed| {
        let pieces = 16 + Dice::new(seed).below(16);
        let mut deeds = sequential(pieces);
        deeds.push(Deed::Close);
        (pieces, run(&quiet(vec![deeds; 4], pieces, seed)))
    };
    let Some(outcomes) = try_seeds(SEEDS / 4, run) else { return };
    for (pieces, outcome) in outcomes {
        // Each node reads the first piece before it knows that the program goes on.
        assert_eq!(outcome.sent, pieces + 3, "{outcome:?}");
        assert_eq!(outcome.copied, 3 * (pieces - 1), "{outcome:?}");
        assert!(outcome.longest_us < 3 * SECOND / 10, "a call has waited: {outcome:?}");
    }
}

/// A file is written twice in one moment, and one node reads it in between. Its time tells nothing
/// of the second change; only the storage does, when it is asked.
#[test]
fn a_second_change_in_one_moment_is_seen() {
    let run_seed = |seed| {
        let mut dice = Dice::new(seed);
        let pieces = 3 + dice.below(4);
        let (mut first, mut second) = (sequential(pieces), sequential(pieces));
        first.extend([Deed::Compute { us: 4 * SECOND }, Deed::Close]);
        second.insert(0, Deed::Compute { us: 2 * SECOND + dice.below(SECOND) });
        second.push(Deed::Close);
        let mut case = quiet(vec![first, second], pieces, seed);
        let at_us = BEGIN_US / TICK_US * TICK_US + TICK_US * dice.below(10);
        for at_us in [at_us + dice.below(TICK_US / 2), at_us + TICK_US - 1] {
            case.faults.push((at_us, Fault::Rewritten { name: 0, piece: pieces - 1 }));
        }
        run(&case)
    };
    let Some(outcomes) = try_seeds(SEEDS, run_seed) else { return };
    let sum = |of: fn(&IoOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|of| of.given) > outcomes.len() as u64, "parts were given after the changes");
    assert!(sum(|of| of.unseen) > 0, "no change was in the same moment");
}

#[test]
fn programs_read_what_plain_reads_could_have_given() {
    let Some(outcomes) = try_seeds(SEEDS, |seed| run(&faulty(seed))) else { return };
    let sum = |of: fn(&IoOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let all = [
        sum(|of| of.read) / 20,
        sum(|of| of.copied),
        sum(|of| of.wanted),
        sum(|of| of.given),
        sum(|of| of.lost_sessions),
        sum(|of| of.killed),
    ];
    assert!(
        all.iter().all(|count| *count > outcomes.len() as u64 / 2),
        "too little happened: {all:?}"
    );
}
