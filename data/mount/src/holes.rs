//! Holes of files, as programs ask for them (`SEEK_DATA`, `SEEK_HOLE`) and as `stat` counts them.

use std::ops::Range;

use eyas_files::holes;
use fuser::Errno;

use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::inode::Inode;

/// Where the next hole begins from an offset on, or the next data if `is_hole` is not set. A file
/// ends with a hole.
pub(crate) async fn seek(
    entries: &Entries,
    node: &Inode,
    offset: u64,
    is_hole: bool,
) -> Result<u64, MountFailure> {
    let is_unknown = {
        let state = node.state();
        state.file().is_none() && state.draft().is_none()
    };
    if is_unknown {
        entries.refresh(node).await?;
    }
    let state = node.state();
    let size_bytes = state.size_bytes();
    if offset >= size_bytes {
        return Err(Errno::ENXIO.into());
    }
    let found = match (state.draft(), state.file()) {
        (Some(draft), _) => first(draft.holes().into_iter(), size_bytes, offset, is_hole),
        (None, Some(file)) => first(holes(&file.record), size_bytes, offset, is_hole),
        (None, None) => return Err(Errno::ESTALE.into()),
    };
    found.ok_or_else(|| Errno::ENXIO.into())
}

/// The first byte from an offset on that is in a hole, or in none; the end of the file counts as a
/// hole. Holes are in order.
fn first(
    holes: impl Iterator<Item = Range<u64>>,
    size_bytes: u64,
    offset: u64,
    is_hole: bool,
) -> Option<u64> {
    let mut at = offset;
    for hole in holes.skip_while(|hole| hole.end <= offset) {
        if is_hole {
            return Some(hole.start.max(offset));
        }
        if at < hole.start {
            return Some(at);
        }
        at = hole.end;
    }
    match is_hole {
        true => Some(size_bytes),
        false => Some(at).filter(|at| *at < size_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_holes_are_found() {
        let first = |offset, is_hole| first([4..8, 8..10, 15..20].into_iter(), 20, offset, is_hole);
        for (offset, data, hole) in [
            (0, Some(0), Some(4)),
            (3, Some(3), Some(4)),
            (4, Some(10), Some(4)),
            (9, Some(10), Some(9)),
            (10, Some(10), Some(15)),
            (14, Some(14), Some(15)),
            (15, None, Some(15)),
        ] {
            assert_eq!((first(offset, false), first(offset, true)), (data, hole), "{offset}");
        }
        assert_eq!(super::first(std::iter::once(0..2), 5, 3, true), Some(5));
    }
}
