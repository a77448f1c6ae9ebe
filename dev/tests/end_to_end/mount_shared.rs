//! What programs of several mounts may do with one file.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};

use crate::dfs::cluster;
use crate::support::{MountedFiles, can_mount};

#[test]
fn programs_of_two_mounts_that_append_lose_no_line() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mounts = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    let open =
        |mount: &MountedFiles, name: &str| OpenOptions::new().append(true).create(true).open(mount.path(name)).unwrap();
    fs::write(mounts[0].path("old"), "before\n").unwrap();
    // A new file, and one that is there. Each program opens it before the other one has closed it.
    for (name, expected) in [("new", "one\ntwo\nthree\n"), ("old", "before\none\ntwo\nthree\n")] {
        let [mut one, mut two] = [&mounts[0], &mounts[1]].map(|mount| open(mount, name));
        one.write_all(b"one\n").unwrap();
        two.write_all(b"two\n").unwrap();
        one.sync_all().unwrap();
        two.sync_all().unwrap();
        // The first one goes on with a version that is no longer that of the cluster.
        one.write_all(b"three\n").unwrap();
        one.sync_all().unwrap();
        drop((one, two));
        assert_eq!(cluster.run(&["dfs", "cat", &format!("/{name}")]).stdout, expected);
        let seen = mounts.each_ref().map(|mount| fs::read_to_string(mount.path(name)).unwrap());
        assert_eq!(seen, [expected, expected]);
    }
    // A file that must be new is new in one of the mounts only.
    File::create_new(mounts[0].path("exclusive")).unwrap();
    let again = File::create_new(mounts[1].path("exclusive")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
}
