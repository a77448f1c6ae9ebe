//! The guide in the README, followed from an empty folder: its commands run as they stand there.
//! And the experiment about the portal, in miniature.

mod site;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use site::Programs;

/// A cluster that the guide has started ends with the test.
struct Guide<'a> {
    programs: &'a Programs,
    folder: &'a Path,
}

impl Guide<'_> {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path =
            std::env::join_paths([self.folder.join("bin"), "/usr/bin".into(), "/bin".into()]);
        command.env("PATH", path.unwrap()).env("EYAS_HOME", self.folder.join("home"));
        command.env("TMPDIR", self.folder).env_remove("EYAS_CLUSTER").env_remove("EYAS_ACCESS");
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Guide<'_> {
    fn drop(&mut self) {
        let mut stop = self.command(&self.programs.eyas);
        let _ = stop.args(["stop", "--cluster", "sky"]).stderr(Stdio::null()).status();
    }
}

#[test]
fn the_guide_leads_from_an_empty_folder_to_an_image() {
    let Some(programs) = Programs::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let guide = Guide { programs: &programs, folder };
    let work = folder.join("work");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir(folder.join("bin")).unwrap();
    for (name, path) in programs.all() {
        std::os::unix::fs::symlink(path, folder.join("bin").join(name)).unwrap();
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    // What the guide leaves running if a command fails is killed with its group.
    let script: String =
        ["trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"].into_iter().chain(blocks).collect();
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut bash = guide.command(Path::new("bash"));
    bash.args(["-euo", "pipefail", "-c", &script]).current_dir(&work).process_group(0);
    let ended = bash.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(ended.success(), "{log}");
    assert!(log.contains("<TD>signal_to_noise</TD>"), "{log}");
    assert!(fs::read(work.join("stacked.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(fs::read(work.join("stacked.fits")).unwrap().starts_with(b"SIMPLE  ="));
}

#[test]
fn the_experiment_about_the_share_of_the_portal_runs() {
    let Some(programs) = Programs::found() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments/portal_share.py");
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command.arg(script).arg("--tiny").env("TMPDIR", folder.path());
    command.env("EYAS_BIN", &programs.eyas);
    command.env("PORTAL_PROGRAMS", Path::new(env!("CARGO_BIN_EXE_astroportal")).parent().unwrap());
    let done = command.env_remove("EYAS_CLUSTER").env_remove("EYAS_ACCESS").output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{printed}{why}");
    assert!(printed.contains("the same to the bit"), "{printed}{why}");
}
