//! Access to a cluster: keys, roles, and what a client without a valid key cannot do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::support::{Cluster, CommandOutput, DEADLINE, Home, listening_ports, wait_for};

fn access_of(home: &Home) -> PathBuf {
    home.path("home/clusters/test/access.toml")
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_access_file_is_the_owners_alone_and_is_all_that_is_needed() {
    let cluster = Cluster::start(&[&[]]);
    let access = access_of(&cluster);
    assert_eq!(mode_of(&access), 0o600);
    let elsewhere = cluster.path("copied.toml");
    fs::copy(&access, &elsewhere).unwrap();
    let list = |words: &[&str]| cluster.eyas(&[words, &["executor", "list"]].concat());
    assert!(list(&["--access", elsewhere.to_str().unwrap()]).exits(0).stdout.contains("n1"));
    let mut command = cluster.command(&["executor", "list"]);
    assert!(command.env("EYAS_ACCESS", &elsewhere).output().unwrap().status.success());
    let mut command = cluster.command(&["executor", "list"]);
    assert!(command.env("EYAS_CLUSTER", "test").output().unwrap().status.success());
}

#[test]
fn a_cluster_starts_with_the_access_file_of_its_folder_and_no_other() {
    let home = Home::new();
    for what in ["dispatcher", "local"] {
        let start = home.eyas(&["start", what, "--access", "mine.toml"]);
        start.exits(1).says(&["not as mine.toml", "--access ./access.toml"]);
    }
    let start = ["start", "dispatcher", "--detach", "--listen", "127.0.0.1:0"];
    let here = ["--access", "access.toml"];
    home.eyas(&[&start[..], &here].concat()).exits(0);
    home.eyas(&[&["job", "list"][..], &here].concat()).exits(0);
    home.eyas(&[&["stop"][..], &here].concat()).exits(0);
}

#[test]
fn a_missing_or_exposed_or_broken_access_file_is_refused_and_why_is_said() {
    let cluster = Cluster::start(&[]);
    cluster.eyas(&["job", "list"]).exits(1).says(&[
        "no access file at",
        "clusters/default/access.toml",
        "eyas start",
    ]);
    cluster
        .eyas(&["--cluster", "../x", "job", "list"])
        .exits(1)
        .says(&["`../x` cannot be the name of a cluster"]);
    let copy = cluster.path("access.toml");
    let list = || cluster.eyas(&["--access", copy.to_str().unwrap(), "job", "list"]);
    fs::copy(access_of(&cluster), &copy).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        list().exits(1).says(&["can be read by others", "chmod 600"]);
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    list().exits(0);
    for (garbage, says) in [
        (&b""[..], "access.toml is damaged, line 1: "),
        (b"cluster = 1", "access.toml is damaged, line 1: "),
        (&[0xff; 100], "access.toml is not an access file"),
    ] {
        fs::write(&copy, garbage).unwrap();
        list().exits(1).says(&[says]);
    }
}

#[test]
fn the_access_file_of_another_cluster_is_refused() {
    let (cluster, other) = (Cluster::start(&[]), Cluster::start(&[]));
    let address = |home: &Home| {
        let text = fs::read_to_string(access_of(home)).unwrap();
        text.lines().find(|line| line.starts_with("dispatcher")).unwrap().to_owned()
    };
    let text = fs::read_to_string(access_of(&other)).unwrap();
    let forged = cluster.path("forged.toml");
    fs::write(&forged, text.replace(&address(&other), &address(&cluster))).unwrap();
    fs::set_permissions(&forged, fs::Permissions::from_mode(0o600)).unwrap();
    let forged = forged.to_str().unwrap();
    cluster
        .eyas(&["--access", forged, "job", "list"])
        .exits(1)
        .says(&["refused this access file", "access file"]);
    let folder = cluster.path("intruder");
    let words = ["start", "executor", "--access", forged, "--folder", folder.to_str().unwrap()];
    cluster.eyas(&words).exits(1).says(&["refused this access file"]);
    cluster.run(&["job", "list"]).exits(0);
}

#[test]
fn a_cluster_that_is_not_there_is_said_to_be_unreachable() {
    let home = Home::new();
    let cluster = Cluster::start_in(home, &[]);
    let access = cluster.path("access.toml");
    fs::copy(access_of(&cluster), &access).unwrap();
    cluster.run(&["stop"]).exits(0);
    cluster
        .eyas(&["--access", access.to_str().unwrap(), "job", "list"])
        .exits(1)
        .says(&["does not answer", "127.0.0.1:"]);
}

/// Bytes that clients without a key send to open ports.
fn garbage() -> Vec<Vec<u8>> {
    let tls_start = [&[0x16, 3, 1, 0xff, 0xff][..], &[0; 300]].concat();
    let huge_frame = [&u32::MAX.to_le_bytes()[..], &[7; 100]].concat();
    vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        tls_start,
        huge_frame,
        vec![0; 4096],
    ]
}

