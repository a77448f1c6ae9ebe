//! A seat, and two sides that disagree about it.

use super::*;
use crate::map::anonymous;

const STEP: Duration = Duration::from_millis(1);

fn ask() -> SeatRequest {
    SeatRequest {
        process: 7,
        kind: CallKind::Read,
        device: 1,
        inode: 2,
        offset: 3,
        length: 4,
        file_bytes: 7,
        class: 6,
        is_kept: false,
        must_order: true,
        takes_bytes: true,
    }
}

#[test]
fn an_answer_reaches_the_program() {
    let board = anonymous();
    let (index, turn) = board.ask(ask()).unwrap();
    let asked = board.seats[index].asked();
    assert_eq!(asked, Some(ask()));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| board.await_answer(index, turn, STEP, || true));
        assert!(board.seats[index].reply(SeatAnswer::InMemory(9)));
        assert_eq!(waiting.join().unwrap(), SeatAnswer::InMemory(9));
    });
    assert_eq!(board.seats[index].state(), SeatState::Free);
}

#[test]
fn a_program_that_stops_waiting_leaves_the_seat_to_the_agent() {
    let board = anonymous();
    let (index, turn) = board.ask(ask()).unwrap();
    assert_eq!(board.await_answer(index, turn, STEP, || false), SeatAnswer::Silence);
    assert_eq!(board.seats[index].state(), SeatState::Left);
    assert!(!board.seats[index].reply(SeatAnswer::Go), "the program has left");
}

#[test]
fn all_seats_can_be_taken() {
    let board = anonymous();
    assert!((0..SEATS).all(|_| board.ask(ask()).is_some()));
    assert_eq!(board.ask(ask()), None);
}

#[test]
fn a_turn_is_kept_until_it_is_taken_back() {
    let board = anonymous();
    let (index, turn) = board.ask(SeatRequest { is_kept: true, ..ask() }).unwrap();
    assert!(!board.enter(index, turn), "the turn is not granted yet");
    board.seats[index].reply(SeatAnswer::Go);
    assert!(board.enter(index, turn));
    assert!(!board.seats[index].take_back(), "a call is under way");
    board.exit(index, turn, 100);
    assert_eq!(board.seats[index].done_bytes(), 100);
    assert!(board.seats[index].take_back());
    assert!(!board.enter(index, turn));
    board.give_up(index, turn);
    assert_eq!(board.seats[index].state(), SeatState::Go, "what is over is not given up");
}

#[test]
fn a_call_of_an_earlier_turn_is_not_counted_in_the_next() {
    let board = anonymous();
    let [first, second] = [(); 2].map(|()| {
        let (index, turn) = board.ask(SeatRequest { is_kept: true, ..ask() }).unwrap();
        board.seats[index].reply(SeatAnswer::Go);
        assert!(board.enter(index, turn));
        board.seats[index].free(turn);
        (index, turn)
    });
    assert!(first.0 == second.0 && first.1 != second.1);
    board.exit(first.0, first.1, 7);
    assert_eq!(board.seats[second.0].done_bytes(), 0);
    assert!(!board.seats[second.0].take_back(), "the second is still in it");
}

#[test]
fn a_late_program_does_not_end_the_next_turn() {
    let board = anonymous();
    let (index, late) = board.ask(ask()).unwrap();
    board.seats[index].reply(SeatAnswer::Go);
    board.seats[index].free(late);
    board.leave(index, late, SeatState::Done);
    assert_eq!(board.seats[index].state(), SeatState::Free);
    let (same, next) = board.ask(ask()).unwrap();
    assert!(same == index && next != late);
    board.leave(index, late, SeatState::Done);
    board.resume(index, late);
    assert_eq!(
        board.await_answer(index, late, STEP, || true),
        SeatAnswer::Silence,
        "it is another's turn"
    );
    assert_eq!(board.seats[index].state(), SeatState::Asked);
    assert!(board.seats[index].reply(SeatAnswer::Go));
    board.leave(index, late, SeatState::Left);
    assert_eq!(board.seats[index].state(), SeatState::Go);
    board.leave(index, next, SeatState::Done);
    assert_eq!(board.seats[index].state(), SeatState::Done);
}

#[test]
fn a_turn_is_passed_on() {
    let board = anonymous();
    let [first, second, third] = [(); 3].map(|()| board.ask(ask()).unwrap());
    board.set_successor(second.0, first.0);
    board.set_successor(third.0, second.0);
    crate::take_marks(&board.asked).for_each(drop);
    board.seats[first.0].reply(SeatAnswer::Go);
    let bell = board.agent.bell.load(Ordering::Relaxed);
    board.leave(first.0, first.1, SeatState::Done);
    assert_eq!(board.await_answer(second.0, second.1, STEP, || true), SeatAnswer::Go);
    assert!(board.seats[second.0].reply(SeatAnswer::Go), "it goes already");
    assert_eq!(board.agent.bell.load(Ordering::Relaxed), bell, "the agent sleeps on");
    board.leave(third.0, third.1, SeatState::Left);
    board.leave(second.0, second.1, SeatState::Done);
    assert_eq!(board.seats[third.0].state(), SeatState::Left);
    assert_ne!(board.agent.bell.load(Ordering::Relaxed), bell, "no seat follows");
    assert_eq!(crate::take_marks(&board.asked).count(), 3);
}

