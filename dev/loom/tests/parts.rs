//! Models of slots for parts that came from other nodes.

mod shared;

use eyas_board::PartFile;
use loom::thread;
use shared::board;

const FILE: PartFile =
    PartFile { device: 1, inode: 2, size_bytes: 16, modified_ns: 3, changed_ns: 4 };

#[test]
fn what_a_program_copies_was_filled_at_once() {
    loom::model(|| {
        let board = board();
        let slot = &board.parts[0];
        slot.fill(&FILE, 0, &[1; 16]);
        let filling = thread::spawn(move || slot.fill(&FILE, 1, &[2; 16]));
        let mut into = [0; 16];
        for (number, byte) in [(0, 1), (1, 2)] {
            if slot.copy(&FILE, number, 0, &mut into).is_some() {
                assert_eq!(into, [byte; 16]);
            }
        }
        filling.join().unwrap();
        assert_eq!(slot.copy(&FILE, 1, 0, &mut into), Some(()));
        assert_eq!(into, [2; 16]);
    });
}
