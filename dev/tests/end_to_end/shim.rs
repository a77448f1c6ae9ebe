//! `eyas shim`: commands with the names of Slurm's commands, whose jobs are tasks of eyas.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Cluster, CommandOutput, signal, wait_until};

/// A cluster with a shim.
struct Shim {
    cluster: Cluster,
    folder: PathBuf,
}

impl Shim {
    fn start(executors: &[&[&str]]) -> Self {
        let cluster = Cluster::start(executors);
        let folder = cluster.path("shim");
        cluster.run(&["shim", folder.to_str().unwrap()]).exits(0);
        Shim { cluster, folder }
    }

    /// Runs a command of the shim in the folder of the test.
    fn run(&self, name: &str, words: &[&str]) -> CommandOutput {
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        let mut command = self.cluster.command_of(Command::new(self.folder.join(name)), words);
        command
            .env("PATH", path)
            .env("COLOUR", "green")
            .env("BASH_FUNC_greet%%", "() {  echo hello $1; }");
        self.cluster.finish(command)
    }

    /// Runs a script as a job to its end. Returns what it has printed.
    #[track_caller]
    fn output_of(&self, options: &[&str], script: &str) -> String {
        self.cluster.write("script.sh", script);
        self.run("sbatch", &[&["--wait", "-o", "output"], options, &["script.sh"]].concat())
            .exits(0);
        self.cluster.read("output")
    }

    /// Submits a job, and returns its id.
    fn submit(&self, words: &[&str]) -> String {
        self.run("sbatch", &[&["--parsable"], words].concat()).exits(0).stdout.trim().to_owned()
    }

    /// The state of a job as Nextflow asks for it, and its state and exit code as `sacct` shows
    /// them.
    fn state(&self, job: &str) -> (String, String) {
        let of_queue = self
            .run("squeue", &["--noheader", "-o", "%i %t", "-t", "all", "-u", &self.user()])
            .exits(0);
        let line = of_queue
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{job} ")).map(str::to_owned));
        let format = [
            "-X",
            "--parsable2",
            "--clusters",
            "all",
            "--noheader",
            "--format=State,ExitCode",
            "-j",
            job,
        ];
        (
            line.expect("the job is listed"),
            self.run("sacct", &format).exits(0).stdout.trim().to_owned(),
        )
    }

    fn user(&self) -> String {
        let shown = self.run("squeue", &["-h", "-t", "all", "-o", "%u"]).exits(0).stdout;
        shown.lines().next().expect("a job").to_owned()
    }

    fn wait_for_state(&self, job: &str, short: &str, long: &str) {
        wait_until((job, short), || self.state(job).0 == short);
        assert_eq!(self.state(job).1, long);
    }
}

#[test]
fn jobs_run_as_slurm_would_run_them() {
    let shim = Shim::start(&[&["--slots", "2"]]);
    shim.cluster.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -J from_script -c 2\n#SBATCH --output=%x-%j.out\n\
         echo $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK $COLOUR $1; pwd; echo err >&2; \
         srun -n1 --cpu-bind=q echo inner\n",
    );
    let job = shim.submit(&["-J", "named", "job.sh", "word"]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let work = shim.cluster.work();
    let expected = format!("{job} named 2 green word\n{}\nerr\ninner\n", work.display());
    assert_eq!(shim.cluster.read(&format!("named-{job}.out")), expected);

    let job = shim.submit(&[
        "-e",
        "errors",
        "--export=NONE,A=1",
        "--wrap",
        "echo \"$A$COLOUR\"; echo bad >&2; exit 7",
    ]);
    shim.wait_for_state(&job, "F", "FAILED|7:0");
    assert_eq!(shim.cluster.read(&format!("slurm-{job}.out")), "1\n");
    assert_eq!(shim.cluster.read("errors"), "bad\n");
    let shown = shim.run("scontrol", &["show", "job", &job]).exits(0).stdout;
    assert!(
        shown.contains("JobState=FAILED ExitCode=7:0") && shown.contains("NumCPUs=1"),
        "{shown}"
    );

    // Both streams in one file, and words behind the program that are not options of `srun`.
    let script = "echo one; echo two >&2; echo three; srun sh -c 'echo $1' sh --version; \
                  srun --time=1 true || echo $?";
    let job = shim.submit(&["-o", "both", "-e", "both", "--wrap", script]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let both = shim.cluster.read("both");
    assert!(
        both.starts_with("one\ntwo\nthree\n--version\n")
            && both.contains("no time limits of parts"),
        "{both}"
    );
    assert_eq!(
        shim.run("squeue", &["-h", "--me", "-t", "all", "-j", &job, "-o", "%i"])
            .exits(0)
            .stdout
            .trim(),
        job
    );

    let waited = shim.run("sbatch", &["--wait", "--wrap", "exit 5"]).exits(5);
    assert!(waited.stdout.starts_with("Submitted batch job "), "{}", waited.stdout);
    let late = shim.submit(&["-t", "0:01", "--wrap", "sleep 100"]);
    shim.wait_for_state(&late, "TO", "TIMEOUT|0:15");
    assert_eq!(shim.run("sinfo", &["-h", "-o", "%P|%D|%c"]).exits(0).stdout, "eyas*|1|2\n");
    assert!(shim.run("scontrol", &["show", "config"]).exits(0).stdout.contains("MinJobAge "));
}

#[test]
fn the_command_line_counts_and_options_may_lack_their_values() {
    let shim = Shim::start(&[&["--slots", "2", "--node-resource", "gpu=4"]]);
    shim.cluster.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH --mem=1G --gres=gpu:1\necho $SLURM_JOB_NAME $1 $SLURM_MEM_PER_NODE\n",
    );
    let words = [
        "--nice",
        "--exclusive=user",
        "--mem-per-cpu=8M",
        "-c2",
        "--gres=gres/gpu:3(S:0-1)",
        "-o",
        "%x.out",
    ];
    let job = shim.submit(&[&words[..], &["job.sh", "word"]].concat());
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    assert_eq!(shim.cluster.read("job.sh.out"), "job.sh word 16\n");
}

