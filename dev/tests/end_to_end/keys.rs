//! Keys of a running cluster: replacing and revoking them, what each role may do, and what a task
//! may do with the token of its job.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use crate::support::{
    Cluster, CommandOutput, MountedFiles, can_mount, finish, wait_for, wait_until,
};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

/// An access file of that role, in the test's own folder.
fn access_for(cluster: &Cluster, role: &str) -> String {
    let file = cluster.path(&format!("{role}.toml")).to_str().unwrap().to_owned();
    cluster.run(&["access", "show", "--role", role, "-o", &file]).exits(0);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    file
}

/// Another copy of the cluster's access file, as on a machine that shares no home.
fn copy(cluster: &Cluster, name: &str) -> String {
    let file = cluster.path(name);
    fs::copy(cluster.path("home/clusters/test/access.toml"), &file).unwrap();
    file.to_str().unwrap().to_owned()
}

fn with(cluster: &Cluster, access: &str, words: &[&str]) -> CommandOutput {
    cluster.eyas(&[&["--access", access], words].concat())
}

/// Ids, roles and states of the keys.
fn keys(cluster: &Cluster) -> Vec<String> {
    let keys = cluster.ask(&["access", "show"], "keys");
    let text = |key: &serde_json::Value, field: &str| key[field].as_str().unwrap().to_owned();
    let all = keys.as_array().unwrap().iter();
    all.map(|key| format!("{} {} {}", text(key, "key"), text(key, "role"), text(key, "state")))
        .collect()
}

#[test]
fn a_rotated_key_works_for_its_grace_and_executors_and_tasks_go_on() {
    let cluster = Cluster::start(&[&[], &[]]);
    let old = copy(&cluster, "old.toml");
    let waits = "touch started; until [ -e go ]; do sleep 0.02; done; echo done";
    let job = finish(
        cluster.spawn_on(&[
            "submit",
            cluster
                .write("job.toml", format!("[[task]]\ncommand = ['sh', '-c', '{waits}']\n"))
                .to_str()
                .unwrap(),
        ]),
    )
    .exits(0)
    .stdout
    .trim()
    .to_owned();
    wait_until("the task has started", || cluster.names(".").contains(&"started".to_owned()));
    // A watch with the old key ends with the key.
    let watch = cluster.spawn(&["--access", &old, "job", "wait", &job]);
    cluster
        .run(&["access", "rotate", "--grace", "1h"])
        .exits(0)
        .says(&["1 h 0 min", "eyas access show --role"]);
    assert_eq!(keys(&cluster)[..2], ["k1 admin retiring", "k2 admin active"]);
    for access in [&old, &copy(&cluster, "new.toml")] {
        with(&cluster, access, &["job", "list"]).exits(0);
    }
    cluster.run(&["access", "rotate", "--grace", "0s"]).exits(0);
    // A key that retires continues to retire; the active key is replaced at once.
    with(&cluster, &copy(&cluster, "newest.toml"), &["job", "list"]).exits(0);
    let replaced =
        ["no longer accepts key k2 (role admin)", "eyas access rotate", "new access file"];
    with(&cluster, cluster.path("new.toml").to_str().unwrap(), &["job", "list"])
        .exits(1)
        .says(&replaced);
    cluster.run(&["access", "revoke", "k1"]).exits(0);
    finish(watch).exits(1).says(&["k1", "revoke"]);
    // Both executors have a new key, and their task still runs.
    cluster.wait_for_executors(2);
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(cluster.task(&format!("{job}.0"))["attempt"].as_u64().unwrap_or(0), 0);
    cluster.run(&["run", "--array", "1-20", "--", "true"]).exits(0);
    // An executor that starts with an old access file is refused, and says why.
    let folder = cluster.path("late").to_str().unwrap().to_owned();
    with(&cluster, &old, &["start", "executor", "--folder", &folder])
        .exits(1)
        .says(&["k1", "was revoked"]);
}

#[test]
fn the_grace_ends_by_itself_and_keys_outlive_the_dispatcher() {
    let mut cluster = Cluster::start(&[&[]]);
    let old = copy(&cluster, "old.toml");
    cluster.run(&["access", "rotate", "--grace", "1s"]).exits(0);
    let refused = wait_for("the end of the grace", || {
        Some(with(&cluster, &old, &["job", "list"])).filter(|done| done.code != 0)
    });
    refused.says(&["k1", "eyas access rotate"]);
    let before = keys(&cluster);
    assert!(before.contains(&"k1 admin replaced".to_owned()), "{before:?}");
    cluster.restart_dispatcher();
    assert_eq!(keys(&cluster), before);
    with(&cluster, &old, &["job", "list"]).exits(1).says(&["k1", "eyas access rotate"]);
    cluster.wait_for_executors(1);
    cluster.run(&["run", "--array", "1-3", "--", "true"]).exits(0);
}

#[test]
fn a_revoked_key_ends_its_sessions_at_once_and_no_others() {
    let cluster = Cluster::start(&[]);
    let submit = access_for(&cluster, "submit");
    let job = cluster.write("job.toml", "[[task]]\ncommand = ['true']\n");
    let job = with(&cluster, &submit, &["submit", job.to_str().unwrap()])
        .exits(0)
        .stdout
        .trim()
        .to_owned();
    let theirs = cluster.spawn(&["--access", &submit, "job", "wait", &job]);
    let ours = cluster.spawn_on(&["job", "wait", &job]);
    let key = keys(&cluster).into_iter().find(|key| key.contains("submit")).unwrap();
    let id = key.split(' ').next().unwrap();
    let shown = cluster.run(&["access", "revoke", id]).exits(0);
    assert!(
        shown.stdout.lines().any(|line| line.starts_with(id) && line.ends_with("revoked")),
        "{}",
        shown.stdout
    );
    finish(theirs).exits(1).says(&[id, "was revoked"]);
    with(&cluster, &submit, &["job", "list"]).exits(1).says(&[id, "was revoked"]);
    // The next access file of that role has another key.
    with(&cluster, &access_for(&cluster, "submit"), &["job", "cancel", &job]).exits(0);
    finish(ours).exits(1);
    cluster.run(&["access", "revoke", "k99"]).exits(1).says(&["there is no key k99"]);
}