#[test]
fn a_program_without_a_turn_passes_none_on() {
    let board = anonymous();
    let [first, second, third] = [(); 3].map(|()| board.ask(ask()).unwrap());
    board.set_successor(second.0, first.0);
    board.set_successor(third.0, second.0);
    board.seats[first.0].reply(SeatAnswer::Go);
    // A signal handler jumps out of the second call, which waits.
    board.finish(second.0, second.1, 0);
    let states = [first, second, third].map(|(index, _)| board.seats[index].state());
    assert_eq!(states, [SeatState::Go, SeatState::Left, SeatState::Asked]);
}

#[test]
fn the_agent_hears_of_a_turn_whose_end_was_interrupted() {
    let board = anonymous();
    let (index, turn) = board.ask(ask()).unwrap();
    board.seats[index].reply(SeatAnswer::Go);
    // A signal handler jumps out of `finish` before the bell rings, and the turn is ended again.
    assert!(board.seats[index].step(board.seats[index].found(), SeatState::Done));
    crate::take_marks(&board.asked).for_each(drop);
    board.finish(index, turn, 0);
    assert_eq!(crate::take_marks(&board.asked).collect::<Vec<_>>(), [index]);
    board.seats[index].free(turn);
    board.finish(index, turn, 0);
    assert_eq!(crate::take_marks(&board.asked).count(), 0, "the agent knows");
}

#[test]
fn a_seat_is_freed_in_its_turn_alone() {
    let board = anonymous();
    let (index, turn) = board.ask(ask()).unwrap();
    board.seats[index].free(turn);
    let (same, next) = board.ask(ask()).unwrap();
    assert_eq!(same, index);
    board.seats[index].free(turn);
    assert_eq!(board.seats[index].found(), SeatTurn { turn: next, state: SeatState::Asked });
}

#[test]
fn turns_are_counted_round() {
    let board = anonymous();
    board.seats[7].word.store(
        SeatTurn { turn: u32::MAX >> SeatTurn::STATE_BITS, state: SeatState::Free }.word(),
        Ordering::Relaxed,
    );
    assert_eq!(board.ask(ask()), Some((7, 0)));
    assert_eq!(board.seats[7].state(), SeatState::Asked);
}

#[test]
fn an_invalid_request_is_refused() {
    let board = anonymous();
    let (index, _) = board.ask(SeatRequest { offset: u64::MAX, ..ask() }).unwrap();
    assert_eq!(board.seats[index].asked(), None);
    board.seats[index].offset.store(0, Ordering::Relaxed);
    board.seats[index].kind.store(77, Ordering::Relaxed);
    assert_eq!(board.seats[index].asked(), None);
    board.seats[index].word.store(77, Ordering::Relaxed);
    assert_eq!(board.seats[index].state(), SeatState::Left, "the agent frees it");
}

#[test]
fn a_seat_goes_only_where_the_table_says() {
    use SeatState::{Asked, Done, Free, Go, InMemory, Left, OpenWanted, Pass, Taken};
    let allowed = |from: SeatState| {
        SeatState::ALL.into_iter().filter(|to| from.may_become(*to)).collect::<Vec<_>>()
    };
    assert_eq!(allowed(Free), [Taken]);
    assert_eq!(allowed(Taken), [Asked, Left]);
    assert_eq!(allowed(Asked), [OpenWanted, Go, InMemory, Pass, Left]);
    assert_eq!(allowed(OpenWanted), [Asked, Left]);
    assert_eq!(allowed(Go), [Done, Left]);
    assert_eq!([allowed(InMemory), allowed(Pass)], [[Free, Left], [Free, Left]]);
    assert_eq!([allowed(Done), allowed(Left)], [[], []], "the agent frees them");
}

/// In a debug build, the caller learns of it.
#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "a seat cannot go from Free to Go in turn 0: Seat { word: 0,")
)]
fn a_move_that_is_not_allowed_is_refused() {
    let seat = Seat::default();
    assert!(!seat.step(seat.found(), SeatState::Go));
    assert_eq!(seat.state(), SeatState::Free);
}

/// The same, through the call that programs make.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "a seat cannot go from Go to Asked"))]
fn a_turn_that_was_granted_is_not_asked_for_again() {
    let board = anonymous();
    let (index, turn) = board.ask(ask()).unwrap();
    board.seats[index].reply(SeatAnswer::Go);
    board.leave(index, turn, SeatState::Asked);
    assert_eq!(board.seats[index].state(), SeatState::Go);
}

#[test]
fn a_kept_turn_counts_its_calls_and_no_others() {
    let hold = |turn, calls| Hold { turn, calls };
    assert_eq!(hold(5, 2).after(5, HoldMove::Enter), Some(hold(5, 3)));
    assert_eq!(hold(5, 2).after(5, HoldMove::Exit), Some(hold(5, 1)));
    assert_eq!(hold(5, 0).after(5, HoldMove::Close), Some(Hold::OVER));
    for (before, turn, by) in [
        (hold(5, 2), 4, HoldMove::Enter),
        (hold(5, 2), 4, HoldMove::Exit),
        (hold(5, 0), 4, HoldMove::Close),
        (hold(5, 0), 5, HoldMove::Exit),
        (hold(5, 1), 5, HoldMove::Close),
        (hold(5, u32::MAX), 5, HoldMove::Enter),
        (Hold::OVER, 5, HoldMove::Enter),
    ] {
        assert_eq!(before.after(turn, by), None, "{by:?} of turn {turn}, at {before:?}");
    }
}
