//! What a client may do with the token of a job, and on behalf of a user.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use eyas_files::blocks::{BlockPolicy, DEFAULT_TERM_US};
use eyas_files::{
    ChangeEntry, Creation, DfsClient, FileWriter, FilesError, FilesErrorKind, RenameOptions,
    RunSpec, WriteOptions,
};
use eyas_types::access::{FilesAccess, FilesScope};
use eyas_types::dfs::{AttributeChange, FileKind, Format, NodeId, Quota, SetCondition};

use crate::cluster::{Cluster, content_of, eventually, name, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_only_read_a_file_cannot_open_it_for_writing() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/sky.csv", b"one\n").await.unwrap();
    let scope = FilesScope {
        reads: [name("/sky.csv"), name("/new")].into(),
        folders: ["/out".into()].into(),
    };
    let of_job = cluster.files_of_job(scope).await;
    assert_eq!(content_of(&of_job, "/sky.csv").await, b"one\n");
    let create = async |path: &str| {
        FileWriter::create(of_job.clone(), name(path), WriteOptions::of(Format::Lines), true).await
    };
    let refused = [
        create("/sky.csv").await.err(),
        create("/new").await.err(),
        FileWriter::append(of_job.clone(), name("/sky.csv")).await.err(),
    ];
    for error in refused {
        let error = error.expect("it is refused before a byte is written");
        assert_eq!(error.kind, FilesErrorKind::NotAllowed);
        assert!(
            error.message.contains("cannot be written")
                && error.message.contains("the token of job 7"),
            "{error}"
        );
    }
    let mut writer = create("/out/part").await.unwrap();
    writer.write(b"two\n").await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(content_of(&of_job, "/out/part").await, b"two\n");
}

/// A cluster with `/a/in` and what the user anna must not reach: `/ab/out`, `/b/out`.
async fn with_users() -> (Cluster, DfsClient) {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    for path in ["/a/in", "/ab/out", "/b/out"] {
        write(&files, path, b"one\n").await.unwrap();
    }
    (cluster, files)
}

fn refused<T>(what: &str, done: Result<T, FilesError>) {
    let Err(error) = done else { panic!("{what} is permitted") };
    assert_eq!(error.kind, FilesErrorKind::NotAllowed, "{what}: {error}");
}

const RENAMED: RenameOptions =
    RenameOptions { replaces: true, makes_parents: true, keeps_format: false };

