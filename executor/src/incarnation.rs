//! The name of one process, by which no other is meant: not a later one with its number, nor one on another host, in another
//! container, or before the last boot. Tasks carry their executor's; so whoever finds a process of a task can tell whether
//! its executor lives.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

/// A process that was there once. As text: its number, when it was started, its namespace of numbers, and its host's boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    process: i32,
    /// In ticks since the boot.
    started: u64,
    /// The inode of its namespace of process numbers.
    namespace: u64,
    /// The beginning of the boot's id.
    boot: String,
}

/// What there is of a boot's id in a name.
const BOOT_DIGITS: usize = 12;

impl Incarnation {
    /// This process.
    ///
    /// # Errors
    /// If `/proc` does not tell.
    pub fn own() -> io::Result<Self> {
        Incarnation::of(std::process::id() as i32)
    }

    /// The parent of this process.
    ///
    /// # Errors
    /// If `/proc` does not tell, or the parent is in another namespace.
    pub fn parent() -> io::Result<Self> {
        let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
        Incarnation::of(parent.as_raw_nonzero().get())
    }

    fn of(process: i32) -> io::Result<Self> {
        let (started, _) = started(process).ok_or(io::ErrorKind::NotFound)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = boot.chars().filter(char::is_ascii_hexdigit).take(BOOT_DIGITS).collect();
        Ok(Incarnation { process, started, namespace: fs::metadata("/proc/self/ns/pid")?.ino(), boot })
    }

    /// Its number, if it is a process that this one can see.
    pub fn local(&self) -> Option<i32> {
        let own = Incarnation::own().ok()?;
        (own.boot == self.boot && own.namespace == self.namespace).then_some(self.process)
    }

    /// Whether it is known to have ended. Of a process that cannot be seen from here, nothing is known.
    pub fn is_gone(&self) -> bool {
        self.local().is_some_and(|process| {
            started(process).is_none_or(|(started, state)| started != self.started || matches!(state, 'Z' | 'X'))
        })
    }
}

/// When a process was started, and what it does, by the letter of `/proc`.
fn started(process: i32) -> Option<(u64, char)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name, in parentheses, may have anything in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Fields 22 and 3 of proc_pid_stat(5).
    Some((fields.get(19)?.parse().ok()?, fields.first()?.chars().next()?))
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
    fn a_name_is_read_as_written_and_means_one_process() {
        let own = Incarnation::own().unwrap();
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        assert!(!own.is_gone() && own.local() == Some(std::process::id() as i32));
        // Another process with its number.
        assert!(Incarnation { started: own.started + 1, ..own.clone() }.is_gone());
        // Those that cannot be seen from here.
        for other in [Incarnation { boot: "0".repeat(12), ..own.clone() }, Incarnation { namespace: 1, ..own.clone() }]
        {
            assert!(other.local().is_none() && !other.is_gone());
        }
        for wrong in
            ["", "1-2-3", "x-2-3-0123456789ab", "1-2-3-../etc/pass", "0-2-3-0123456789ab", "1-2-3-0123456789abc"]
        {
            assert_eq!(wrong.parse::<Incarnation>(), Err(NoIncarnation), "{wrong}");
        }
    }

    #[test]
    fn one_that_has_ended_is_gone_also_while_nobody_has_reaped_it() {
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
