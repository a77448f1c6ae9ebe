//! GPUs and cores that tasks get for themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{CommandOutput, Home, can_use};

/// Writes what a task sees in a file of its own, and ends when two tasks have done so at the same
/// time.
const TWO: &str = "cat > seen-$0; until [ -s seen-1 ] && [ -s seen-2 ]; do sleep 0.02; done";

/// A home with programs that come first in the `PATH`.
struct Shims {
    home: Home,
}

impl Shims {
    fn new(programs: &[(&str, &str)]) -> Self {
        let home = Home::new();
        fs::create_dir(home.path("shims")).unwrap();
        for (name, script) in programs {
            let path = home.path("shims").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Shims { home }
    }

    /// Runs `eyas` with these programs and variables.
    #[track_caller]
    fn eyas(&self, variables: &[(&str, &str)], words: &[&str]) -> CommandOutput {
        let mut command = self.home.command(words);
        let path = format!(
            "{}:{}",
            self.home.path("shims").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command.env("PATH", path).envs(variables.iter().copied());
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "GPU_DEVICE_ORDINAL",
        ] {
            if variables.iter().all(|(given, _)| *given != name) {
                command.env_remove(name);
            }
        }
        self.home.finish(command)
    }

    /// Runs two tasks that run at the same time, each with one GPU. Returns what `show` printed in
    /// each, in order.
    #[track_caller]
    fn two_tasks(&self, variables: &[(&str, &str)], show: &str) -> Vec<String> {
        let script = format!("{{ {show}; }} | {TWO}");
        let words =
            ["run", "--nodes", "1", "--slots", "2", "--resource", "gpu=1", "--array", "1-2"];
        self.eyas(variables, &[&words[..], &["--", "sh", "-c", &script, "{}"]].concat()).exits(0);
        let mut seen = [1, 2].map(|task| self.home.read(&format!("seen-{task}")));
        seen.sort();
        seen.to_vec()
    }
}

const NVIDIA: (&str, &str) = (
    "nvidia-smi",
    "echo called >> nvidia-called; printf '0, 40960, NVIDIA Test\\n1, 81920, NVIDIA Test\\n'",
);

#[test]
fn gpus_that_the_vendors_program_lists_are_handed_out_one_by_one() {
    let shims = Shims::new(&[NVIDIA]);
    let seen = shims.two_tasks(&[], "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER");
    assert_eq!(seen, ["0 PCI_BUS_ID\n", "1 PCI_BUS_ID\n"]);
    // Model and smallest memory are labels; a task with both GPUs has both.
    let requirement =
        r#"node.labels.gpu_model == "NVIDIA Test" && node.labels.gpu_memory == "42949672960""#;
    let words = [
        "run",
        "--nodes",
        "1",
        "--resource",
        "gpu=2",
        "--requirements",
        requirement,
        "--array",
        "1",
        "--",
    ];
    let done = shims.eyas(&[], &[&words[..], &["printenv", "CUDA_VISIBLE_DEVICES"]].concat());
    assert_eq!(done.exits(0).stdout, "0,1\n");
    // A task that asks for none finds its environment as it is.
    let done = shims.eyas(
        &[],
        &[
            "run",
            "--nodes",
            "1",
            "--array",
            "1",
            "--",
            "sh",
            "-c",
            "echo ${CUDA_VISIBLE_DEVICES-unset}",
        ],
    );
    assert_eq!(done.exits(0).stdout, "unset\n");
}

#[test]
fn gpus_of_a_batch_system_are_used_by_their_names_and_no_others() {
    let shims = Shims::new(&[NVIDIA]);
    let given = [("CUDA_VISIBLE_DEVICES", "GPU-8932f937,MIG-GPU-1234/1/0")];
    assert_eq!(
        shims.two_tasks(&given, "echo $CUDA_VISIBLE_DEVICES"),
        ["GPU-8932f937\n", "MIG-GPU-1234/1/0\n"]
    );
    let given = [("ROCR_VISIBLE_DEVICES", "2,5"), ("HIP_VISIBLE_DEVICES", "0,1")];
    let seen = shims.two_tasks(&given, "echo $ROCR_VISIBLE_DEVICES ${HIP_VISIBLE_DEVICES-unset}");
    assert_eq!(seen, ["2 unset\n", "5 unset\n"]);
    assert!(!shims.home.work().join("nvidia-called").exists(), "GPUs of other jobs were listed");
}

#[test]
fn gpus_of_amd_are_found() {
    let rocm = "printf 'device,GPU ID\\ncard1,0x740f\\ncard3,0x740f\\n'";
    let shims =
        Shims::new(&[("nvidia-smi", "echo 'no devices were found'; exit 9"), ("rocm-smi", rocm)]);
    assert_eq!(shims.two_tasks(&[], "echo $ROCR_VISIBLE_DEVICES"), ["0\n", "1\n"]);
}

#[test]
fn the_program_that_lists_gpus_may_hang_and_a_number_may_be_given_instead() {
    let shims = Shims::new(&[("nvidia-smi", "exec sleep 1000")]);
    let words = [
        "run",
        "--nodes",
        "1",
        "--slots",
        "1",
        "--node-resource",
        "gpu=3",
        "--resource",
        "gpu=2",
        "--array",
        "1",
    ];
    let done = shims
        .eyas(&[], &[&words[..], &["--", "printenv", "CUDA_VISIBLE_DEVICES"]].concat())
        .exits(0);
    assert_eq!(done.stdout, "0,1\n");
    assert!(done.stderr.contains("`nvidia-smi` has not listed GPUs"), "{}", done.stderr);
}

#[test]
fn executors_of_a_local_cluster_divide_the_gpus() {
    let shims = Shims::new(&[NVIDIA]);
    let script = format!("echo $CUDA_VISIBLE_DEVICES | {TWO}");
    let words = [
        "run",
        "--nodes",
        "2",
        "--slots",
        "1",
        "--resource",
        "gpu=1",
        "--array",
        "1-2",
        "--",
        "sh",
        "-c",
    ];
    shims.eyas(&[], &[&words[..], &[&script, "{}"]].concat()).exits(0);
    let mut seen = [1, 2].map(|task| shims.home.read(&format!("seen-{task}")));
    seen.sort();
    assert_eq!(seen, ["0\n", "1\n"]);
}

#[test]
fn pinned_tasks_have_cores_of_their_own() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("SKIPPED: two tasks with cores of their own need two processors");
        return;
    }
    let home = Home::new();
    let script = format!("sed -n 's/Cpus_allowed_list:.//p' /proc/self/status | {TWO}");
    let pinned = |cpus: &str| {
        let words = [
            "run", "--nodes", "1", "--slots", "2", "--pin", "--cpus", cpus, "--array", "1-2", "--",
            "sh", "-c",
        ];
        home.eyas(&[&words[..], &[&script, "{}"]].concat()).exits(0);
        let seen = [1, 2].map(|task| home.read(&format!("seen-{task}")));
        [1, 2]
            .iter()
            .for_each(|task| fs::remove_file(home.work().join(format!("seen-{task}"))).unwrap());
        seen
    };
    let whole = pinned("1");
    assert!(
        whole.iter().all(|list| list.trim().parse::<u32>().is_ok()),
        "one core each: {whole:?}"
    );
    assert_ne!(whole[0], whole[1]);
    let halves = pinned("0.5");
    assert_eq!(halves[0], halves[1], "two halves are one core");
}

#[test]
fn an_executor_offers_and_pins_to_the_cores_that_it_was_given() {
    if !can_use(&["taskset"]) {
        return;
    }
    let home = Home::new();
    let first = fs::read_to_string("/proc/self/status").unwrap();
    let list =
        first.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let core = list.split([',', '-']).next().unwrap().to_owned();
    let eyas = crate::support::eyas().to_str().unwrap();
    let script = "nproc; sed -n 's/Cpus_allowed_list:.//p' /proc/self/status";
    let words = [
        "-c", &core, eyas, "run", "--nodes", "1", "--pin", "--array", "1", "--", "sh", "-c", script,
    ];
    let done = home.finish(home.command_of(Command::new("taskset"), &words)).exits(0);
    assert_eq!(done.stdout, format!("1\n{core}\n"));
    // Two processors are not to be had there.
    let words =
        ["-c", &core, eyas, "run", "--nodes", "1", "--cpus", "2", "--array", "1", "--", "true"];
    home.finish(home.command_of(Command::new("taskset"), &words)).exits(1);
}
