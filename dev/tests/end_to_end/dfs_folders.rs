//! Folders, links, permissions and owners of files of the cluster, from the command line.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::dfs::{cluster, joined};
use crate::support::{Cluster, Home, wait_until};

/// The names that `ls` shows, with kinds.
fn listed(cluster: &Cluster, words: &[&str]) -> Vec<(String, String)> {
    let files = cluster.ask(&[&["dfs", "ls"], words].concat(), "files");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    files
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (text(&file["name"]), text(&file["kind"])))
        .collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

#[test]
fn folders_are_made_listed_moved_and_removed() {
    let cluster = cluster(3);
    cluster.run(&["dfs", "mkdir", "/a/b"]).exits(1).says(&["no folder /a", "mkdir -p"]);
    cluster.run(&["dfs", "mkdir", "-p", "/a/b", "/a"]).exits(0);
    cluster.run(&["dfs", "mkdir", "/a"]).exits(1).says(&["a folder /a already"]);
    cluster.write("x", "x\n");
    cluster.run(&["dfs", "put", "x", "/a/b/x"]).exits(0);
    cluster.run(&["dfs", "put", "x", "/data/2026/x"]).exits(0);
    cluster.run(&["dfs", "put", "x", "/a/b/x/y"]).exits(1).says(&["/a/b/x is a file"]);
    cluster.run(&["dfs", "ln", "-s", "b/x", "/a/link"]).exits(0);
    assert_eq!(listed(&cluster, &[]), pairs(&[("/a", "folder"), ("/data", "folder")]));
    assert_eq!(listed(&cluster, &["/a/"]), pairs(&[("/a/b", "folder"), ("/a/link", "link")]));
    let all = [("/a/b", "folder"), ("/a/b/x", "file"), ("/a/link", "link")];
    assert_eq!(listed(&cluster, &["-r", "a"]), pairs(&all));
    assert_eq!(listed(&cluster, &["/a/b/x"]), pairs(&[("/a/b/x", "file")]));
    cluster.run(&["dfs", "ls", "/none"]).exits(1).says(&["no file or folder /none"]);
    cluster.run(&["dfs", "cat", "/a/link"]).exits(1).says(&["symbolic link to `b/x`"]);
    cluster.run(&["dfs", "cat", "/a"]).exits(1).says(&["/a is a folder"]);
    assert_eq!(cluster.run(&["dfs", "cat", "/a/b/*"]).exits(0).stdout, "x\n");

    cluster.run(&["dfs", "rmdir", "/a"]).exits(1).says(&["/a is not empty", "-r"]);
    cluster.run(&["dfs", "rename", "/a", "/a/b/c"]).exits(1).says(&["below it"]);
    cluster.run(&["dfs", "rename", "/a", "/data"]).exits(1).says(&["a folder /data already"]);
    cluster.run(&["dfs", "rename", "/a", "/data/2025/a"]).exits(0);
    let moved = [
        ("/data/2025", "folder"),
        ("/data/2025/a", "folder"),
        ("/data/2025/a/b", "folder"),
        ("/data/2025/a/b/x", "file"),
        ("/data/2025/a/link", "link"),
        ("/data/2026", "folder"),
        ("/data/2026/x", "file"),
    ];
    assert_eq!(listed(&cluster, &["-r", "/data"]), pairs(&moved));
    cluster.write("y", "y\n");
    cluster.run(&["dfs", "put", "y", "/y"]).exits(0);
    cluster.run(&["dfs", "rename", "/y", "/data/2026/x"]).exits(1).says(&["already"]);
    cluster.run(&["dfs", "rename", "--force", "/y", "/data/2026/x"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/data/2026/x"]).exits(0).stdout, "y\n");
    cluster.run(&["dfs", "rm", "-r", "/data/2025"]).exits(0);
    cluster.run(&["dfs", "rm", "/data/2026/x"]).exits(0);
    cluster.run(&["dfs", "rmdir", "/data/2026", "/data"]).exits(0);
    assert_eq!(listed(&cluster, &[]), []);
}

#[test]
fn owners_and_permissions_are_shown_and_changed() {
    let cluster = cluster(2);
    cluster.write("x", "x\n");
    cluster.run(&["dfs", "put", "x", "/f/x"]).exits(0);
    let file = cluster.ask(&["dfs", "stat", "/f/x"], "file");
    let own = cluster.work().join("x").metadata().unwrap();
    assert_eq!((&file["uid"], &file["gid"]), (&own.uid().into(), &own.gid().into()), "{file}");
    cluster.run(&["dfs", "chmod", "rw", "/f/x"]).exits(2).says(&["octal"]);
    cluster.run(&["dfs", "chmod", "4751", "/f/x"]).exits(0);
    cluster.run(&["dfs", "chown", "7:8", "-r", "/f"]).exits(0);
    cluster.run(&["dfs", "chown", ":9", "/f"]).exits(0);
    let shown = cluster.run(&["dfs", "ls", "-l", "/f"]).exits(0).stdout;
    assert!(["-rwsr-x--x", "7:8", "/f/x"].iter().all(|text| shown.contains(text)), "{shown}");
    let folder = cluster.ask(&["dfs", "stat", "/f"], "file");
    assert_eq!(
        (&folder["kind"], &folder["uid"], &folder["gid"]),
        (&"folder".into(), &7.into(), &9.into())
    );
    let shown = cluster.run(&["dfs", "stat", "/f/x"]).exits(0).stdout;
    assert!(shown.contains("1 chunk; -rwsr-x--x 7:8"), "{shown}");
    cluster.run(&["dfs", "chown", "-r", "x:y", "/f"]).exits(2).says(&["USER:GROUP"]);
    cluster.run(&["dfs", "chmod", "600", "/none"]).exits(1).says(&["no file /none"]);
    // What a task writes belongs to the user of its executor.
    cluster
        .run(&["run", "--array", "1-1", "-o", "n=eyas:///out/n", "--", "sh", "-c", "echo 1 > n"])
        .exits(0);
    assert_eq!(cluster.ask(&["dfs", "stat", "/out/n"], "file")["uid"], own.uid());
    assert_eq!(cluster.ask(&["dfs", "stat", "/out"], "file")["kind"], "folder");
}

#[test]
fn trees_keep_empty_folders_permissions_times_and_links() {
    let cluster = cluster(2);
    for (name, content) in [("t/run.sh", "#!/bin/sh\n"), ("t/u/two", "2\n")] {
        cluster.write(name, content);
    }
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let place = |name: &str| cluster.work().join(name);
    std::fs::create_dir(place("t/empty")).unwrap();
    symlink("../u/two", place("t/u/link")).unwrap();
    symlink("nowhere", place("t/broken")).unwrap();
    std::fs::set_permissions(place("t/run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    std::fs::File::open(place("t/u/two")).unwrap().set_modified(then).unwrap();
    std::fs::set_permissions(place("t/u"), PermissionsExt::from_mode(0o555)).unwrap();
    std::fs::File::open(place("t/u")).unwrap().set_modified(then).unwrap();

    cluster.run(&["dfs", "put", "-r", "t", "/tree"]).exits(0);
    cluster.run(&["dfs", "get", "-r", "/tree", "back"]).exits(0);
    assert_eq!(cluster.names("back"), ["broken", "empty", "run.sh", "u"]);
    assert_eq!(cluster.names("back/empty"), [""; 0]);
    assert_eq!(std::fs::read_link(place("back/u/link")).unwrap().to_str(), Some("../u/two"));
    assert_eq!(std::fs::read_link(place("back/broken")).unwrap().to_str(), Some("nowhere"));
    for (name, mode) in [("back/run.sh", 0o750), ("back/u", 0o555)] {
        assert_eq!(place(name).metadata().unwrap().mode() & 0o7777, mode, "{name}");
    }
    for name in ["back/u/two", "back/u"] {
        assert_eq!(place(name).metadata().unwrap().modified().unwrap(), then, "{name}");
    }
    // The folder is there, and its files are not replaced.
    cluster.run(&["dfs", "put", "-r", "t", "/tree"]).exits(1).says(&["already"]);
    for name in ["t/u", "back/u"] {
        std::fs::set_permissions(place(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[test]
fn quotas_refuse_what_is_too_much() {
    let cluster = cluster(3);
    cluster.write("ten", "123456789\n");
    cluster.write("big", "a line of text\n".repeat(600_000));
    cluster.run(&["dfs", "quota", "show"]).exits(0).says(&["no folder has a quota"]);
    cluster.run(&["dfs", "quota", "set", "/a", "--files", "9"]).exits(1).says(&["no file /a"]);
    cluster.run(&["dfs", "mkdir", "-p", "/a/b"]).exits(0);
    cluster.run(&["dfs", "quota", "set", "/a"]).exits(2);
    cluster.run(&["dfs", "quota", "set", "/a", "--bytes", "1MB"]).exits(0);
    cluster.run(&["dfs", "put", "ten", "/a/b/1"]).exits(0);
    // In the middle of the file.
    let over = ["/a has a quota of 1.0 MB", "10 B are used", "/a/b/big needs", "quota set"];
    cluster.run(&["dfs", "put", "--chunk-size", "64KiB", "big", "/a/b/big"]).exits(1).says(&over);
    assert_eq!(listed(&cluster, &["/a/b"]), pairs(&[("/a/b/1", "file")]));
    cluster.run(&["dfs", "append", "big", "/a/b/1"]).exits(1).says(&["/a has a quota of 1.0 MB"]);
    assert_eq!(cluster.run(&["dfs", "cat", "/a/b/1"]).exits(0).stdout, "123456789\n");
    cluster.run(&["dfs", "put", "big", "/big"]).exits(0);
    cluster.run(&["dfs", "rename", "/big", "/a/big"]).exits(1).says(&["/a has a quota of 1.0 MB"]);
    cluster
        .run(&["run", "--array", "1-1", "-i", "big", "-o", "x=eyas:///a/x", "--", "cp", "big", "x"])
        .exits(1);

    cluster.run(&["dfs", "quota", "set", "/a/b", "--files", "2"]).exits(0);
    cluster.run(&["dfs", "put", "ten", "/a/b/2"]).exits(0);
    cluster
        .run(&["dfs", "mkdir", "/a/b/3"])
        .exits(1)
        .says(&["/a/b has a quota of 2 files", "2 are used"]);
    let quotas = cluster.ask(&["dfs", "quota", "show"], "quotas");
    assert_eq!(quotas[0]["bytes"], 1_000_000, "{quotas}");
    assert_eq!(
        (&quotas[0]["used_bytes"], &quotas[0]["used_files"]),
        (&20.into(), &3.into()),
        "{quotas}"
    );
    assert_eq!(
        (&quotas[1]["folder"], &quotas[1]["files"]),
        (&"/a/b".into(), &2.into()),
        "{quotas}"
    );
    // Within the quota, entries are renamed, replaced and removed.
    cluster.run(&["dfs", "rename", "/a/b/2", "/a/b/3"]).exits(0);
    cluster.run(&["dfs", "rm", "/a/b/3"]).exits(0);
    // A folder is moved as a whole, or not at all.
    for name in ["/m/1", "/m/2"] {
        cluster.run(&["dfs", "put", "ten", name]).exits(0);
    }
    let refused = cluster.run(&["dfs", "rename", "/m", "/a/b/m"]).exits(1);
    refused.says(&["/a/b has a quota of 2 files", "1 are used: /a/b/m needs 3 more"]);
    assert_eq!(listed(&cluster, &["/m"]), pairs(&[("/m/1", "file"), ("/m/2", "file")]));
    assert_eq!(listed(&cluster, &["/a/b"]), pairs(&[("/a/b/1", "file")]));
    cluster.run(&["dfs", "put", "ten", "/a/b/4"]).exits(0);
    cluster.run(&["dfs", "quota", "remove", "/a/b"]).exits(0);
    cluster.run(&["dfs", "put", "ten", "/a/b/5"]).exits(0);
    cluster.run(&["dfs", "quota", "remove", "/a"]).exits(0);
    cluster.run(&["dfs", "rename", "/big", "/a/big"]).exits(0);
}

#[test]
fn new_files_belong_to_the_owner_of_the_map() {
    let cluster = cluster(1);
    cluster.write("x", "x\n");
    cluster.write("deep/in/y", "y\n");
    cluster.write("users.toml", "[users]\nnobody-of-this-name = { uid = 1, gid = 2 }\n");
    let put =
        |words: &[&str]| cluster.run(&[&["dfs", "put", "--users", "users.toml"], words].concat());
    put(&["x", "/x"]).exits(1).says(&["users.toml", "add a line for the user"]);
    cluster.run(&["dfs", "stat", "/x"]).exits(1);
    cluster.write("users.toml", "[users]\n\"*\" = { uid = 4321, gid = 1234 }\n");
    put(&["x", "/made/x"]).exits(0);
    put(&["-r", "deep", "/deep"]).exits(0);
    let words = ["map", "/made/x", "--to", "/mapped", "--users", "users.toml", "--", "cat"];
    cluster.run(&words).exits(0);
    for name in
        ["/made", "/made/x", "/deep", "/deep/in", "/deep/in/y", "/mapped", "/mapped/part-00000"]
    {
        let found = cluster.ask(&["dfs", "stat", name], "file");
        assert_eq!((&found["uid"], &found["gid"]), (&4321.into(), &1234.into()), "{name}: {found}");
    }
    put(&["x", "/made/x"]).exits(1).says(&["/made/x"]);
}

#[test]
fn keys_and_roles_have_owners() {
    let home = Home::new();
    let map = home.write(
        "users.toml",
        "[users]\n\"*\" = { uid = 1, gid = 2 }\n[keys]\nk99 = { uid = 3, gid = 4 }\n\
         [roles]\nsubmit = { uid = 5, gid = 6 }\n",
    );
    let map = map.to_str().unwrap();
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB", "--users", map]]);
    joined(&cluster, 1);
    cluster.write("x", "x\n");
    let owner = |name: &str| {
        let found = cluster.ask(&["dfs", "stat", name], "file");
        (found["uid"].as_u64(), found["gid"].as_u64())
    };
    let key = cluster.work().join("submit.toml");
    let key = key.to_str().unwrap();
    cluster.run(&["access", "show", "--role", "submit", "-o", key]).exits(0);
    let put =
        |name: &str| cluster.eyas(&["--access", key, "dfs", "put", "x", name, "--users", map]);
    put("/by-role").exits(0);
    assert_eq!(owner("/by-role"), (Some(5), Some(6)));
    let keys = cluster.ask(&["access", "show"], "keys");
    let is_submit = |key: &&Value| key["role"] == "submit";
    let id = keys
        .as_array()
        .unwrap()
        .iter()
        .filter(is_submit)
        .filter_map(|key| key["key"].as_str())
        .next_back()
        .unwrap();
    let with_key = fs::read_to_string(map).unwrap().replace("k99", id);
    fs::write(map, with_key).unwrap();
    put("/by-key").exits(0);
    assert_eq!(owner("/by-key"), (Some(3), Some(4)));
    // Tasks write as their executor.
    cluster.run(&["run", "-o", "out=eyas:///by-task", "--", "sh", "-c", "echo > out"]).exits(0);
    assert_eq!(owner("/by-task"), (Some(1), Some(2)));
    fs::write(map, "[roles]\nroot = { uid = 1, gid = 2 }\n").unwrap();
    put("/none").exits(1).says(&["users.toml", "`root` is not a role"]);
    fs::write(map, "[roles]\nread = { uid = 1, gid = 2 }\n").unwrap();
    put("/none").exits(1).says(&["users.toml", "(role submit)", "to [roles]"]);
}

#[test]
fn the_audit_log_has_the_size_that_was_asked_for() {
    let node = |bytes| ["--dfs", "--cache", "1GB", "--audit-bytes", bytes];
    let cluster = Cluster::start(&[&node("4000")]);
    joined(&cluster, 1);
    for number in 0..60 {
        cluster.run(&["dfs", "mkdir", &format!("/{number}")]).exits(0);
    }
    let names = || {
        let changes = cluster.ask(&["dfs", "audit"], "changes");
        let name = |change: &Value| change["name"].as_str().unwrap().to_owned();
        changes.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    wait_until("the last line is written", || names().last().is_some_and(|name| name == "/59"));
    // A line has some 130 bytes.
    let left = names();
    assert!(left.len() > 10 && left.len() < 40, "{left:?}");
    let expected: Vec<_> = (60 - left.len()..60).map(|number| format!("/{number}")).collect();
    assert_eq!(left, expected);
    let cluster = Cluster::start(&[&node("0")]);
    joined(&cluster, 1);
    cluster.run(&["dfs", "mkdir", "/a"]).exits(0);
    cluster.run(&["dfs", "audit"]).exits(0);
    assert!(cluster.ask(&["dfs", "audit"], "changes").as_array().unwrap().is_empty());
}

#[test]
fn changes_are_logged_with_key_and_door() {
    let cluster = cluster(3);
    cluster.write("x", "x\n");
    cluster.run(&["dfs", "put", "x", "/a/x"]).exits(0);
    cluster.run(&["dfs", "append", "x", "/a/x"]).exits(0);
    cluster.run(&["dfs", "chmod", "600", "/a/x"]).exits(0);
    cluster.run(&["dfs", "rename", "/a/x", "/b/y"]).exits(0);
    cluster.run(&["dfs", "rename", "/none", "/b/z"]).exits(1);
    cluster.run(&["dfs", "rm", "/b/y"]).exits(0);
    cluster
        .run(&["run", "--array", "1-1", "-o", "n=eyas:///c/n", "--", "sh", "-c", "echo 1 > n"])
        .exits(0);
    let logged = |words: &[&str]| {
        let changes = cluster.ask(&[&["dfs", "audit"], words].concat(), "changes");
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |change: &Value| {
            let size = change["size"].as_u64().map_or("-".to_owned(), |size| size.to_string());
            let [door, operation, name, to] =
                ["door", "operation", "name", "to"].map(|field| text(&change[field]));
            format!("{door} {operation} {name} {to} {size}")
        };
        changes.as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let a = [
        "dfs folder /a - -",
        "dfs create /a/x - 2",
        "dfs write /a/x - 4",
        "dfs attributes /a/x - -",
    ];
    let b = ["dfs folder /b - -", "dfs rename /a/x /b/y -", "dfs remove /b/y - -"];
    let c = ["task folder /c - -", "task create /c/n - 2"];
    wait_until("the lines are written", || logged(&[]) == [&a[..], &b[..], &c[..]].concat());
    assert_eq!(logged(&["/a"]), [&a[..], &b[1..2]].concat());
    assert_eq!(logged(&["--since", "1h", "/c"]), c);
    let shown = cluster.run(&["dfs", "audit", "/b"]).exits(0).stdout;
    let is_whole = shown.contains("rename /a/x to /b/y; key ") && shown.contains("(role admin)");
    assert!(is_whole && shown.lines().all(|line| line.contains(" UTC  dfs  ")), "{shown}");
}
