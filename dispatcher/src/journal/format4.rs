//! The journal's format 4, which is read once and written again in the present one. Snapshots did not have the numbers
//! of starts of tasks that were in vain.

use redb::{ReadableTable, WriteTransaction};

use super::read::read_parts;
use super::write::put_parts;
use super::{JournalProblem, SNAPSHOTS};

/// What postcard writes for an empty list. The starts are the last field of snapshots.
const NO_RESTARTS: u8 = 0;

/// Writes snapshots again in the present format.
pub(super) fn migrate(write: &WriteTransaction) -> Result<(), JournalProblem> {
    append_to_snapshots(write, NO_RESTARTS)
}

/// Adds a byte to each snapshot.
pub(super) fn append_to_snapshots(write: &WriteTransaction, byte: u8) -> Result<(), JournalProblem> {
    let mut snapshots = write.open_table(SNAPSHOTS)?;
    let mut next = 0;
    loop {
        let row = snapshots.range((next, 0)..)?.next().transpose()?;
        let Some(job) = row.map(|(key, _)| key.value().0) else { break };
        let mut snapshot = read_parts(&snapshots, job)?.unwrap_or_default();
        snapshot.push(byte);
        put_parts(&mut snapshots, job, &snapshot)?;
        let Some(after) = job.checked_add(1) else { break };
        next = after;
    }
    Ok(())
}
