//! Small disks, mounted for one test.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A small file system of its own, gone when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a tmpfs with these options. If this user may not mount it, prints that nothing is
    /// tested.
    pub fn mount(options: &str) -> Option<Self> {
        let folder = TempDir::with_prefix("eyas-test-disk-").expect("a temporary folder");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null());
        let is_mounted = mount.status().is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("SKIPPED: this user may not mount a small file system");
        }
        is_mounted.then_some(SmallDisk(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.0.path()).status();
        assert!(
            status.is_ok_and(|status| status.success()) || std::thread::panicking(),
            "cannot unmount"
        );
    }
}
