//! A power cut at all nodes, just after a program has written through a mount. The folders of the
//! executors are on a small disk, whose image is copied while they stand still: what the kernel has
//! only in memory is not in the copy.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::dfs::{NODE, joined};
use crate::support::{Cluster, Home, MountedFiles, can_mount, wait_until};

const NODES: usize = 3;
const DISK_BYTES: u64 = 256 << 20;

/// A disk with a file system, in an image.
struct DiskImage(TempDir);

impl DiskImage {
    /// `None` if this user may not mount it.
    fn mount() -> Option<Self> {
        let disk = DiskImage(TempDir::with_prefix("eyas-test-power-").unwrap());
        fs::create_dir(disk.folder()).unwrap();
        File::create(disk.image()).unwrap().set_len(DISK_BYTES).unwrap();
        let made =
            Command::new("mkfs.ext4").arg("-q").arg(disk.image()).stderr(Stdio::null()).status();
        let is_mounted = made.is_ok_and(|made| made.success()) && disk.put(&disk.image());
        assert!(
            is_mounted || std::env::var_os("CI").is_none(),
            "CI cannot mount the image of a disk"
        );
        if !is_mounted {
            eprintln!("SKIPPED: this user cannot mount the image of a disk");
        }
        is_mounted.then_some(disk)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    /// Mounts an image. Returns whether that is possible.
    fn put(&self, image: &Path) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(image).arg(self.folder()).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success())
    }

    /// The counters of the disk: requests that were written, and those under way.
    fn written(&self) -> (u64, u64) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let at = |line: &&str| line.split(' ').nth(1) == self.folder().to_str();
        let device =
            mounts.lines().find(at).and_then(|line| line.split(' ').next()).expect("it is mounted");
        let stat =
            fs::read_to_string(format!("/sys/block/{}/stat", device.trim_start_matches("/dev/")))
                .unwrap();
        let numbers: Vec<u64> =
            stat.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (numbers[4], numbers[8])
    }

    /// The image as it is at a moment.
    fn copy(&self) -> PathBuf {
        let copy = self.0.path().join("copy");
        loop {
            let before = self.written();
            fs::copy(self.image(), &copy).unwrap();
            if before.1 == 0 && self.written() == before {
                return copy;
            }
        }
    }

    /// Puts the disk of this image in the place of the disk.
    fn replace(&self, image: PathBuf) {
        assert!(Command::new("umount").arg("-l").arg(self.folder()).status().unwrap().success());
        assert!(self.put(&image), "the copy is mounted");
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder()).stderr(Stdio::null()).status();
    }
}

fn start_nodes(cluster: &mut Cluster, disk: &Path) {
    for node in 0..NODES {
        let folder = disk.join(node.to_string());
        cluster.add_executor(&[NODE, &["--folder", folder.to_str().unwrap()]].concat());
    }
}

#[test]
fn synced_content_survives_later_writes_and_a_power_cut() {
    if !can_mount() {
        return;
    }
    let Some(disk) = DiskImage::mount() else { return };
    let mut cluster = Cluster::start_in(Home::new(), &[]);
    start_nodes(&mut cluster, &disk.folder());
    joined(&cluster, NODES);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let synced: Vec<u8> =
        (0..750_000_u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let mut file = File::create(mount.path("file")).unwrap();
    file.write_all(&synced).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // Closed, and not synced.
    File::options().append(true).open(mount.path("file")).unwrap().write_all(b"a line\n").unwrap();
    fs::write(mount.path("new"), &synced).unwrap();
    (1..=NODES).for_each(|node| cluster.executor(node).suspend());
    let copy = disk.copy();
    (1..=NODES).for_each(|node| cluster.executor(node).kill());
    mount.kill();
    disk.replace(copy);
    start_nodes(&mut cluster, &disk.folder());
    joined(&cluster, NODES);

    let mount = MountedFiles::begin(&cluster, "again", &[]);
    let read = |name: &str| fs::read(mount.path(name));
    wait_until("the file can be read", || read("file").is_ok());
    let found = read("file").unwrap();
    assert!(
        found == synced || found == [&synced[..], b"a line\n"].concat(),
        "{} bytes",
        found.len()
    );
    // A new file is there as a whole, or not at all.
    wait_until("the new file is whole or gone", || match read("new") {
        Ok(found) => found == synced,
        Err(_) => !mount.path("new").exists(),
    });
    mount.end();
}
