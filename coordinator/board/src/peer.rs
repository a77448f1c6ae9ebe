//! Who is at the other end of a socket between a program and an agent.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::geteuid;

/// The superuser, whom everyone has to trust.
const ROOT: u32 = 0;

/// A process, as the kernel knew it when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number in this process's namespace of processes, or 0 if it has none there.
    pub process: u32,
    /// Its user, as this process's namespace of users has them.
    pub user: u32,
}

impl Peer {
    /// Who is at the other end of a connection.
    ///
    /// # Errors
    /// If it is no socket between processes of a node.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        // `rustix` has no process of number 0, which the kernel has for those of another namespace.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let number: c_int = socket.as_fd().as_raw_fd();
        let into = (&raw mut found).cast();
        // SAFETY: the descriptor is open, and the kernel writes no more than so many bytes there; all are valid.
        match unsafe { libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut bytes) } {
            0 => Ok(Peer { process: found.pid.cast_unsigned(), user: found.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether this process may answer it, and believe what it says: it is of the same user, or the superuser's.
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
