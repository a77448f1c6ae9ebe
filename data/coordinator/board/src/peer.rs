//! Identity of the process at the other end of a local socket.

use core::ffi::c_int;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io;
use rustix::process::geteuid;

use crate::last_error::last_error;

/// The superuser, trusted by all.
const ROOT: u32 = 0;

/// A process, as the kernel recorded it when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id in this process's namespace, or 0 if it has none there.
    pub process: u32,
    /// User id in this process's namespace.
    pub user: u32,
}

impl Peer {
    /// The process at the other end of a connection.
    ///
    /// # Errors
    /// If the socket does not connect processes of one node.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        // `rustix` has no process id 0, which the kernel reports for processes of another
        // namespace.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let number: c_int = socket.as_fd().as_raw_fd();
        let into = (&raw mut found).cast();
        // SAFETY: the descriptor is open, and the kernel writes at most `bytes` bytes; all bit
        // patterns are valid.
        match unsafe {
            libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut bytes)
        } {
            0 => Ok(Peer { process: found.pid.cast_unsigned(), user: found.uid }),
            _ => Err(last_error()),
        }
    }

    /// Whether this process may serve and believe the peer: the peer runs as the same user or as
    /// the superuser.
    pub fn is_trusted(&self) -> bool {
        self.user == geteuid().as_raw() || self.user == ROOT
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peer_is_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        let found = Peer::of(&one).unwrap();
        assert_eq!(found, Peer { process: std::process::id(), user: geteuid().as_raw() });
        assert!(found.is_trusted());
        let stranger = Peer { user: geteuid().as_raw() + 1, ..found };
        assert!(!stranger.is_trusted());
        assert!(Peer { user: ROOT, ..found }.is_trusted());
        assert!(Peer::of(std::fs::File::open("/").unwrap()).is_err(), "no socket");
    }
}
