//! Slow shared disks: mounts of the emulation in `dev/src/bin/slow-disk`.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;

use super::{Home, is_root, wait_until_ready};

const PROGRAM: &str = env!("CARGO_BIN_EXE_slow-disk");

/// A disk whose files lie in a folder of the test's home.
pub struct SlowDisk {
    folder: PathBuf,
}

/// One mount of the disk, for one emulated node; unmounted when dropped.
pub struct SlowMount {
    path: PathBuf,
    process: Child,
}

impl SlowDisk {
    /// A new disk. If this user may not mount it, prints that nothing is tested.
    pub fn new(home: &Home) -> Option<Self> {
        let missing = match (is_root(), Path::new("/dev/fuse").exists()) {
            (true, true) => None,
            (false, _) => Some("the rights of root"),
            (_, false) => Some("/dev/fuse"),
        };
        if let Some(missing) = missing {
            eprintln!("SKIPPED: a slow disk needs {missing}");
            return None;
        }
        let disk = SlowDisk { folder: home.path("slow-disk") };
        std::fs::create_dir_all(disk.source()).expect("a new folder");
        Some(disk)
    }

    /// Folder of the disk's files, for access without the emulated delay.
    pub fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Mounts the disk with these additional options.
    pub fn mount(&self, name: &str, options: &[&str]) -> SlowMount {
        let path = self.folder.join(name);
        let mut process = self
            .command(name, options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        wait_until_ready(&mut process);
        SlowMount { path, process }
    }

    /// The process that serves the mount until its standard input ends.
    pub fn command(&self, name: &str, options: &[&str]) -> Command {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        let mut command = Command::new(PROGRAM);
        command
            .arg("mount")
            .args([self.source(), path])
            .arg("--state")
            .arg(self.state())
            .args(options);
        command
    }

    /// Sets the duration of a seek.
    pub fn seek_ms(&self, ms: u64) {
        let state = std::fs::OpenOptions::new()
            .write(true)
            .open(self.state())
            .expect("it has been mounted");
        // Without the lock, a request that is being served may write the earlier number back. It
        // ends with the file.
        flock(&state, FlockOperation::LockExclusive).expect("our own file");
        // The second number of its state; see `slow-disk/state.rs`.
        state.write_all_at(&(ms * 1_000_000).to_le_bytes(), 8).expect("our own file");
    }

    /// A counter of the disk.
    pub fn count(&self, name: &str) -> u64 {
        let output = Command::new(PROGRAM)
            .arg("stat")
            .arg(self.state())
            .output()
            .expect("it can be started");
        let counters: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        counters[name].as_u64().unwrap_or_else(|| panic!("no `{name}` in {counters}"))
    }
}

impl SlowMount {
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Kills the process that serves the mount.
    pub fn kill(&mut self) {
        self.process.kill().expect("our own child");
        self.process.wait().expect("our own child");
    }
}

impl Drop for SlowMount {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("our own child");
        if !status.success() {
            // The process was killed: its mount still exists, but does not answer.
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}
