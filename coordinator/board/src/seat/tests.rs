//! A seat, and two who disagree about it.

use super::*;
use crate::map::anonymous;

const STEP: Duration = Duration::from_millis(1);

fn ask() -> Ask {
    Ask {
        process: 7,
        kind: Kind::Read,
        device: 1,
        inode: 2,
        offset: 3,
        length: 4,
        file_bytes: 7,
        class: 6,
        is_kept: false,
        insists: true,
    }
}

#[test]
fn an_answer_reaches_who_asked() {
    let board = anonymous();
    let (place, turn) = board.ask(ask()).unwrap();
    let asked = board.seats[place].asked();
    assert_eq!(asked, Some(ask()));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| board.answer(place, turn, STEP, || true));
        assert!(board.seats[place].reply(Answer::InMemory(9)));
        assert_eq!(waiting.join().unwrap(), Answer::InMemory(9));
    });
    assert_eq!(board.seats[place].state(), State::Free);
}

#[test]
fn who_does_not_wait_leaves_the_seat_to_the_agent() {
    let board = anonymous();
    let (place, turn) = board.ask(ask()).unwrap();
    assert_eq!(board.answer(place, turn, STEP, || false), Answer::Silence);
    assert_eq!(board.seats[place].state(), State::Left);
    assert!(!board.seats[place].reply(Answer::Go), "nobody is there");
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
    let (place, turn) = board.ask(Ask { is_kept: true, ..ask() }).unwrap();
    assert!(!board.enter(place, turn), "it has not come yet");
    board.seats[place].reply(Answer::Go);
    assert!(board.enter(place, turn));
    assert!(!board.seats[place].take_back(), "somebody is in it");
    board.exit(place, turn, 100);
    assert_eq!(board.seats[place].done_bytes(), 100);
    assert!(board.seats[place].take_back());
    assert!(!board.enter(place, turn));
    board.give_up(place, turn);
    assert_eq!(board.seats[place].state(), State::Go, "what is over is not given up");
}

#[test]
fn who_was_in_an_earlier_turn_is_not_counted_in_the_next() {
    let board = anonymous();
    let [first, second] = [(); 2].map(|()| {
        let (place, turn) = board.ask(Ask { is_kept: true, ..ask() }).unwrap();
        board.seats[place].reply(Answer::Go);
        assert!(board.enter(place, turn));
        board.seats[place].free();
        (place, turn)
    });
    assert!(first.0 == second.0 && first.1 != second.1);
    board.exit(first.0, first.1, 7);
    assert_eq!(board.seats[second.0].done_bytes(), 0);
    assert!(!board.seats[second.0].take_back(), "the second is still in it");
}

#[test]
fn who_leaves_late_leaves_the_next_alone() {
    let board = anonymous();
    let (place, late) = board.ask(ask()).unwrap();
    board.seats[place].reply(Answer::Go);
    board.seats[place].free();
    board.leave(place, late, State::Done);
    assert_eq!(board.seats[place].state(), State::Free);
    let (same, next) = board.ask(ask()).unwrap();
    assert!(same == place && next != late);
    board.leave(place, late, State::Done);
    board.resume(place, late);
    assert_eq!(board.answer(place, late, STEP, || true), Answer::Silence, "it is another's turn");
    assert_eq!(board.seats[place].state(), State::Asked);
    assert!(board.seats[place].reply(Answer::Go));
    board.leave(place, late, State::Left);
    assert_eq!(board.seats[place].state(), State::Go);
    board.leave(place, next, State::Done);
    assert_eq!(board.seats[place].state(), State::Done);
}

#[test]
fn a_turn_is_handed_on() {
    let board = anonymous();
    let [first, second, third] = [(); 3].map(|()| board.ask(ask()).unwrap());
    board.line_up(second.0, first.0);
    board.line_up(third.0, second.0);
    crate::take_marks(&board.asked).for_each(drop);
    board.seats[first.0].reply(Answer::Go);
    let bell = board.head.bell.load(Ordering::Relaxed);
    board.leave(first.0, first.1, State::Done);
    assert_eq!(board.answer(second.0, second.1, STEP, || true), Answer::Go);
    assert!(board.seats[second.0].reply(Answer::Go), "it goes already");
    assert_eq!(board.head.bell.load(Ordering::Relaxed), bell, "the agent sleeps on");
    board.leave(third.0, third.1, State::Left);
    board.leave(second.0, second.1, State::Done);
    assert_eq!(board.seats[third.0].state(), State::Left);
    assert_ne!(board.head.bell.load(Ordering::Relaxed), bell, "nobody goes on");
    assert_eq!(crate::take_marks(&board.asked).count(), 3);
}

#[test]
fn turns_are_counted_round() {
    let board = anonymous();
    board.seats[7]
        .word
        .store(Move { turn: u32::MAX >> Move::STATE_BITS, state: State::Free }.word(), Ordering::Relaxed);
    assert_eq!(board.ask(ask()), Some((7, 0)));
    assert_eq!(board.seats[7].state(), State::Asked);
}

#[test]
fn garbage_is_no_request() {
    let board = anonymous();
    let (place, _) = board.ask(Ask { offset: u64::MAX, ..ask() }).unwrap();
    assert_eq!(board.seats[place].asked(), None);
    board.seats[place].offset.store(0, Ordering::Relaxed);
    board.seats[place].kind.store(77, Ordering::Relaxed);
    assert_eq!(board.seats[place].asked(), None);
    board.seats[place].word.store(77, Ordering::Relaxed);
    assert_eq!(board.seats[place].state(), State::Left, "the agent frees it");
}
