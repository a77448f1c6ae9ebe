//! Mounts of a cluster's files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{Cluster, CommandOutput, finish, is_root, signal, wait_until};

/// The files of a cluster in a folder. Unmounted when dropped.
pub struct MountedFiles {
    folder: PathBuf,
    process: Option<Child>,
}

/// Whether this user can mount. If not, prints that nothing is tested; in CI, that is a failure.
pub fn can_mount() -> bool {
    let can = is_root() && Path::new("/dev/fuse").exists();
    assert!(
        can || std::env::var_os("CI").is_none(),
        "CI cannot mount: it needs root and /dev/fuse"
    );
    if !can {
        eprintln!("SKIPPED: a mount needs root and /dev/fuse");
    }
    can
}

impl MountedFiles {
    /// Mounts the cluster's files on a folder of the home with this name.
    pub fn begin(cluster: &Cluster, name: &str, options: &[&str]) -> Self {
        MountedFiles::start(cluster, name, |place| {
            cluster.spawn_on(&[&["mount", place], options].concat())
        })
    }

    /// The same with another access file.
    pub fn with_key(cluster: &Cluster, name: &str, access: &str) -> Self {
        MountedFiles::start(cluster, name, |place| {
            cluster.spawn(&["--access", access, "mount", place])
        })
    }

    fn start(cluster: &Cluster, name: &str, mount: impl FnOnce(&str) -> Child) -> Self {
        let folder = cluster.path(name);
        std::fs::create_dir_all(&folder).expect("our own folder");
        let outside = std::fs::metadata(&folder).expect("a folder").dev();
        let place = folder.to_str().expect("a plain name");
        let process = mount(place);
        let mount = MountedFiles { folder, process: Some(process) };
        wait_until("the files are mounted", || {
            std::fs::metadata(&mount.folder).is_ok_and(|folder| folder.dev() != outside)
        });
        mount
    }

    /// A path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The process that serves the mount.
    pub fn process(&self) -> u32 {
        self.process.as_ref().expect("it is mounted").id()
    }

    /// Runs Python in the root of the mount. Tests of files that are open use this: the test
    /// process starts programs of other tests meanwhile, which close copies of its descriptors, and
    /// closing publishes a file.
    #[track_caller]
    pub fn python(&self, script: &str) -> CommandOutput {
        let mut command = Command::new("python3");
        command.args(["-I", "-c", script]).current_dir(&self.folder).stdin(Stdio::null());
        finish(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("Python can be started"),
        )
    }

    /// Kills the process of the mount as a crash would, and waits until the folder is usable again.
    pub fn kill(mut self) {
        let mut process = self.process.take().expect("it is mounted");
        process.kill().expect("our own child");
        process.wait().expect("our own child");
        wait_until("the folder is unmounted", || {
            std::fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_none())
        });
    }

    /// Ends the mount by a signal. Returns what it said.
    #[track_caller]
    pub fn end(mut self) -> CommandOutput {
        let process = self.process.take().expect("it is mounted");
        signal(process.id(), Signal::TERM);
        finish(process).exits(0)
    }

    /// Runs a shell script in the root of the mount.
    #[track_caller]
    pub fn shell(&self, script: &str) -> CommandOutput {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        finish(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("bash can be started"),
        )
    }
}

impl Drop for MountedFiles {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            signal(process.id(), Signal::TERM);
            let done = finish(process);
            if std::thread::panicking() {
                eprintln!("the mount: exit code {}\n{}{}", done.code, done.stdout, done.stderr);
            } else {
                done.exits(0);
            }
        }
    }
}
