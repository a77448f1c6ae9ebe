//! Networks for one test, whose links can be cut.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::process::WITH_DEFAULT_SIGNALS;
use super::{can_use, is_root};

/// Set aside for benchmarks of networks (RFC 2544).
const NET: &str = "198.18.0";

/// The bridge for hosts whose links work, and the bridge for hosts that are cut off.
const BRIDGES: [&str; 2] = ["together", "apart"];

/// Hosts with a link each to one of two bridges, in network namespaces that no packet leaves. The
/// first is on both bridges, so every host reaches it, even if it reaches no other. Dropping this
/// removes everything.
pub struct Network {
    switch: Namespace,
    hosts: Vec<Namespace>,
}

/// A network namespace, which lasts as long as a process in it does.
struct Namespace(Child);

impl Network {
    /// A network with this number of hosts. If this user may not make one, prints that nothing is
    /// tested.
    pub fn new(hosts: usize) -> Option<Self> {
        if !is_root() || !can_use(&["ip", "nsenter", "unshare"]) {
            eprintln!("SKIPPED: only root, with ip, nsenter and unshare, makes networks");
            return None;
        }
        let switch = Namespace::new()?;
        for bridge in BRIDGES {
            switch.run(&format!("ip link add {bridge} type bridge; ip link set {bridge} up"));
        }
        let hosts = (0..hosts).map(|_| Namespace::new()).collect::<Option<Vec<_>>>()?;
        let network = Network { switch, hosts };
        for host in 0..network.hosts.len() {
            network.link(host, "eth0", BRIDGES[0]);
            network.hosts[host]
                .run(&format!("ip link set lo up; ip addr add {}/24 dev eth0", address(host)));
        }
        network.link(0, "eth1", BRIDGES[1]);
        // One hardware address on both bridges, so that other hosts need not learn on which bridge
        // the first host is.
        network.hosts[0]
            .run("for end in eth0 eth1; do ip link set $end address 02:00:00:00:00:01; done");
        Some(network)
    }

    fn link(&self, host: usize, end: &str, bridge: &str) {
        let (there, process) = (format!("{end}-{host}"), self.hosts[host].process());
        self.switch.run(&format!(
            "ip link add {there} type veth peer name {end} netns {process}; ip link set {there} \
             master {bridge} up"
        ));
        self.hosts[host].run(&format!("ip link set {end} up"));
    }

    /// A command that runs a program on a host.
    pub fn command(&self, host: usize, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.hosts[host].process()));
        command.args(WITH_DEFAULT_SIGNALS).arg(program);
        command
    }

    /// Cuts a host's link.
    pub fn cut(&self, host: usize) {
        self.switch.run(&format!("ip link set eth0-{host} down"));
    }

    /// Restores a host's link.
    pub fn mend(&self, host: usize) {
        self.switch.run(&format!("ip link set eth0-{host} up"));
    }

    /// Moves these hosts to the other bridge: they reach each other and the first host, and no
    /// other.
    pub fn split(&self, apart: &[usize]) {
        for host in apart {
            self.switch.run(&format!("ip link set eth0-{host} master {}", BRIDGES[1]));
            let (there, here) = (address(*host), address(0));
            self.hosts[0].run(&format!("ip route add {there}/32 dev eth1 src {here}"));
        }
    }

    /// Restores the network: all hosts reach each other again.
    pub fn heal(&self, apart: &[usize]) {
        for host in apart {
            self.hosts[0].run(&format!("ip route del {}/32", address(*host)));
            self.switch.run(&format!("ip link set eth0-{host} master {}", BRIDGES[0]));
        }
    }
}

/// IP address of a host.
pub fn address(host: usize) -> String {
    format!("{NET}.{}", 1 + host)
}

impl Namespace {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut namespace = Namespace(command.spawn().expect("unshare was looked for"));
        let mut line = String::new();
        let output = namespace.0.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a pipe can be read");
        if line != "ready\n" {
            eprintln!("SKIPPED: this user may not make networks");
            return None;
        }
        Some(namespace)
    }

    fn process(&self) -> u32 {
        self.0.id()
    }

    /// Runs commands of a shell in it.
    #[track_caller]
    fn run(&self, commands: &str) {
        let mut command = Command::new("nsenter");
        let namespace = format!("--net=/proc/{}/ns/net", self.process());
        command.args([&namespace, "sh", "-ec", commands]);
        let done = command.output().expect("nsenter was looked for");
        assert!(done.status.success(), "`{commands}`: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The process ends with its standard input; all others in the namespace have ended.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
