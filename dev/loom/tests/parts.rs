//! Model of a slot for parts that came from other nodes.

use eyas_board::{PartFile, PartSlot};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

const FILE: PartFile =
    PartFile { device: 1, inode: 2, size_bytes: 8, modified_ns: 3, changed_ns: 4 };

#[test]
fn a_program_copies_only_what_its_slot_was_filled_with_for_its_piece() {
    // Every load may see an older word, so all orders would be too many.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let slot = Arc::new(PartSlot::default());
        slot.fill(&FILE, 0, &[1; 8]);
        let other = slot.clone();
        let filling = thread::spawn(move || other.fill(&FILE, 1, &[2; 8]));
        let mut into = [0; 8];
        if slot.copy(&FILE, 0, 0, &mut into).is_some() {
            assert_eq!(into, [1; 8]);
        }
        filling.join().unwrap();
    });
}