#[test]
fn jobs_are_cancelled_and_remembered() {
    let shim = Shim::start(&[&["--slots", "1"]]);
    let running = shim.submit(&["-J", "one", "--wrap", "echo > started; sleep 100"]);
    shim.cluster.wait_for_file("started");
    let waiting = shim.submit(&["-J", "two", "--wrap", "true"]);
    let queue = shim.run("squeue", &["-h", "-n", "one", "-o", "%i|%T"]).exits(0).stdout;
    assert_eq!(queue, format!("{running}|RUNNING\n"));
    let selected = shim.submit(&["-J", "three", "--wrap", "true"]);
    shim.run("scancel", &["--me", "--name", "three", "--state", "PENDING,RUNNING"]).exits(0);
    shim.wait_for_state(&selected, "CA", "CANCELLED|0:15");
    assert!(["PD", "R"].contains(&&*shim.state(&waiting).0), "no other job is cancelled");
    shim.run("scancel", &[&running, &waiting]).exits(0);
    shim.wait_for_state(&running, "CA", "CANCELLED|0:15");
    shim.wait_for_state(&waiting, "CA", "CANCELLED|0:15");
    assert_eq!(shim.run("squeue", &["-h"]).exits(0).stdout, "");
    // The dispatcher forgets a job; its end is known by the note of its program.
    let forgotten = shim.submit(&["--wrap", "exit 4"]);
    shim.cluster.run(&["job", "wait", &forgotten]).exits(1);
    shim.cluster.run(&["job", "forget", &forgotten]).exits(0);
    shim.wait_for_state(&forgotten, "F", "FAILED|4:0");
}

