//! The owner, permissions and time of what this process creates.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use eyas_types::dfs::{Attributes, MODE_BITS};

/// Owner, permissions and time of a new entry, and whether its folder is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Permission bits.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Time of the last write, nanoseconds since 1970; `None` for the time of creation.
    pub modified_ns: Option<u64>,
    /// Whether missing folders above the entry are made. Otherwise the caller has checked that its
    /// folder exists.
    pub makes_parents: bool,
}

impl Creation {
    /// Owned by the effective user and group of this process, or by the [owner](own_as) that was
    /// set. Has these permissions without those of the umask. Makes missing folders.
    pub fn of_process(mode: u16) -> Self {
        let of_system =
            || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (uid, gid) = OWNER.get().copied().unwrap_or_else(of_system);
        Creation { mode: mode & !umask(), uid, gid, modified_ns: None, makes_parents: true }
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let Creation { mode, uid, gid, modified_ns, .. } = *self;
        let changed_ns = now_ns();
        Attributes {
            mode: mode & MODE_BITS,
            uid,
            gid,
            modified_ns: modified_ns.unwrap_or(changed_ns),
            changed_ns,
        }
    }
}

/// The owner of what this process creates, if it is not its effective user.
static OWNER: OnceLock<(u32, u32)> = OnceLock::new();

/// Makes this user and group the owner of everything that this process creates from now on. The
/// first call counts.
pub fn own_as(uid: u32, gid: u32) {
    let _ = OWNER.set((uid, gid));
}

/// The umask of this process when it is first asked for.
fn umask() -> u16 {
    static UMASK: OnceLock<u16> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        mask.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// The present time, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
