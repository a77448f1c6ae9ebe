//! The guardian of a mount: a process that unmounts the folder if the process of the mount is
//! killed. Otherwise every use of the folder would fail with `Transport endpoint is not connected`
//! until a user unmounts it.
//!
//! The mount starts the guardian and keeps a pipe to it. It writes the device number and the folder
//! of the mount into the pipe, and takes leave when it ends in good order. If the pipe closes
//! without that, the guardian unmounts. The device number alone would not do: the kernel gives it
//! to another mount when this one has gone.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use rustix::mount::UnmountFlags;

/// The hidden command of eyas that runs the guardian.
const COMMAND: &str = "guard-mount";

/// The type of a mount in lists of mounts.
const KIND: &[u8] = b"fuse.eyas";

/// The word by which a mount that ends in good order takes leave.
const LEAVE: &[u8] = b"leave";

/// A running guardian.
pub struct MountGuardian {
    pipe: ChildStdin,
    /// The mount that it guards; empty before there is one.
    identity: Vec<u8>,
}

impl MountGuardian {
    /// Starts a guardian, before anything is mounted: it must not have the descriptor of the mount.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(eyas: &Path) -> io::Result<Self> {
        let mut command = Command::new(eyas);
        // In a process group of its own, the guardian gets no interrupts of the terminal.
        command.arg(COMMAND).process_group(0).current_dir("/");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(MountGuardian { pipe, identity: Vec::new() })
    }

    /// Tells the guardian which mount it guards: the last one on this folder.
    ///
    /// # Errors
    /// If there is none, or if the guardian has ended.
    pub fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let mounts = mounts()?;
        let mount =
            mounts.iter().rfind(|mount| mount.folder == folder).ok_or(io::ErrorKind::NotFound)?;
        self.identity.clone_from(&mount.identity);
        self.pipe.write_all(&[&mount.identity, &b"\n"[..]].concat())
    }

    /// Unmounts the folder, unless that was done already or a later mount covers it. Programs that
    /// still have files open do not keep the mount.
    ///
    /// # Errors
    /// If this user may not.
    pub fn unmount(&self) -> io::Result<()> {
        folder_of(&self.identity).map_or(Ok(()), |folder| unmount(&folder))
    }

    /// Takes leave.
    pub fn dismiss(&mut self) {
        // A guardian that is gone has nothing to do.
        let _ = self.pipe.write_all(&[LEAVE, b"\n"].concat());
    }
}

/// Runs the guardian until the process at the other end of standard input has ended.
pub fn run() {
    let mut identity = Vec::new();
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        if line == LEAVE {
            return;
        }
        identity = line;
    }
    if let Some(folder) = folder_of(&identity) {
        // An error cannot be reported anywhere.
        let _ = unmount(&folder);
    }
}

fn unmount(folder: &Path) -> io::Result<()> {
    if rustix::mount::unmount(folder, UnmountFlags::DETACH).is_ok() {
        return Ok(());
    }
    // Users other than root unmount by a program that is permitted to.
    let done = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(folder).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}

/// The folder of a mount, if it is the last one that was mounted there.
fn folder_of(identity: &[u8]) -> Option<PathBuf> {
    let mounts = mounts().unwrap_or_default();
    let place = mounts.iter().rposition(|mount| mount.identity == identity)?;
    let is_covered = mounts[place + 1..].iter().any(|later| later.folder == mounts[place].folder);
    (!is_covered).then(|| mounts[place].folder.clone())
}

/// Whether a mount of eyas is on this folder.
pub(crate) fn is_mounted(folder: &Path) -> bool {
    mounts().unwrap_or_default().iter().any(|mount| mount.is_of_eyas && mount.folder == folder)
}

/// A mounted file system.
struct MountedAt {
    is_of_eyas: bool,
    /// Its device, as `MAJOR:MINOR`, and its folder, as the kernel writes it: without line feeds.
    identity: Vec<u8>,
    folder: PathBuf,
}

/// The mounts that this process sees, in the order in which they were made.
fn mounts() -> io::Result<Vec<MountedAt>> {
    let lines = fs::read("/proc/self/mountinfo")?;
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, folder) = (fields.next()?, fields.nth(1)?);
        let identity = [device, b" ", folder].concat();
        // Optional fields end with a hyphen, which the type follows.
        let is_of_eyas =
            fields.find(|field| *field == b"-").and_then(|_| fields.next()) == Some(KIND);
        Some(MountedAt {
            is_of_eyas,
            identity,
            folder: PathBuf::from(OsStr::from_bytes(&unescaped(folder))),
        })
    };
    Ok(lines.split(|byte| *byte == b'\n').filter_map(mount).collect())
}

/// Replaces the codes of the kernel for spaces and the like: a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .first_chunk::<3>()
            .filter(|code| *first == b'\\' && code.iter().all(u8::is_ascii_digit));
        match code {
            Some(code) => {
                bytes.push(
                    code.iter().fold(0, |value: u8, digit| {
                        value.wrapping_mul(8).wrapping_add(digit - b'0')
                    }),
                );
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mounts_are_read() {
        assert_eq!(unescaped(br"/mnt/a\040b\134c"), br"/mnt/a b\c");
        assert_eq!(unescaped(br"/mnt\"), br"/mnt\");
        assert!(mounts().unwrap().iter().any(|mount| mount.folder == Path::new("/")));
    }
}
