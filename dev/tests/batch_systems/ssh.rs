//! Hosts that a real `sshd` serves. Both are this machine.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use crate::harness::{BatchBed, is_tested};
use crate::support::{Home, wait_until};

/// An `sshd`, and a dispatcher that starts executors through it.
struct OnHosts {
    server: Child,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl BatchBed for OnHosts {
    const POOL: &'static str = "lab";
    const SYSTEM: &'static str = "ssh";

    fn home(&self) -> &Home {
        &self.home
    }
}

impl OnHosts {
    /// `None` where nothing is to be tested.
    fn start() -> Option<Self> {
        if !is_tested("a real sshd") {
            return None;
        }
        let home = Home::new();
        let folder = home.path("ssh");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        for key in ["host", "user"] {
            let words = ["-q", "-t", "ed25519", "-N", "", "-f"];
            let made =
                Command::new("ssh-keygen").args(words).arg(folder.join(key)).status().unwrap();
            assert!(made.success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.display();
        fs::write(
            folder.join("sshd_config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\n\
                 AuthorizedKeysFile {at}/user.pub\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n"
            ),
        )
        .unwrap();
        let config = folder.join("ssh_config");
        let options = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n\
                       LogLevel ERROR\nIdentitiesOnly yes";
        let host = format!("HostName 127.0.0.1\nPort {port}\nIdentityFile {at}/user\n{options}\n");
        // The last host is not there.
        fs::write(
            &config,
            format!("Host one two\n{host}\nHost none\nHostName 127.0.0.1\nPort 1\n{options}\n"),
        )
        .unwrap();
        // `ssh` reads the configuration of the user, whatever HOME says.
        let mut program = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(folder.join("ssh"))
            .unwrap();
        writeln!(program, "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"", config.display()).unwrap();
        drop(program);
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(folder.join("sshd_config"))
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd is installed");
        wait_until("sshd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let hosts = OnHosts { server, home };
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        hosts.start_dispatcher(&["--listen", "127.0.0.1:0"], &[("PATH", path)]);
        Some(hosts)
    }
}

impl Drop for OnHosts {
    fn drop(&mut self) {
        self.stop();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn executors_start_on_hosts_and_leave_them() {
    let Some(hosts) = OnHosts::start() else { return };
    hosts.run(&["pool", "add", "ssh", "lab"]).exits(1).says(&["name the hosts after `--`"]);
    hosts.run(&["pool", "add", "ssh", "lab", "--", "none"]).exits(1).says(&["none:"]);
    let add =
        ["--cpus", "1", "--idle-timeout", "1s", "--max-nodes", "2", "--", "none", "one", "two"];
    hosts.add_pool(&add);
    hosts.run(&["pool", "try", "lab"]).exits(0);
    let job = ["run", "--array", "1-20", "--", "sh", "-c", "sleep 0.1; echo {}"];
    hosts.run(&job).exits(0).says(&["20 of 20 tasks succeeded"]);
    hosts.has_given_back_all();
    // They can be used again.
    hosts.run(&["run", "--array", "1-2", "--", "echo", "{}"]).exits(0);
}