#[test]
fn garbage_on_a_port_does_no_harm() {
    let mut cluster = Cluster::start_with(&["--policy", "mcu"], &[&[], &[]]);
    let processes =
        [cluster.dispatcher(), cluster.executor(1).process(), cluster.executor(2).process()];
    let mut silent = Vec::new();
    for process in processes {
        let ports = wait_for("it listens", || {
            Some(listening_ports(process)).filter(|ports| !ports.is_empty())
        });
        for port in ports {
            let connect = || {
                let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                stream
            };
            // Some clients send nothing and stay connected.
            silent.extend((0..10).map(|_| connect()));
            for bytes in garbage().into_iter().filter(|bytes| !bytes.is_empty()) {
                let mut stream = connect();
                // The connection may be closed while the test still sends.
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                assert!(answer.len() < 1000, "a stranger is told {} bytes", answer.len());
            }
        }
    }
    cluster.write("input", "data");
    let words = ["run", "--array", "1-20", "-i", "input", "--", "sh", "-c", "cat input"];
    assert_eq!(cluster.run(&words).exits(0).stdout, "data\n".repeat(20));
    let alive = cluster.ask(&["executor", "list"], "executors");
    assert_eq!(alive.as_array().unwrap().len(), 2);
    // A connection that does not prove a secret in time is closed.
    let stream = &mut silent[0];
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0);
}

#[test]
fn a_folder_in_use_is_refused_to_another_process() {
    let mut cluster = Cluster::start(&[&[]]);
    let folder = cluster.executor(1).folder().to_str().unwrap().to_owned();
    let process = cluster.executor(1).process().to_string();
    let words = ["--cluster", "test", "start", "executor", "--folder", &folder];
    cluster.eyas(&words).exits(1).says(&["in use by another executor", &process]);
    cluster.eyas(&["--cluster", "test", "start", "dispatcher", "--listen", "127.0.0.1:0"]).exits(1);
    cluster.run(&["run", "--array", "1", "--", "true"]).exits(0);
}

/// A user other than the one that runs the tests.
const STRANGER: u32 = 4321;

/// Starts a dispatcher in a home, which is expected to refuse.
fn refused_dispatcher(home: &Home, place: &Path) -> CommandOutput {
    let mut command = home.command(&["start", "dispatcher", "--listen", "127.0.0.1:0"]);
    command.env("EYAS_HOME", place);
    home.finish(command)
}

#[test]
fn no_command_runs_without_a_home_of_its_own() {
    let home = Home::new();
    let without = |words: &[&str]| {
        let mut command = home.command(words);
        for variable in ["EYAS_HOME", "XDG_STATE_HOME", "HOME"] {
            command.env_remove(variable);
        }
        home.finish(command)
    };
    for words in [
        &["start", "dispatcher"][..],
        &["start", "local", "--detach"],
        &["job", "list"],
        &["io", "serve"],
        &["run", "--array", "1-2", "--", "touch", "ran"],
    ] {
        without(words).exits(1).says(&["EYAS_HOME", "XDG_STATE_HOME", "HOME", "is set"]);
    }
    assert_eq!(home.names("."), Vec::<String>::new(), "a job was run before it was refused");
    assert_eq!(home.temporary(), Vec::<PathBuf>::new());
    // With neither a named cluster nor a report, eyas writes nothing to its home.
    without(&["run", "--report", "none", "--array", "1-2", "--", "echo", "{}"]).exits(0);
}

#[test]
fn a_folder_that_others_can_write_to_gets_no_secret() {
    let home = Home::new();
    for (mode, folder) in [(0o777, "open"), (0o770, "shared")] {
        let place = home.path(folder);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        refused_dispatcher(&home, &place).exits(1).says(&[
            "other users can write to",
            folder,
            "chmod go-w",
        ]);
        assert!(!place.join("clusters/default/access.toml").exists());
    }
}

/// Both ways in which another user has taken a cluster that was started in a folder of theirs.
#[test]
fn files_prepared_by_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make files that belong to another user.
        return;
    }
    let (theirs, home) = (Cluster::start(&[]), Home::new());
    let place = home.path("eyas");
    let folder = place.join("clusters/default");
    fs::create_dir_all(&folder).unwrap();
    // The other user has put a key there, for this user's dispatcher.
    let access = folder.join("access.toml");
    fs::copy(access_of(&theirs), &access).unwrap();
    chown(&access, Some(STRANGER), None).unwrap();
    refused_dispatcher(&home, &place)
        .exits(1)
        .says(&["access.toml belongs to another user (uid 4321)"]);
    let client = home.eyas(&["--access", access.to_str().unwrap(), "job", "list"]);
    client.exits(1).says(&["belongs to another user"]);
    // The other user owns the folder, and waits for this user's key.
    fs::remove_file(&access).unwrap();
    chown(&place, Some(STRANGER), None).unwrap();
    refused_dispatcher(&home, &place).exits(1).says(&["eyas belongs to another user (uid 4321)"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a key is in a folder of theirs");
}
