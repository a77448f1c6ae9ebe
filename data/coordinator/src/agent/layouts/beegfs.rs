//! Layouts of BeeGFS, whose client tells them by ioctls.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use eyas_board::{stripe_info, stripe_target};
use eyas_ioq::{FileLayout, StripedRegion};
use rustix::fs::OFlags;

/// Layout of a file. A mirrored file is taken to be on the first mirrors.
pub(super) fn read(path: &PathBuf) -> Option<FileLayout> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(without_waiting).open(path).ok()?;
    let info = stripe_info(file.as_fd()).ok()?;
    let target = |index| stripe_target(file.as_fd(), index).ok().map(u32::from);
    let targets = (0..info.targets).map(target).collect::<Option<Vec<_>>>()?;
    layout(info.stripe_bytes, targets)
}

/// Targets have numbers from 1.
fn layout(stripe_bytes: u32, targets: Vec<u32>) -> Option<FileLayout> {
    let servers = targets.into_iter().map(|target| target.checked_sub(1)).collect::<Option<_>>()?;
    Some(FileLayout(vec![StripedRegion { offset: 0, stripe_bytes: stripe_bytes.into(), servers }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_counted_from_1() {
        let found = layout(1 << 19, vec![2, 1, 700]).unwrap();
        assert_eq!(found.0[0].servers, [1, 0, 699]);
        assert_eq!(layout(1, vec![0]), None);
    }

    #[test]
    fn other_file_systems_have_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(read(&file.path().to_owned()), None);
        assert_eq!(read(&PathBuf::from("/missing")), None);
    }
}