#[test]
fn each_role_may_do_what_it_is_for() {
    let cluster = Cluster::start(&[NODE]);
    let [submit, read, executor] =
        ["submit", "read", "executor"].map(|role| access_for(&cluster, role));
    cluster.write("text", "one\ntwo\n");
    let run: &[&str] = &["run", "--report", "none", "--array", "1-2", "--", "true"];
    for (words, may) in [
        (&["job", "list"][..], [true, true, false]),
        (&["executor", "list"], [true, true, false]),
        (run, [true, false, false]),
        (&["dfs", "put", "text", "/text"], [true, false, false]),
        (&["dfs", "cat", "/text"], [true, true, false]),
        (&["dfs", "rm", "/text"], [true, false, false]),
        (&["access", "show"], [false, false, false]),
        (&["executor", "stop", "n1"], [false, false, false]),
        (&["stop"], [false, false, false]),
    ] {
        // The key that has the right comes last, because its request changes the cluster.
        for (access, may) in [&submit, &read, &executor].into_iter().zip(may).rev() {
            let done = with(&cluster, access, words);
            assert_eq!(done.code == 0, may, "{access} {words:?}: {}", done.stderr);
            if !may {
                done.says(&["is not permitted"]);
            }
        }
    }
    let folder = cluster.path("n2").to_str().unwrap().to_owned();
    let start = ["start", "executor", "--folder", &folder];
    with(&cluster, &read, &start)
        .exits(1)
        .says(&["role read) is not permitted to be an executor", "--role executor"]);
    let other = cluster.spawn(&[&["--access", &executor[..]], &start[..]].concat());
    cluster.wait_for_executors(2);
    cluster.run(&["stop"]).exits(0);
    finish(other).exits(0);
}

#[test]
fn a_task_has_the_token_of_its_job_and_not_the_clusters_key() {
    let cluster = Cluster::start(&[NODE]);
    cluster.write("text", "one\ntwo\n");
    cluster.run(&["dfs", "put", "text", "/text"]).exits(0);
    cluster.run(&["run", "--array", "1-2", "--", "true"]).exits(0);
    let script = "cat $EYAS_ACCESS >token; stat -c %a $EYAS_ACCESS >mode; for words in \"job show \
                  $EYAS_JOB_ID\" 'job show 1' 'job list' 'run --report none --array 1-2 -- true' \
                  stop 'access show' 'dfs ls' 'dfs cat /text' 'dfs rm /text'; do $0 $words \
                  >/dev/null 2>>errors && echo \"$words\" >>allowed; done; true";
    let eyas = crate::support::eyas();
    let words = ["run", "--array", "1", "--", "sh", "-c", script, eyas.to_str().unwrap()];
    cluster.run(&words).exits(0);
    assert_eq!(
        (cluster.read("allowed"), cluster.read("mode")),
        ("job show 2\n".into(), "600\n".into())
    );
    let errors = cluster.read("errors");
    assert_eq!(errors.matches("the token of job 2").count(), 8, "{errors}");
    let token = cluster.read("token");
    assert_ne!(token, fs::read_to_string(cluster.path("home/clusters/test/access.toml")).unwrap());
    // Tasks of `eyas map` may read its inputs and write its outputs, which are hidden until the
    // end; nothing else.
    cluster.run(&["dfs", "put", "text", "/other"]).exits(0);
    let script = "for words in 'cat /text' 'cat /other' 'rm /text'; do $0 dfs $words >/dev/null \
                  2>>refused && echo \"$words\" >>mapped; done; cat";
    let map = ["map", "/text", "--", "sh", "-c", script, eyas.to_str().unwrap()];
    assert_eq!(cluster.run(&map).exits(0).stdout, "one\ntwo\n");
    assert_eq!(cluster.read("mapped"), "cat /text\n");
    let refused = cluster.read("refused");
    assert_eq!(refused.matches("is not permitted to do this").count(), 2, "{refused}");
    // A token expires with its job, wherever it was copied to.
    let kept = cluster.write("kept.toml", token);
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).unwrap();
    let done = with(&cluster, kept.to_str().unwrap(), &["job", "show", "2"]);
    done.exits(1).says(&["the token of job 2", "the job has ended"]);
}

#[test]
fn a_task_that_may_only_read_a_file_cannot_open_it_for_writing() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(&[NODE]);
    cluster.write("text", "one\ntwo\n");
    cluster.run(&["dfs", "put", "text", "/text"]).exits(0);
    let script =
        "umask 077; cp $EYAS_ACCESS new; mv new token; until [ -e done ]; do sleep 0.1; done; cat";
    let map = cluster.spawn_on(&["map", "/text", "--", "sh", "-c", script]);
    let token = cluster.work().join("token");
    wait_until("the task has copied its token", || token.exists());
    let mount = MountedFiles::with_key(&cluster, "mnt", token.to_str().unwrap());
    assert_eq!(fs::read_to_string(mount.path("text")).unwrap(), "one\ntwo\n");
    for options in [fs::File::options().append(true), fs::File::options().read(true).write(true)] {
        let opened = options.open(mount.path("text"));
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    mount.end();
    cluster.write("done", "");
    finish(map).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/text"]).exits(0).stdout, "one\ntwo\n");
}
