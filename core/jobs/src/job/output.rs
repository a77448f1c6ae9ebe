//! Captured output of tasks, which the journal keeps: its size, and cutting it where there is no
//! room.

use eyas_types::Outcome;

/// Bytes that the journal keeps of a task's output.
pub fn output_bytes(outcome: &Outcome) -> u64 {
    (outcome.stdout.len() + outcome.stderr.len()) as u64
}

/// Keeps at most `room` bytes of it, first of standard output. Bytes that are cut are counted.
pub(crate) fn cut_output(outcome: &mut Outcome, room: u64) {
    let before = output_bytes(outcome);
    let stdout = room.min(outcome.stdout.len() as u64);
    outcome.stdout.truncate(stdout as usize);
    outcome.stderr.truncate((room - stdout).min(outcome.stderr.len() as u64) as usize);
    outcome.cut_bytes += before - output_bytes(outcome);
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::Status;

    #[test]
    fn output_is_cut_from_its_end_and_counted() {
        for (room, kept) in [(0, (0, 0)), (4, (4, 0)), (7, (5, 2)), (8, (5, 3)), (u64::MAX, (5, 3))]
        {
            let mut outcome = Outcome {
                stdout: b"works".into(),
                stderr: b"err".into(),
                cut_bytes: 1,
                ..Outcome::of(Status::Succeeded)
            };
            cut_output(&mut outcome, room);
            assert_eq!((outcome.stdout.len(), outcome.stderr.len()), kept);
            assert_eq!(outcome.cut_bytes, 1 + 8 - output_bytes(&outcome));
        }
    }
}