#[test]
fn inputs_are_read_from_the_copies_of_the_node() {
    let shim = Shim::start(&[&[]]);
    let shared = shim.cluster.write("shared file.txt", "shared\n");
    let shared = shared.to_str().unwrap();
    let staged = shared.replace(' ', "\\ ");
    // As Nextflow writes it.
    let script = format!(
        "#!/bin/bash\n#EYAS --input '{shared}'\nnxf_launch() {{\n    /bin/bash -ue x\n}}\n\
         nxf_stage() {{\n    true\n    rm -f link.txt\n    ln -s {staged} link.txt\n}}\n\
         nxf_stage\nreadlink link.txt\ncat link.txt \"$EYAS_INPUT_1\"\n"
    );
    shim.cluster.write("job.sh", &script);
    let job = shim.submit(&["-o", "out", "job.sh"]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let output = shim.cluster.read("out");
    let (target, content) = output.split_once('\n').expect("the target of the link");
    assert_eq!(content, "shared\nshared\n");
    assert!(target.starts_with('/') && target != shared, "{target}");
    let link = std::fs::read_link(shim.cluster.work().join("link.txt")).expect("a link");
    assert_eq!(link.to_str(), Some(shared), "the link is restored");
    // A second job reads what the node has.
    let again = shim.submit(&["-o", "out", "job.sh"]);
    shim.wait_for_state(&again, "CD", "COMPLETED|0:0");
    let reads = &shim.cluster.job(&again)["reads"];
    assert_eq!(
        (reads["local"]["count"].as_u64(), reads["persistent"]["count"].as_u64()),
        (Some(1), Some(0)),
        "{reads}"
    );
}

#[test]
fn scripts_and_their_links_may_be_larger_than_a_command_line() {
    let shim = Shim::start(&[&[]]);
    // A step that gathers the results of a thousand others.
    let folder = "results of the steps before, in a folder whose name is long";
    let (mut stage, mut read) = (String::new(), String::new());
    for number in 0..1000 {
        let path = shim.cluster.write(&format!("{folder}/{number}.txt"), format!("{number}\n"));
        let staged = path.to_str().unwrap().replace(' ', "\\ ").replace(',', "\\,");
        stage += &format!("    ln -s {staged} lines{number}.txt\n");
        read += &format!("cat lines{number}.txt # {}\n", "a comment ".repeat(10));
    }
    let script = format!(
        "#!/bin/bash\nnxf_launch() {{\n    /bin/bash -ue x\n}}\nnxf_stage() {{\n{stage}}}\n\
         nxf_stage\necho \"$1\"\n{read}"
    );
    assert!(script.len() > 200_000);
    shim.cluster.write("job.sh", &script);
    let job = shim.submit(&["-o", "out", "job.sh", "a word"]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(shim.cluster.read("out"), format!("a word\n{expected}"));
    let link = std::fs::read_link(shim.cluster.work().join("lines7.txt")).expect("a link");
    assert!(link.ends_with(format!("{folder}/7.txt")), "the link is restored: {}", link.display());
    let kept = || std::fs::read_dir(shim.folder.join("ends")).unwrap().count();
    let before = kept();
    signal(shim.cluster.dispatcher(), Signal::KILL);
    shim.run("sbatch", &["-o", "out", "job.sh"]).exits(1);
    assert_eq!(kept(), before, "the script of a job that was not submitted is removed");
}

#[test]
fn unsupported_options_of_sbatch_are_named() {
    let shim = Shim::start(&[&[]]);
    let refused = |words: &[&str], why: &str| {
        let done = shim.run("sbatch", words).exits(1);
        assert!(done.stderr.contains(why), "{}", done.stderr);
    };
    refused(&["--array=1-3", "--wrap", "true"], "no --array");
    refused(&["--fly", "--wrap", "true"], "does not know the option --fly");
    refused(&["-N", "2", "--wrap", "true"], "on one node");
    refused(&["-t", "soon", "--wrap", "true"], "not a time limit");
    refused(&["no-such-script"], "no-such-script");
    refused(&["--gpus=two", "--wrap", "true"], "`two` is not a resource and its number");
    refused(&["--gres=gpu:1:2:3", "--wrap", "true"], "--gres: `gpu:1:2:3`");
    shim.cluster.write("text", "hello\n");
    refused(&["text"], "not a batch script");
    // What is ignored is said once, and so is that nothing is cached.
    let first = shim.run("sbatch", &["--qos=high", "--wrap", "true"]).exits(0).stderr;
    assert!(first.contains("--qos") && first.contains("#EYAS --input"), "{first}");
    assert_eq!(shim.run("sbatch", &["--qos=high", "--wrap", "true"]).exits(0).stderr, "");
    shim.run("srun", &["true"]).exits(1).says(&["sbatch --wait"]);
    shim.run("scancel", &[]).exits(1);
    shim.run("scancel", &["77777"]).exits(1).says(&["job id 77777"]);
    shim.run("scancel", &["--quiet", "77777"]).exits(0);
    shim.cluster.run(&["shim", "a:b"]).exits(1).says(&["cannot be in PATH"]);
    shim.cluster.write("other/sbatch", "#!/bin/sh\n");
    shim.cluster.run(&["shim", "other"]).exits(1).says(&["name another folder"]);
}

#[test]
fn names_and_widths_do_not_break_lists() {
    let shim = Shim::start(&[&["--slots", "1"]]);
    let job = shim.submit(&["-J", "two\nlines|bars", "--comment", "a\tb", "--wrap", "true"]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let listed = shim
        .run("sacct", &["-n", "-P", "--format=JobID,JobName,State", "-j", &job])
        .exits(0)
        .stdout;
    assert_eq!(listed, format!("{job}|two lines_bars|COMPLETED\n"));
    let queue = shim.run("squeue", &["-h", "-t", "all", "-o", "%i/%j/%k"]).exits(0).stdout;
    assert_eq!(queue, format!("{job}/two lines|bars/a b\n"));
    let shown = shim.run("scontrol", &["-o", "show", "job", &job]).exits(0).stdout;
    assert!(shown.lines().count() == 1 && shown.contains("Command=(null)"), "{shown}");
    shim.run("sacct", &["--format=JobID%70000"])
        .exits(1)
        .says(&["sacct: a column has at most 10000 characters"]);
    shim.run("squeue", &["-o", "%.70000i"])
        .exits(1)
        .says(&["squeue: a column has at most 10000 characters"]);
    shim.run("sinfo", &["-o", "%70000P"])
        .exits(1)
        .says(&["sinfo: a column has at most 10000 characters"]);
    // A name that is wider than `format!` allows.
    let wide = "x".repeat(70_000);
    shim.submit(&["-J", &wide, "--wrap", "true"]);
    shim.cluster.run(&["job", "list"]).exits(0);
}

#[test]
fn a_step_has_as_many_processes_as_its_job_has_tasks() {
    let shim = Shim::start(&[&["--slots", "4"]]);
    let ranks = "srun sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS' | sort\n\
                 srun -n 2 -o part-%2t --tasks-per-node 2 sh -c 'echo $SLURM_LOCALID; echo e >&2'\n\
                 echo word | srun -n2 cat\n\
                 srun -l -n 2 sh -c 'echo labelled; [ $SLURM_PROCID = 0 ]'; echo code $?\n\
                 srun -n 2 -K sh -c 'if [ $SLURM_PROCID = 1 ]; then exit 7; fi; sleep 1000'\n\
                 echo code $?\n\
                 srun -n 5 true; echo code $?\n";
    let output = shim.output_of(&["-n", "3", "-c", "1"], &format!("#!/bin/bash\n{ranks}"));
    let (first, rest) = output.split_at("0 of 3\n1 of 3\n2 of 3\n".len());
    assert_eq!(first, "0 of 3\n1 of 3\n2 of 3\n");
    assert!(rest.starts_with("word\nword\n"), "{rest}");
    for line in
        ["0: labelled", "1: labelled", "code 1", "code 143", "and the job has 3 on its one node"]
    {
        assert!(rest.contains(line), "{line}: {rest}");
    }
    assert_eq!(
        (shim.cluster.read("part-00"), shim.cluster.read("part-01")),
        ("0\ne\n".into(), "1\ne\n".into())
    );
}

#[test]
fn functions_scripts_in_latin_1_and_padded_names_reach_the_job() {
    let shim = Shim::start(&[&["--slots", "1"]]);
    let script = b"#!/bin/bash\n   # an indented comment\n\
        #SBATCH --export=\"ALL,LIST='a,b'\" -o %4j-%2t.out\n\
        greet caf\xe9; echo $LIST; scontrol show hostnames 'n[1-2]'; echo $0 | tail -c 14\n";
    shim.cluster.write("latin.sh", script);
    let job = shim.submit(&["latin.sh"]);
    shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
    let output =
        std::fs::read(shim.cluster.path("work").join(format!("{job:0>4}-00.out"))).unwrap();
    assert_eq!(output, b"hello caf\xe9\n'a,b'\nn1\nn2\n.slurm_script\n");
    let shown = shim.run("scontrol", &["show", "job", &job]).exits(0).stdout;
    assert!(shown.contains("/latin.sh\n"), "{shown}");
}

#[test]
fn jobs_are_warned_before_their_time_limits() {
    let shim = Shim::start(&[&["--slots", "2"]]);
    let loops = "while :; do sleep 0.05; done";
    let warned = |name: &str, signal: &str, script: String| {
        shim.cluster.write(name, format!("#!/bin/bash\n{script}\n"));
        shim.submit(&["-t", "1", signal, "-o", &format!("{name}.out"), name])
    };
    let script =
        warned("script", "--signal=B:USR1@55", format!("trap 'echo warned; exit 0' USR1; {loops}"));
    let step = format!("srun bash -c \"trap 'echo step; exit 3' USR2; {loops}\"; echo $?");
    let step = warned("step", "--signal=SIGUSR2@55", step);
    for (job, name, expected) in [(script, "script", "warned\n"), (step, "step", "step\n3\n")] {
        shim.wait_for_state(&job, "CD", "COMPLETED|0:0");
        assert_eq!(shim.cluster.read(&format!("{name}.out")), expected);
    }
}

#[test]
fn a_job_that_no_node_can_run_says_so_in_the_queue() {
    let shim = Shim::start(&[&["--slots", "1"]]);
    let large = shim.submit(&["-c", "64", "--wrap", "true"]);
    let reason = shim.run("squeue", &["-h", "-j", &large, "-o", "%R"]).exits(0).stdout;
    assert!(reason.starts_with("(no executor has as much as it needs"), "{reason}");
    shim.run("scancel", &[&large]).exits(0);
}
