//! Models of turns that follow each other: a program that is done wakes the next one, without the
//! agent.

mod shared;

use eyas_board::{SeatAnswer, SeatState, take_marks};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use shared::{STEP, ask, board, given};

#[test]
fn a_turn_is_passed_on_or_the_agent_is_told() {
    loom::model(|| {
        let board = board();
        let (first, turn) = given(board, ask());
        let (second, _) = board.ask(ask()).expect("a free seat");
        take_marks(&board.asked).for_each(drop);
        let seen = board.agent.bell.load(Ordering::Acquire);
        let program = thread::spawn(move || board.finish(first, turn, 7));
        board.set_successor(second, first);
        program.join().unwrap();
        let is_told = board.agent.bell.load(Ordering::Acquire) != seen;
        assert!(is_told != (board.seats[second].state() == SeatState::Go));
        assert_eq!(take_marks(&board.asked).next(), Some(first), "it frees the seat");
    });
}

#[test]
fn a_turn_is_not_lost_with_a_program_that_stops_waiting_for_it() {
    loom::model(|| {
        let board = board();
        let (first, turn) = given(board, ask());
        let (second, waiting) = board.ask(ask()).expect("a free seat");
        board.set_successor(second, first);
        take_marks(&board.asked).for_each(drop);
        let program = thread::spawn(move || board.finish(first, turn, 7));
        let impatient = thread::spawn(move || board.await_answer(second, waiting, STEP, || false));
        let seen = board.agent.bell.load(Ordering::Acquire);
        let marked = take_marks(&board.asked).count();
        program.join().unwrap();
        match impatient.join().unwrap() {
            SeatAnswer::Go => assert_eq!(board.seats[second].state(), SeatState::Go),
            SeatAnswer::Silence => {
                let sleeps = board.agent.bell.load(Ordering::Acquire) == seen;
                assert!(!sleeps || marked == 2, "the agent looks at both seats");
                assert_eq!(marked + take_marks(&board.asked).count(), 2);
            }
            answer => panic!("{answer:?}"),
        }
    });
}

#[test]
fn a_jump_out_of_waiting_passes_on_no_turn_of_another() {
    loom::model(|| {
        let board = board();
        let (first, turn) = given(board, ask());
        let (second, waiting) = board.ask(ask()).expect("a free seat");
        let (third, last) = board.ask(ask()).expect("a free seat");
        board.set_successor(second, first);
        board.set_successor(third, second);
        let is_reading: &AtomicBool = Box::leak(Box::new(AtomicBool::new(true)));
        let reader = thread::spawn(move || {
            is_reading.store(false, Ordering::Relaxed);
            board.finish(first, turn, 7);
        });
        let jumping = thread::spawn(move || board.finish(second, waiting, 0));
        if board.await_answer(third, last, STEP, || false) == SeatAnswer::Go {
            assert!(!is_reading.load(Ordering::Relaxed), "the first has still its turn");
        }
        reader.join().unwrap();
        jumping.join().unwrap();
    });
}
