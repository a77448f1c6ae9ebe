//! The emulated cluster of `dev/testbed/`: links have the requested rate, and nothing is left
//! behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{CommandOutput, Home, is_root, wait_until_ready};

/// Bytes per second of 16mbit, and a number of bytes that takes one second.
const RATE: f64 = 2e6;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed")
}

fn command(home: &Home, words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(folder().join("testbed.py")).env("EYAS_TESTBED", home.path("bed"));
    home.command_of(command, words)
}

fn testbed(home: &Home, words: &[&str]) -> CommandOutput {
    home.finish(command(home, words))
}

/// Whether this machine can run the emulated cluster; prints what is missing if not. In CI it must.
fn is_possible(home: &Home) -> bool {
    let done = testbed(home, &["check"]);
    if done.code != 0 {
        eprintln!("not tested: {}", done.stderr);
        assert!(std::env::var_os("CI").is_none(), "CI lacks what the testbed needs");
    }
    done.code == 0
}

#[test]
fn missing_programs_of_the_testbed_are_named() {
    let home = Home::new();
    if let Ok(python) =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output()
    {
        let python = String::from_utf8(python.stdout).unwrap();
        let mut words = Command::new(python.trim());
        words
            .arg(folder().join("testbed.py"))
            .env("EYAS_TESTBED", home.path("bed"))
            .env("PATH", "/nonexistent");
        home.finish(home.command_of(words, &["up"])).exits(1).says(&[
            "apt-get install",
            "iproute2",
            "sshfs",
        ]);
        assert!(!home.path("bed").exists());
        if !is_root() {
            testbed(&home, &["up"]).exits(1).says(&["root"]);
        }
    }
}

#[test]
fn links_and_shared_files_have_their_rate_and_nothing_stays_behind() {
    let home = Home::new();
    if !is_possible(&home) {
        return;
    }
    testbed(&home, &["up", "--nodes", "2", "--link", "16mbit", "--store-link", "16mbit"]).exits(0);
    let shared = home.path("bed/shared/file");
    fs::write(&shared, vec![7; RATE as usize]).unwrap();

    // Bytes go from n1 to n2, over a connection of their own.
    let send = home.write("send.sh", format!("#!/bin/sh\nexec cat '{}'\n", shared.display()));
    fs::set_permissions(&send, fs::Permissions::from_mode(0o755)).unwrap();
    let serve = folder().join("serve.py");
    let words = ["run", "n1", "python3", serve.to_str().unwrap(), "9000", send.to_str().unwrap()];
    let mut server = command(&home, &words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until_ready(&mut server);
    let timed = "import time; began = time.time(); length = len(BYTES); print(length / \
                 (time.time() - began))";
    let rate = |node: &str, bytes: &str| -> f64 {
        let script = timed.replace("BYTES", bytes);
        testbed(&home, &["run", node, "python3", "-c", &script])
            .exits(0)
            .stdout
            .trim()
            .parse()
            .unwrap()
    };
    let received =
        rate("n2", "__import__('socket').create_connection(('n1', 9000)).makefile('rb').read()");
    let mounted = home.path("bed/mnt/file");
    let read = rate("n2", &format!("open('{}', 'rb').read()", mounted.display()));
    for rate in [received, read] {
        // The link is not faster than its rate. How much slower it is depends on other work of the
        // machine.
        assert!((0.3 * RATE..1.15 * RATE).contains(&rate), "{rate} bytes/s over a link of {RATE}");
    }

    testbed(&home, &["kill", "n1"]).exits(0);
    server.wait().unwrap();
    testbed(&home, &["run", "n1", "true"]).exits(1).says(&["node n1 is dead"]);
    testbed(&home, &["run", "n3", "true"]).exits(1).says(&["no node `n3`", "n1 n2"]);
    assert_eq!(testbed(&home, &["run", "n2", "sh", "-c", "exit 7"]).code, 7);
    testbed(&home, &["down"]).exits(0);
    assert!(!home.path("bed").exists());
    // Dropping the home checks that no process is left.
}

#[test]
fn an_up_that_fails_leaves_nothing() {
    let home = Home::new();
    if !is_possible(&home) {
        return;
    }
    let broken = home.write("bin/sshfs", "#!/bin/sh\necho no such luck >&2\nexit 1\n");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let mut up = command(&home, &["up", "--nodes", "2"]);
    up.env(
        "PATH",
        format!("{}:{}", broken.parent().unwrap().display(), std::env::var("PATH").unwrap()),
    );
    home.finish(up).exits(1).says(&["no such luck"]);
    assert_eq!((home.processes(), home.path("bed").exists()), (Vec::new(), false));
    testbed(&home, &["up", "--link", "fast"]).exits(1).says(&["`fast` is not a rate", "100mbit"]);
    testbed(&home, &["up", "--nodes", "0"]).exits(1).says(&["1 to 200"]);
}