#[tokio::test(flavor = "multi_thread")]
async fn on_behalf_of_a_user_nothing_outside_of_the_folder_is_read() {
    let (_cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a", FilesAccess::Write).unwrap();
    assert_eq!(content_of(&anna, "/a/in").await, b"one\n");
    assert_eq!(anna.list("/a").await.unwrap().len(), 1);
    assert_eq!(anna.list_folder("/a/", "", 10).await.unwrap().entries.len(), 1);
    assert_eq!(anna.folder_usage("/a").await.unwrap().files, 1);
    for folder in ["", "/", "/b", "/ab", "/a/../b", "/a/..", "/ab/"] {
        refused(folder, anna.list(folder).await);
        refused(folder, anna.list_entries(folder).await);
        refused(folder, anna.list_folder(folder, "/a/in", 10).await);
        refused(folder, anna.list_subtree(folder, "", 10).await);
        refused(folder, anna.folder_usage(folder).await);
        match anna.changes(folder, 0).await {
            Ok(mut changes) => refused(folder, changes.next().await),
            Err(error) => refused::<()>(folder, Err(error)),
        }
    }
    // Where a page begins leads to no other folder.
    let page = anna.list_folder("/a", "/b", 10).await.unwrap();
    assert!(page.entries.is_empty() && page.next.is_none());
    for path in ["/b/out", "/ab/out", "/b", "/ab", "/none"] {
        refused(path, anna.lookup(&name(path)).await);
        refused(path, anna.exists(&name(path)).await);
        refused(path, anna.named_attributes(&name(path)).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_behalf_of_a_user_nothing_outside_of_the_folder_is_changed() {
    let (cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a", FilesAccess::Write).unwrap();
    let own = anna.stat(&name("/a/in")).await.unwrap();
    let made = Creation::of_process(0o777);
    let options = WriteOptions::of(Format::Lines);
    for path in ["/b/out", "/ab/out", "/b/new", "/new", "/a"] {
        let at = name(path);
        if path != "/a" {
            // The folder itself may be looked at.
            refused(path, write(&anna, path, b"two\n").await);
            refused(path, anna.remove(&at).await);
            refused(path, anna.remove_folder(&at).await);
            refused(path, anna.copy(&own, &at, 1).await);
            refused(path, FileWriter::create(anna.clone(), at.clone(), options, true).await);
        }
        refused(path, anna.set_attributes(&at, &AttributeChange::default()).await);
        let value = b"x".to_vec();
        let set = anna.set_named_attribute(&at, "colour", value, SetCondition::None).await;
        refused(path, set);
        refused(path, anna.make_folder(&at, made).await);
        refused(path, anna.make_symbolic_link(&at, "/a/in", made).await);
        refused(path, anna.set_quota(&at, None).await);
    }
    for path in ["/b/out", "/ab/out"] {
        let other = files.stat(&name(path)).await.unwrap();
        refused(path, anna.append(&name(path), io::Cursor::new(b"two\n".to_vec()), |_| {}).await);
        refused(path, anna.rename(&name(path), &name("/a/new"), RENAMED).await);
        refused(path, anna.rename(&name("/a/in"), &name(path), RENAMED).await);
        refused(path, anna.copy(&other, &name("/a/copy"), 1).await);
        refused(path, anna.set_format(&other, Format::Whole.into()).await);
        refused(path, FileWriter::edit(anna.clone(), name(path), None).await);
    }
    refused("/b/new", anna.rename(&name("/a/in"), &name("/b/new"), RENAMED).await);
    refused("/b/x/y", anna.make_folders(&name("/b/x/y")).await);
    anna.make_folders(&name("/a")).await.unwrap();

    // What is in the folder may be changed.
    anna.make_folders(&name("/a/x/y")).await.unwrap();
    anna.copy(&own, &name("/a/x/copy"), 2).await.unwrap();
    anna.rename(&name("/a/x"), &name("/a/z"), RENAMED).await.unwrap();
    anna.append(&name("/a/z/copy"), io::Cursor::new(b"two\n".to_vec()), |_| {}).await.unwrap();
    assert_eq!(content_of(&files, "/a/z/copy").await, b"one\ntwo\n");
    anna.remove(&name("/a/z/copy")).await.unwrap();
    for path in ["/ab/out", "/b/out"] {
        assert_eq!(content_of(&files, path).await, b"one\n");
    }
    assert_eq!(files.list("/").await.unwrap().len(), 3);
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_objects_and_replicas_are_not_for_users() {
    let (_cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a", FilesAccess::Write).unwrap();
    let own = anna.stat(&name("/a/in")).await.unwrap();
    let policy = BlockPolicy::named("lean").unwrap();
    let (slots, term_us) = (vec![NodeId(1); 2], DEFAULT_TERM_US);
    let idle = Duration::from_secs(3600);
    let spec = RunSpec { files: vec![own.clone()], policy, slots, pieces: 1, term_us, idle };
    refused("a run", anna.open_run(spec.clone()).await);
    let run = files.open_run(spec).await.unwrap();
    refused("its specification", anna.run_spec(run).await);
    refused("its status", anna.run_status(run).await);
    refused("its work", anna.attend_run(run).await.map(drop));
    refused("its end", anna.close_run(run).await);
    let membership = anna.membership().await.unwrap();
    refused("the use of a node", anna.usage(&membership.alive[0]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_behalf_of_a_reader_nothing_is_changed() {
    let (_cluster, files) = with_users().await;
    let reader = files.on_behalf("anna", "/a", FilesAccess::Read).unwrap();
    assert!(!reader.may_write());
    let own = reader.stat(&name("/a/in")).await.unwrap();
    assert_eq!(content_of(&reader, "/a/in").await, b"one\n");
    let made = Creation::of_process(0o777);
    let options = WriteOptions::of(Format::Lines);
    refused("creating", FileWriter::create(reader.clone(), name("/a/b"), options, true).await);
    refused("writing", write(&reader, "/a/b", b"x\n").await);
    refused(
        "appending",
        reader.append(&name("/a/in"), io::Cursor::new(b"x".to_vec()), |_| {}).await,
    );
    refused("removing", reader.remove(&name("/a/in")).await);
    refused("renaming", reader.rename(&name("/a/in"), &name("/a/b"), RENAMED).await);
    refused("copying", reader.copy(&own, &name("/a/b"), 1).await);
    refused("making", reader.make_folder(&name("/a/b"), made).await);
    refused("setting", reader.set_attributes(&name("/a/in"), &AttributeChange::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_links_lead_out_of_no_folder() {
    let (_cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a", FilesAccess::Write).unwrap();
    let made = Creation::of_process(0o777);
    for (path, target) in [("/a/out", "../b/out"), ("/a/folder", "/b")] {
        anna.make_symbolic_link(&name(path), target, made).await.unwrap();
        assert_eq!(
            anna.lookup(&name(path)).await.unwrap().record.kind,
            FileKind::SymbolicLink(target.into())
        );
        assert_eq!(anna.stat(&name(path)).await.unwrap_err().kind, FilesErrorKind::Invalid);
    }
    // Nodes follow no links: these are names below `/a`, which do not exist.
    let below = anna.lookup(&name("/a/folder/out")).await.unwrap_err();
    assert_eq!(below.kind, FilesErrorKind::NotFound);
    assert_eq!(anna.list("/a/folder").await.unwrap(), []);
    let written = write(&anna, "/a/folder/out", b"two\n").await.unwrap_err();
    assert_eq!(written.kind, FilesErrorKind::NotFolder);
    let renamed = anna.rename(&name("/a/in"), &name("/a/out"), RENAMED).await;
    renamed.expect("a link is replaced and not followed");
    assert_eq!(content_of(&files, "/b/out").await, b"one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_only_narrows_what_it_may_do() {
    let (cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a/", FilesAccess::Write).unwrap();
    let narrower = anna.on_behalf("anna", "/a/x", FilesAccess::Read).unwrap();
    refused("/a/in", narrower.stat(&name("/a/in")).await);
    for (user, prefix, access) in [
        ("anna", "/", FilesAccess::Read),
        ("anna", "/ab", FilesAccess::Read),
        ("bob", "/a", FilesAccess::Read),
    ] {
        refused(prefix, anna.on_behalf(user, prefix, access));
    }
    refused("writing again", narrower.on_behalf("anna", "/a/x", FilesAccess::Write));
    for (user, prefix) in [("", "/a"), ("a\nb", "/a"), ("anna", "/a/../b"), ("anna", "//")] {
        let wrong = files.on_behalf(user, prefix, FilesAccess::Read).map(drop);
        let is_root = prefix == "//";
        assert_eq!(wrong.is_ok(), is_root, "{user:?} {prefix}");
    }
    // A key that may only read, and the token of a job, give users no more than they have.
    let scope = FilesScope { reads: Vec::new(), folders: ["/a".into()].into() };
    let of_job = cluster.files_of_job(scope).await;
    let of_job = of_job.on_behalf("anna", "/", FilesAccess::Write).unwrap();
    assert_eq!(content_of(&of_job, "/a/in").await, b"one\n");
    refused("/b/out", of_job.stat(&name("/b/out")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_of_folders_above_that_of_a_user_hold() {
    let (_cluster, files) = with_users().await;
    let quota = Some(Quota { bytes: Some(100), files: None });
    files.make_folders(&name("/users/anna")).await.unwrap();
    files.set_quota(&name("/users"), quota).await.unwrap();
    let anna = files.on_behalf("anna", "/users/anna", FilesAccess::Write).unwrap();
    let large = write(&anna, "/users/anna/large", &[b'x'; 200]).await.unwrap_err();
    assert_eq!(large.kind, FilesErrorKind::Quota);
    write(&anna, "/users/anna/small", b"x\n").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_names_the_user_beside_the_key() {
    let (_cluster, files) = with_users().await;
    let anna = files.on_behalf("anna", "/a", FilesAccess::Write).unwrap();
    let bob = files.on_behalf("bob", "/b", FilesAccess::Write).unwrap();
    // At the same time, so that requests of both would be in one group if they could.
    let written = |user: &DfsClient, folder: &str| {
        let (user, folder) = (user.clone(), folder.to_owned());
        tokio::spawn(async move {
            for number in 0..20 {
                write(&user, &format!("{folder}/{number}"), b"x\n").await.unwrap();
            }
        })
    };
    let writing = [written(&anna, "/a"), written(&bob, "/b")];
    for writing in writing {
        writing.await.unwrap();
    }
    files.rename(&name("/a/in"), &name("/b/moved"), RENAMED).await.unwrap();
    let entries = async |files: &DfsClient, folder: &str| {
        let mut changes = files.changes(folder, 0).await.unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = changes.next().await.unwrap() {
            entries.push(entry);
        }
        entries
    };
    eventually("all changes are in the logs of their nodes", async || {
        let of_users = |entry: &&ChangeEntry| entry.principal.is_some();
        let all = entries(&files, "/").await;
        all.iter().filter(of_users).count() == 40
            && all.iter().any(|entry| entry.operation == "rename")
    })
    .await;
    let all = entries(&files, "/").await;
    for (user, folder) in [("anna", "/a"), ("bob", "/b")] {
        let of_user: Vec<_> =
            all.iter().filter(|entry| entry.principal.as_deref() == Some(user)).collect();
        assert_eq!(of_user.iter().filter(|entry| entry.operation == "create").count(), 20);
        let is_within =
            |entry: &&&ChangeEntry| entry.name.as_ref().is_some_and(|name| name.is_within(folder));
        assert!(of_user.iter().all(|entry| is_within(&entry)));
    }
    let renamed = all.iter().find(|entry| entry.operation == "rename").unwrap();
    assert_eq!((&renamed.principal, &renamed.to), (&None, &Some(name("/b/moved"))));
    let holders: BTreeSet<_> = all.iter().map(|entry| &entry.holder).collect();
    assert_eq!(holders.len(), 1, "all changes came with one key");
    // The user learns that a file was moved away, and not where it is.
    let own = entries(&anna, "/a").await;
    let renamed = own.iter().find(|entry| entry.operation == "rename").unwrap();
    assert_eq!((&renamed.name, &renamed.to), (&Some(name("/a/in")), &None));
}
