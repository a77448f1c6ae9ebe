//! Models of seats: what programs and the agent can say to each other, in every order.
//!
//! A model has no waits: a thread that would wait lets another one run, and goes on at any moment.
//! A call that a signal handler leaves is modelled by a second thread, which makes the same call
//! and may have come to any point of it.

mod shared;

use eyas_board::{FilePiece, SeatAnswer, SeatRequest, SeatState, SeatTurn, take_marks};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use shared::{STEP, ask, board, given};

#[test]
fn a_request_arrives_whole_and_its_answer_too() {
    loom::model(|| {
        let board = board();
        let program = thread::spawn(move || {
            let (index, turn) = board.ask(ask()).expect("a free seat");
            (index, board.await_answer(index, turn, STEP, || true))
        });
        let index = loop {
            match take_marks(&board.asked).next() {
                Some(index) => break index,
                None => thread::yield_now(),
            }
        };
        assert_eq!(board.seats[index].asked(), Some(ask()));
        assert!(board.seats[index].reply(SeatAnswer::InMemory(0)));
        assert_eq!(program.join().unwrap(), (index, SeatAnswer::InMemory(0)));
        assert_eq!(board.seats[index].state(), SeatState::Free);
    });
}

#[test]
fn an_agent_that_sleeps_has_missed_no_mark() {
    loom::model(|| {
        let board = board();
        let programs = [0, 1].map(|seat| thread::spawn(move || board.ring_for_seat(seat)));
        let seen = board.agent.bell.load(Ordering::Acquire);
        let marked = take_marks(&board.asked).count();
        programs.into_iter().for_each(|program| program.join().unwrap());
        // The agent would wait for the bell to change.
        if board.agent.bell.load(Ordering::Acquire) == seen {
            assert_eq!(marked, 2);
        }
        assert_eq!(marked + take_marks(&board.asked).count(), 2, "each mark is taken once");
    });
}

#[test]
fn two_programs_take_two_seats() {
    loom::model(|| {
        let board = board();
        let other = thread::spawn(move || board.ask(ask()).expect("a free seat"));
        let mine = board.ask(ask()).expect("a free seat");
        assert_ne!(mine.0, other.join().unwrap().0);
        assert_eq!(take_marks(&board.asked).count(), 2);
    });
}

#[test]
fn a_program_that_stops_waiting_is_told_apart_from_one_that_goes() {
    loom::model(|| {
        let board = board();
        let (index, turn) = board.ask(ask()).expect("a free seat");
        take_marks(&board.asked).for_each(drop);
        let program = thread::spawn(move || board.await_answer(index, turn, STEP, || false));
        let was_there = board.seats[index].reply(SeatAnswer::Go);
        match program.join().unwrap() {
            SeatAnswer::Go => assert!(was_there),
            SeatAnswer::Silence => {
                assert_eq!(board.seats[index].state(), SeatState::Left);
                assert_eq!(take_marks(&board.asked).next(), Some(index), "the agent frees it");
            }
            answer => panic!("{answer:?}"),
        }
    });
}

#[test]
fn a_seat_is_not_freed_under_a_program_that_takes_it() {
    loom::model(|| {
        let board = board();
        let (index, turn) = board.ask(ask()).expect("a free seat");
        assert!(board.seats[index].reply(SeatAnswer::Pass));
        let programs = thread::spawn(move || {
            let answer = board.await_answer(index, turn, STEP, || true);
            assert!(matches!(answer, SeatAnswer::Pass | SeatAnswer::Silence));
            board.ask(ask()).expect("a free seat")
        });
        // The agent frees a seat that was not free for a long time.
        let lingering = board.seats[index].found();
        if lingering.state == SeatState::Pass {
            board.seats[index].free(lingering.turn);
        }
        let (same, next) = programs.join().unwrap();
        assert_eq!(board.seats[same].found(), SeatTurn { turn: next, state: SeatState::Asked });
    });
}

#[test]
fn a_late_program_does_nothing_to_the_next_turn() {
    loom::model(|| {
        let board = board();
        let (index, turn) = given(board, ask());
        let late = thread::spawn(move || board.finish(index, turn, 7));
        board.seats[index].free(turn);
        let (same, next) = given(board, ask());
        late.join().unwrap();
        assert_eq!(board.seats[same].found(), SeatTurn { turn: next, state: SeatState::Go });
    });
}

#[test]
fn the_agent_is_told_of_a_turn_that_a_jump_has_ended() {
    loom::model(|| {
        let board = board();
        let (index, turn) = given(board, ask());
        take_marks(&board.asked).for_each(drop);
        let interrupted = thread::spawn(move || board.finish(index, turn, 7));
        board.finish(index, turn, 0);
        assert_eq!(board.seats[index].state(), SeatState::Done);
        assert_eq!(take_marks(&board.asked).next(), Some(index), "its seat is looked at");
        interrupted.join().unwrap();
    });
}

#[test]
fn an_announced_piece_is_entered_while_it_grows() {
    loom::model(|| {
        let board = board();
        let file = &board.files[1];
        let piece = FilePiece { number: 7, pages: 1, is_announced: true };
        file.set(piece);
        let agent = thread::spawn(move || file.grow(7, 2));
        assert!(file.enter(piece), "the agent is told");
        agent.join().unwrap();
        assert_eq!(file.piece(7), Some(FilePiece { pages: 2, is_announced: false, ..piece }));
    });
}

#[test]
fn a_turn_is_not_taken_back_during_a_call() {
    loom::model(|| {
        let board = board();
        let (index, turn) = given(board, SeatRequest { is_kept: true, ..ask() });
        let is_calling: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let calls: &AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let program = thread::spawn(move || {
            for _ in 0..2 {
                if board.enter(index, turn) {
                    is_calling.store(true, Ordering::Relaxed);
                    calls.fetch_add(1, Ordering::Relaxed);
                    is_calling.store(false, Ordering::Relaxed);
                    board.exit(index, turn, 10);
                }
            }
        });
        if board.seats[index].take_back() {
            assert!(!is_calling.load(Ordering::Relaxed), "a call is under way");
            let done = board.seats[index].done_bytes();
            assert_eq!(done, u64::from(calls.load(Ordering::Relaxed)) * 10, "all are counted");
            program.join().unwrap();
            assert_eq!(board.seats[index].done_bytes(), done, "no call came afterwards");
        } else {
            program.join().unwrap();
            assert!(board.seats[index].take_back(), "no call is under way");
        }
    });
}

#[test]
fn a_turn_that_is_given_up_and_taken_back_ends() {
    loom::model(|| {
        let board = board();
        let (index, turn) = given(board, SeatRequest { is_kept: true, ..ask() });
        let program = thread::spawn(move || board.give_up(index, turn));
        assert!(board.seats[index].take_back());
        board.seats[index].free(turn);
        program.join().unwrap();
        assert_eq!(board.seats[index].found(), SeatTurn { turn, state: SeatState::Free });
        assert!(!board.enter(index, turn));
    });
}
