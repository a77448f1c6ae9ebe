//! The mount as `mount(8)`, `/etc/fstab` and systemd use it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::dfs::cluster;
use crate::support::{can_mount, can_use, eyas, wait_until};

/// Mounts in a name space of its own, in which the program has the name of a mount helper.
const SCRIPT: &str = r#"
mount -t tmpfs tmpfs /sbin
ln -s "$1" /sbin/mount.fuse.eyas
mount -T fstab "$PWD/mnt"
grep -c "^eyas:test $PWD/mnt fuse.eyas " /proc/self/mounts
mount -a -T fstab
grep -c " $PWD/mnt fuse.eyas " /proc/self/mounts
echo text > mnt/file
umount mnt
mount -t fuse.eyas eyas:test mnt -o "ro,access=$2"
cat mnt/file
! touch mnt/other 2> /dev/null
umount mnt
! mount -t fuse.eyas eyas:test mnt -o size=1 2>&1
! mount -t fuse.eyas eyas:none mnt > /dev/null 2>&1
"#;

#[test]
fn mount_and_fstab_mount_the_files() {
    if !can_mount() || !can_use(&["mount", "unshare"]) {
        return;
    }
    let cluster = cluster(1);
    let (place, access) =
        (cluster.work().join("mnt"), cluster.path("home/clusters/test/access.toml"));
    fs::create_dir(&place).unwrap();
    let options = format!(
        "_netdev,nofail,access={},scratch={}",
        access.display(),
        cluster.path("tmp").display()
    );
    cluster.write("fstab", format!("eyas:test {} fuse.eyas {options} 0 0\n", place.display()));
    let mut command =
        cluster.command_of(Command::new("unshare"), &["-m", "--propagation", "private"]);
    command.args(["bash", "-euo", "pipefail", "-c", SCRIPT, "boot"]).arg(eyas()).arg(access);
    let said = cluster.finish(command).exits(0).stdout;
    assert!(
        said.starts_with("1\n1\ntext\n") && said.contains("`size=1` is not an option of the mount"),
        "{said}"
    );
    assert_eq!(cluster.run(&["dfs", "cat", "/file"]).exits(0).stdout, "text\n");
    wait_until("the mounts have ended", || {
        !cluster.processes().iter().any(|(_, line)| line.contains("mount"))
    });
}

#[test]
fn the_unit_of_the_guide_is_one_of_systemd() {
    let is_there = Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok_and(|done| done.status.success());
    if !is_there {
        eprintln!("SKIPPED: systemd-analyze is missing");
        return;
    }
    let guide =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/mount.md"))
            .unwrap();
    let unit = guide.lines().skip_while(|line| *line != "    [Unit]");
    let unit: Vec<&str> = unit
        .map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some("")))
        .collect();
    let program = eyas().to_str().unwrap();
    assert!(unit.iter().any(|line| line.starts_with("ExecStart=/usr/bin/eyas mount ")), "{unit:?}");
    let folder = tempfile::TempDir::with_prefix("eyas-test-unit-").unwrap();
    let path = folder.path().join("eyas-lab.service");
    fs::write(&path, unit.join("\n").replace("/usr/bin/eyas", program)).unwrap();
    let mut command = Command::new("systemd-analyze");
    let done = command.args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !said.contains("eyas-lab.service"), "{said}");
}
