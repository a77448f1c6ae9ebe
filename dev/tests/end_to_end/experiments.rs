//! The experiments of `dev/experiments/` in miniature, so that the commands in
//! `benchmarks/RESULTS.md` keep working. Their figures do not matter here.
//!
//! `dev/tree/tests/tidy.rs` checks that each experiment stands here or in another test.

use std::path::Path;
use std::process::Command;

use eyas_tree::root;

use crate::support::{Home, can_mount, can_use, eyas, is_root};

/// Runs an experiment with `--tiny`, and checks that it succeeds and prints something.
#[track_caller]
fn runs(script: &str) {
    let home = Home::new();
    let mut command =
        home.command_of(Command::new(root().join("dev/experiments").join(script)), &["--tiny"]);
    command.env("EYAS_BIN", eyas()).env("EYAS_TESTBED", home.path("bed"));
    command.env("SLOW_DISK_BIN", env!("CARGO_BIN_EXE_slow-disk"));
    // Not `finish`: some experiments take longer than its deadline.
    let done = command.output().expect("it can be started");
    let [stdout, stderr] =
        [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        done.status.success() && !stdout.is_empty(),
        "{script}: {}\n{stdout}\n{stderr}",
        done.status
    );
}

/// Whether experiments on the emulated cluster can run.
fn has_testbed() -> bool {
    is_root()
        && can_use(&["ip", "tc", "unshare", "nsenter", "setpriv", "mount", "hostname", "sshfs"])
}

/// Whether there is Debian's ZooKeeper, and its client in Python: the peer of an experiment that CI
/// does not run.
fn has_zookeeper() -> bool {
    let import = Command::new("python3").args(["-c", "import kazoo"]).output();
    let has_client = import.is_ok_and(|done| done.status.success());
    let has_both = has_client && Path::new("/usr/share/java/zookeeper.jar").exists();
    if !has_both {
        eprintln!("not tested: ZooKeeper or the Python package kazoo is missing");
    }
    has_both
}

/// Whether there are control groups of version 1 for memory.
fn can_limit_memory() -> bool {
    let can = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    if !can {
        eprintln!("not tested: there are no control groups of version 1");
    }
    can
}

/// Whether there are the jars for Hadoop. CI does not build them.
fn has_jars() -> bool {
    let has_jars = root().join("target/java/eyas-hadoop.jar").exists();
    if !has_jars {
        eprintln!("not tested: dev/tools/java.sh jar has not run");
    }
    has_jars && can_use(&["java", "mvn"])
}

/// A test for each experiment, with what it needs. One of over 20 s has the mark that leaves it to
/// `make soak`.
macro_rules! experiments {
    ($($(#[$mark:meta])* $test:ident: $script:literal, $needs:expr;)*) => {
        $(
            #[test]
            $(#[$mark])*
            fn $test() {
                if $needs {
                    runs($script);
                }
            }
        )*
    };
}

experiments! {
    all_pairs: "all_pairs.py", has_testbed();
    #[ignore = "takes over 20 s: make soak"]
    blast: "blast.py", has_testbed() && can_use(&["blastp"]);
    calls_of_the_c_library: "capi_calls.py", can_use(&["cc"]);
    captured_output: "captured_output.py", true;
    copies_in_the_cluster: "copies_in_the_cluster.py", true;
    #[ignore = "needs Maven, and what `dev/tools/java.sh jar` makes: make soak"]
    elastic_blocks_of_hadoop: "elastic_hadoop.py", is_root() && has_jars();
    files_of_the_cluster: "files_over_links.py", has_testbed();
    #[ignore = "needs Maven, and what `dev/tools/java.sh jar` makes: make soak"]
    files_of_hadoop: "hadoop_files.py", is_root() && has_jars();
    small_files: "small_files.py", true;
    #[ignore = "takes over 20 s: make soak"]
    distribution: "distribute.py", has_testbed();
    #[ignore = "takes over 20 s: make soak"]
    data_throughput: "data_throughput.py", has_testbed();
    derived_inputs: "derived_inputs.py", true;
    fan_in: "fan_in.py", true;
    growth: "growth.py", true;
    headline: "headline.py", has_testbed();
    map: "map_blocks.py", true;
    memory_tier: "memory_tier.py", has_testbed();
    mirrors: "mirrors.py", true;
    mount: "mounted_files.py", can_mount();
    overlap: "overlap.sh", true;
    #[ignore = "downloads Nextflow and Snakemake, and needs Slurm: make soak"]
    pipelines: "pipelines.py", is_root() && can_use(&["slurmctld", "java", "mvn"]);
    passes: "passes.py", true;
    passes_in_memory: "passes_in_memory.py", is_root() && can_limit_memory();
    placement: "placement.py", has_testbed();
    sandbox_inputs: "sandbox_inputs.py", true;
    shared_copies: "shared_copies.py", true;
    striped_files: "io_striped.py", is_root() && can_mount();
    start_up: "start_up.py", true;
    blocks_of_a_stacking_task: "stacking_blocks.py", is_root() && can_mount();
    frames_of_a_list: "stacking_index.py", true;
    #[ignore = "takes over 20 s: make soak"]
    stragglers: "stragglers.py", has_testbed();
    systems_of_others: "noop_tasks.py", true;
    task_outputs: "task_outputs.py", true;
    web_pages: "web_pages.py", can_use(&["curl"]);
    #[ignore = "needs ZooKeeper: make soak"]
    zookeeper: "zookeeper_claims.py", has_zookeeper();
}
