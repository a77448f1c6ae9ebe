//! How BeeGFS stripes a file: its ioctls, from `beegfs_ioctl.h` of its client.

use core::ffi::{c_char, c_ulong};

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io;

use crate::last_error::last_error;

/// Type and numbers of the ioctls.
const KIND: c_ulong = b'f' as c_ulong;
const GET_STRIPE_INFO: c_ulong = 25;
const GET_STRIPE_TARGET: c_ulong = 26;

/// How a file is striped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeInfo {
    /// 1: plain stripes; 3: each stripe is on two mirrors.
    pub pattern: u32,
    /// Bytes of a stripe.
    pub stripe_bytes: u32,
    /// Number of targets, which take stripes in turns.
    pub targets: u16,
}

#[repr(C)]
struct StripeTarget {
    index: u16,
    target: u16,
    node: u16,
    name: [c_char; 256],
}

/// How a file is striped.
///
/// # Errors
/// If it is not a file of BeeGFS, mostly `ENOTTY`.
pub fn stripe_info(file: BorrowedFd<'_>) -> io::Result<StripeInfo> {
    let mut told = StripeInfo::default();
    let request = reading::<StripeInfo>(GET_STRIPE_INFO);
    // SAFETY: the kernel writes at most the size that is in the number of the request.
    match unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut told) } {
        0 => Ok(told),
        _ => Err(last_error()),
    }
}

/// Number of the target that takes stripes after this many others of the file.
///
/// # Errors
/// If there are fewer.
pub fn stripe_target(file: BorrowedFd<'_>, index: u16) -> io::Result<u16> {
    let mut told = StripeTarget { index, target: 0, node: 0, name: [0; 256] };
    let request = reading::<StripeTarget>(GET_STRIPE_TARGET);
    // SAFETY: the kernel reads and writes at most the size that is in the number of the request.
    match unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut told) } {
        0 => Ok(told.target),
        _ => Err(last_error()),
    }
}

/// Number of an ioctl that reads a `T`: `_IOR` of C.
const fn reading<T>(number: c_ulong) -> c_ulong {
    2 << 30 | (size_of::<T>() as c_ulong) << 16 | KIND << 8 | number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ioctls_have_the_numbers_of_the_client() {
        assert_eq!(reading::<StripeInfo>(GET_STRIPE_INFO), 0x800c_6619);
        assert_eq!(reading::<StripeTarget>(GET_STRIPE_TARGET), 0x8106_661a);
    }
}
