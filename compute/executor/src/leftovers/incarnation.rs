//! The name of one process, which no other process has: not a later one with the same number, nor
//! one on another host, in another container, or before the last boot. Tasks carry the name of
//! their executor, so any process that finds a process of a task can tell whether the task's
//! executor lives.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use crate::process::procfs::start_and_state;

/// A unique name of a process: its id, start time, namespace of process ids, and the boot id of its
/// host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    process: i32,
    /// In ticks since the boot.
    started: u64,
    /// The inode of the namespace of process numbers.
    namespace: u64,
    /// The beginning of the boot id.
    boot: String,
}

/// Digits of the boot id in a name.
const BOOT_DIGITS: usize = 12;

impl Incarnation {
    /// The name of this process.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn own() -> io::Result<Self> {
        Incarnation::of(std::process::id() as i32)
    }

    /// The name of the parent of this process.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or the parent is in another namespace.
    pub fn parent() -> io::Result<Self> {
        let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
        Incarnation::of(parent.as_raw_nonzero().get())
    }

    fn of(process: i32) -> io::Result<Self> {
        let (started, _) = start_and_state(process).ok_or(io::ErrorKind::NotFound)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = boot.chars().filter(char::is_ascii_hexdigit).take(BOOT_DIGITS).collect();
        Ok(Incarnation {
            process,
            started,
            namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
            boot,
        })
    }

    /// The process id, if this process can see the other one.
    pub fn local(&self) -> Option<i32> {
        let own = Incarnation::own().ok()?;
        (own.boot == self.boot && own.namespace == self.namespace).then_some(self.process)
    }

    /// Whether the process is known to have ended. `false` for a process that cannot be seen from
    /// here.
    pub fn is_gone(&self) -> bool {
        self.local().is_some_and(|process| {
            start_and_state(process).is_none_or(|(started, state)| {
                started != self.started || matches!(state, 'Z' | 'X')
            })
        })
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.process, self.started, self.namespace, self.boot)
    }
}

/// The text is not the name of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIncarnation;

impl FromStr for Incarnation {
    type Err = NoIncarnation;

    fn from_str(text: &str) -> Result<Self, NoIncarnation> {
        let mut parts = text.splitn(4, '-');
        let mut next = || parts.next().ok_or(NoIncarnation);
        let process = next()?.parse().ok().filter(|process| *process > 0).ok_or(NoIncarnation)?;
        let started = next()?.parse().map_err(|_| NoIncarnation)?;
        let namespace = next()?.parse().map_err(|_| NoIncarnation)?;
        let boot = next()?;
        let is_boot = boot.len() == BOOT_DIGITS && boot.chars().all(|c| c.is_ascii_hexdigit());
        if !is_boot {
            return Err(NoIncarnation);
        }
        Ok(Incarnation { process, started, namespace, boot: boot.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_as_it_is_written_and_names_one_process() {
        let own = Incarnation::own().unwrap();
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        assert!(!own.is_gone() && own.local() == Some(std::process::id() as i32));
        // Another process with the same number.
        assert!(Incarnation { started: own.started + 1, ..own.clone() }.is_gone());
        // Processes that cannot be seen from here.
        for other in [
            Incarnation { boot: "0".repeat(12), ..own.clone() },
            Incarnation { namespace: 1, ..own.clone() },
        ] {
            assert!(other.local().is_none() && !other.is_gone());
        }
        for wrong in [
            "",
            "1-2-3",
            "x-2-3-0123456789ab",
            "1-2-3-../etc/pass",
            "0-2-3-0123456789ab",
            "1-2-3-0123456789abc",
        ] {
            assert_eq!(wrong.parse::<Incarnation>(), Err(NoIncarnation), "{wrong}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_gone_even_if_it_is_not_reaped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let name = Incarnation::of(child.id() as i32).unwrap();
        assert!(!name.is_gone());
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !name.is_gone() {
            assert!(std::time::Instant::now() < deadline, "it was killed");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(name.is_gone());
    }
}
