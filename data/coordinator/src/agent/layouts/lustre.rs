//! Layouts of Lustre, which an extended attribute has: `struct lov_user_md` of `lustre_user.h`, in
//! the byte order of this machine.
//!
//! | at | bytes | plain layout |
//! | --- | --- | --- |
//! | 0 | 4 | magic number: of version 1, or of version 3 |
//! | 24 | 4 | bytes of a stripe |
//! | 28 | 2 | number of stripes |
//! | 32 | 16 | version 3 only: name of the pool |
//! | then | 24 each | objects of the stripes, each with the number of its target at 20 |
//!
//! | at | bytes | composite layout |
//! | --- | --- | --- |
//! | 0 | 4 | magic number |
//! | 14 | 2 | number of components |
//! | 32 | 48 each | components: flags at 4, their bytes of the file from 8 to 16, and place and |
//! | | | size of their plain layout at 24 and 28 |

use std::path::PathBuf;

use eyas_ioq::{FileLayout, StripedRegion};

const ATTRIBUTE: &str = "lustre.lov";
/// Largest attribute in Linux.
const MAX_BYTES: usize = 64 << 10;

const PLAIN_1: u32 = 0x0bd1_0bd0;
const PLAIN_3: u32 = 0x0bd3_0bd0;
const COMPOSITE: u32 = 0x0bd6_0bd0;
/// Flag of a component whose objects exist.
const INITIALIZED: u32 = 0x10;

/// Layout of a file.
pub(super) fn read(path: &PathBuf) -> Option<FileLayout> {
    let mut room = vec![0; MAX_BYTES];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut room).ok()?;
    layout(room.get(..length)?)
}

fn layout(attribute: &[u8]) -> Option<FileLayout> {
    if u32_at(attribute, 0)? != COMPOSITE {
        return Some(FileLayout(vec![plain(attribute, 0)?]));
    }
    let mut regions: Vec<StripedRegion> = Vec::new();
    let mut end = 0;
    for component in 0..usize::from(u16_at(attribute, 14)?) {
        let component = attribute.get(32 + 48 * component..)?;
        let (first, after) = (u64_at(component, 8)?, u64_at(component, 16)?);
        // The components of further mirrors begin at the beginning again.
        if u32_at(component, 4)? & INITIALIZED == 0 || first < end {
            continue;
        }
        let (place, bytes) = (u32_at(component, 24)? as usize, u32_at(component, 28)? as usize);
        // Bytes that the metadata server has are on none of these servers.
        regions.extend(plain(attribute.get(place..)?.get(..bytes)?, first));
        end = after;
    }
    Some(FileLayout(regions))
}

/// A plain layout, of the bytes of the file from `offset` on.
fn plain(layout: &[u8], offset: u64) -> Option<StripedRegion> {
    let objects = match u32_at(layout, 0)? {
        PLAIN_1 => 32,
        PLAIN_3 => 48,
        _ => return None,
    };
    let stripe_bytes = u32_at(layout, 24)?.into();
    let target = |stripe| u32_at(layout, objects + 24 * stripe + 20);
    let servers: Vec<u32> =
        (0..usize::from(u16_at(layout, 28)?)).map(target).collect::<Option<_>>()?;
    (!servers.is_empty() && stripe_bytes > 0).then_some(StripedRegion {
        offset,
        stripe_bytes,
        servers,
    })
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain layout as Lustre's client tells it.
    fn plain_attribute(magic: u32, stripe_bytes: u32, targets: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(magic.to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend([7; 16]);
        bytes.extend(stripe_bytes.to_ne_bytes());
        bytes.extend((targets.len() as u16).to_ne_bytes());
        bytes.extend(3_u16.to_ne_bytes());
        if magic == PLAIN_3 {
            bytes.extend(b"flash\0\0\0\0\0\0\0\0\0\0\0");
        }
        for target in targets {
            bytes.extend([9; 20]);
            bytes.extend(target.to_ne_bytes());
        }
        bytes
    }

    /// A composite layout. `parts`: flags, first byte, end, and the plain layout.
    fn composite_attribute(parts: &[(u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(COMPOSITE.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((parts.len() as u16).to_ne_bytes());
        bytes.resize(32, 0);
        let mut place = 32 + 48 * parts.len();
        for (flags, first, end, plain) in parts {
            bytes.extend(1_u32.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(first.to_ne_bytes());
            bytes.extend(end.to_ne_bytes());
            bytes.extend((place as u32).to_ne_bytes());
            bytes.extend((plain.len() as u32).to_ne_bytes());
            bytes.extend([0; 16]);
            place += plain.len();
        }
        parts.iter().for_each(|(_, _, _, plain)| bytes.extend(plain));
        bytes
    }

    fn region(offset: u64, stripe_bytes: u64, servers: &[u32]) -> StripedRegion {
        StripedRegion { offset, stripe_bytes, servers: servers.to_vec() }
    }

    #[test]
    fn plain_layouts_name_the_target_of_each_stripe() {
        for magic in [PLAIN_1, PLAIN_3] {
            let found = layout(&plain_attribute(magic, 1 << 20, &[5, 0, 17]));
            assert_eq!(found, Some(FileLayout(vec![region(0, 1 << 20, &[5, 0, 17])])));
        }
    }

    #[test]
    fn composite_layouts_have_regions() {
        let plain = |targets: &[u32]| plain_attribute(PLAIN_3, 1 << 20, targets);
        let (mib, end) = (1 << 20, u64::MAX);
        let found = layout(&composite_attribute(&[
            (INITIALIZED, 0, mib, plain(&[4])),
            (INITIALIZED, mib, 64 * mib, plain(&[1, 2])),
            (0, 64 * mib, end, plain(&[])),
            (INITIALIZED, 0, end, plain(&[8])),
        ]));
        let expected = vec![region(0, mib, &[4]), region(mib, mib, &[1, 2])];
        assert_eq!(found, Some(FileLayout(expected)), "the last one is a mirror");
        // The first bytes of small files may be on the metadata server.
        let found = layout(&composite_attribute(&[
            (INITIALIZED, 0, mib, plain(&[])),
            (INITIALIZED, mib, end, plain(&[3])),
        ]));
        assert_eq!(found, Some(FileLayout(vec![region(mib, mib, &[3])])));
    }

    #[test]
    fn what_ends_too_early_is_no_layout() {
        let plain = plain_attribute(PLAIN_1, 1 << 20, &[5, 6]);
        let composite = composite_attribute(&[(INITIALIZED, 0, 9, plain.clone())]);
        for whole in [plain, composite] {
            for length in 0..whole.len() {
                assert_eq!(layout(&whole[..length]), None, "{length}");
            }
            assert!(layout(&whole).is_some());
        }
        assert_eq!(layout(&plain_attribute(7, 1, &[1])), None);
        assert_eq!(layout(&plain_attribute(PLAIN_1, 0, &[1])), None);
    }

    #[test]
    fn other_file_systems_have_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(read(&file.path().to_owned()), None);
    }
}
