//! Other processes, as `/proc` shows them.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::eyas;

/// The program and words with which a command line begins that has no ignored signals. A shell in
/// the background, and `nohup`, leave such signals to the tests, and each process would pass them
/// on to its tasks.
pub const WITH_DEFAULT_SIGNALS: [&str; 2] = ["/usr/bin/env", "--default-signal=INT,QUIT,HUP"];

/// `eyas` as a command.
pub fn command() -> Command {
    let [program, signals] = WITH_DEFAULT_SIGNALS;
    let mut command = Command::new(program);
    command.arg(signals).arg(eyas());
    command
}

/// Waits until a process whose standard output is piped says that it is ready.
#[track_caller]
pub fn wait_until_ready(process: &mut Child) {
    let mut line = [0; 6];
    let output = process.stdout.as_mut().expect("piped");
    output.read_exact(&mut line).expect("it says that it is ready");
    assert_eq!(&line, b"ready\n");
}

/// Sends a signal to a process. It is not an error if the process has ended.
pub fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process as i32).expect("0 is no process");
    // A process that has already ended needs no signal.
    let _ = kill_process(process, signal);
}

/// State of a process, as the letter in `/proc`; `None` if the process is gone.
pub fn state(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a process runs. A zombie does not.
pub fn is_alive(process: u32) -> bool {
    state(process).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// The parent of a process; `None` if the process is gone.
pub fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Processes that a process has started and that run, with their command lines.
pub fn children(process: u32) -> Vec<(u32, String)> {
    let all = fs::read_dir("/proc").expect("/proc is there");
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = numbers.filter(|number| parent(*number) == Some(process) && is_alive(*number));
    let words = |number: u32| fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    ours.map(|number| (number, String::from_utf8_lossy(&words(number)).replace('\0', " ")))
        .collect()
}

/// Every process whose environment has this entry, with its command line.
pub fn with_environment(entry: &str) -> Vec<(u32, String)> {
    let processes = fs::read_dir("/proc").expect("/proc is there").filter_map(|process| {
        let number: u32 = process.ok()?.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(format!("/proc/{number}/environ")).ok()?;
        let is_it = environment.split(|byte| *byte == 0).any(|other| other == entry.as_bytes());
        let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        (is_it && is_alive(number))
            .then(|| (number, String::from_utf8_lossy(&words).replace('\0', " ")))
    });
    processes.collect()
}

/// TCP ports on which a process listens.
pub fn listening_ports(process: u32) -> Vec<u16> {
    const LISTEN: &str = "0A";
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .expect("our own process")
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter_map(|file| {
            Some(file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table =
        |name: &str| fs::read_to_string(Path::new("/proc/net").join(name)).unwrap_or_default();
    let mut ports = Vec::new();
    for line in table("tcp").lines().chain(table("tcp6").lines()).skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (Some(local), Some(state), Some(inode)) =
            (columns.get(1), columns.get(3), columns.get(9))
        else {
            continue;
        };
        if *state == LISTEN && sockets.iter().any(|socket| socket == inode) {
            let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            ports.extend(port);
        }
    }
    ports
}
