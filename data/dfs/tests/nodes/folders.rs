//! Folders, links and attributes.

use std::io;

use eyas_files::{Creation, DfsClient, FilesErrorKind, FolderPage, RenameOptions};
use eyas_types::dfs::{AttributeChange, FileKind};

use crate::cluster::{Cluster, SMALL, content_of, name, write};

const MADE: Creation =
    Creation { mode: 0o750, uid: 7, gid: 8, modified_ns: Some(1_234), makes_parents: false };

/// The names in a folder, page by page.
async fn names(files: &DfsClient, folder: &str, most: u32) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), String::new());
    loop {
        let page = files.list_folder(folder, &from, most).await.unwrap();
        names.extend(page.entries.iter().map(|entry| entry.name.to_string()));
        match page.next {
            Some(next) => from = next,
            None => return names,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_made_listed_and_removed() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/a/b/c", b"x\n").await.unwrap();
    for folder in ["/a", "/a/b"] {
        assert_eq!(files.lookup(&name(folder)).await.unwrap().record.kind, FileKind::Folder);
        assert_eq!(files.stat(&name(folder)).await.unwrap_err().kind, FilesErrorKind::IsFolder);
        assert_eq!(files.remove(&name(folder)).await.unwrap_err().kind, FilesErrorKind::IsFolder);
        assert_eq!(
            files.remove_folder(&name(folder)).await.unwrap_err().kind,
            FilesErrorKind::NotEmpty
        );
    }
    assert_eq!(write(&files, "/a/b/c/d", b"").await.unwrap_err().kind, FilesErrorKind::NotFolder);
    assert_eq!(write(&files, "/a/b", b"").await.unwrap_err().kind, FilesErrorKind::Exists);
    assert_eq!(
        files.remove_folder(&name("/a/b/c")).await.unwrap_err().kind,
        FilesErrorKind::NotFolder
    );
    let empty = files.make_folder(&name("/a/empty"), MADE).await.unwrap();
    assert_eq!(files.lookup(&name("/a/empty")).await.unwrap(), empty);
    let attributes = empty.record.attributes;
    assert_eq!(
        (attributes.mode, attributes.uid, attributes.gid, attributes.modified_ns),
        (0o750, 7, 8, 1_234)
    );
    assert_eq!(
        files.make_folder(&name("/a/empty"), MADE).await.unwrap_err().kind,
        FilesErrorKind::Exists
    );
    for number in 0..40 {
        write(&files, &format!("/a/{number:02}"), b"").await.unwrap();
        write(&files, &format!("/a/{number:02}-x/y"), b"").await.unwrap();
    }
    let mut all: Vec<String> = (0..40)
        .flat_map(|number| [format!("/a/{number:02}"), format!("/a/{number:02}-x")])
        .collect();
    all.extend(["/a/b".to_owned(), "/a/empty".to_owned()]);
    for most in [1, 7, 1000] {
        assert_eq!(names(&files, "/a/", most).await, all, "{most}");
    }
    assert_eq!(names(&files, "", 10).await, ["/a"]);
    assert_eq!(names(&files, "/nothing", 10).await, [""; 0]);
    files.remove_folder(&name("/a/empty")).await.unwrap();
    assert_eq!(
        files.remove_folder(&name("/a/empty")).await.unwrap_err().kind,
        FilesErrorKind::NotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subtree_is_listed_page_by_page_in_the_order_of_its_names() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let mut all =
        vec!["/t/a".to_owned(), "/t/a-b".to_owned(), "/t/a/b".to_owned(), "/t/a0".to_owned()];
    for file in ["/t/a-b", "/t/a/b/c", "/t/a0", "/other/x", "/t-", "/t0"] {
        write(&files, file, b"").await.unwrap();
    }
    all.push("/t/a/b/c".to_owned());
    for number in 0..50 {
        write(&files, &format!("/t/n/{number:02}"), b"").await.unwrap();
        all.push(format!("/t/n/{number:02}"));
    }
    all.push("/t/n".to_owned());
    all.sort();
    for (folder, most) in [("/t", 1), ("/t/", 7), ("/t", 1000)] {
        let (mut found, mut from, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = files.list_subtree(folder, &from, most).await.unwrap();
            found.extend(page.entries.iter().map(|entry| entry.name.to_string()));
            pages += 1;
            let Some(next) = page.next else { break };
            from = next;
        }
        assert_eq!(found, all, "{most}");
        assert!(most == 1000 || pages > 2, "{pages} pages of {most}");
    }
    // From any text on, such as a name that is not there.
    let page = files.list_subtree("/t", "/t/n/4", 1000).await.unwrap();
    assert_eq!(page.entries.len(), 10);
    assert_eq!(files.list_subtree("", "", 1000).await.unwrap().entries.len(), all.len() + 5);
    assert_eq!(files.list_subtree("/nothing", "", 10).await.unwrap(), FolderPage::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_lost_its_entry_gets_it_back() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let mut options = SMALL;
    options.creation.makes_parents = false;
    for file in ["/a-b", "/a/1/2", "/b/3"] {
        files.write(&name(file), io::Cursor::new(b"x\n"), options, |_| {}).await.unwrap();
    }
    assert!(!files.exists(&name("/a")).await.unwrap());
    let mut listed = names(&files, "/", 1).await;
    listed.sort();
    assert_eq!(listed, ["/a", "/a-b", "/b"]);
    assert_eq!(names(&files, "/a", 1).await, ["/a/1"]);
    for folder in ["/a", "/a/1", "/b"] {
        assert!(files.lookup(&name(folder)).await.unwrap().record.kind.is_folder());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_and_links_are_renamed() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let replaces = RenameOptions { replaces: true, makes_parents: false, keeps_format: false };
    write(&files, "/a/1", b"one\n").await.unwrap();
    write(&files, "/a/b/2", b"two\n").await.unwrap();
    let link = files.make_symbolic_link(&name("/a/link"), "../x y", MADE).await.unwrap();
    assert_eq!(link.record.size_bytes(), 6);
    assert_eq!(files.stat(&name("/a/link")).await.unwrap_err().kind, FilesErrorKind::Invalid);
    files.make_folder(&name("/a/empty"), MADE).await.unwrap();
    let inside = files.rename(&name("/a"), &name("/a/b/c"), replaces).await.unwrap_err();
    assert_eq!(inside.kind, FilesErrorKind::Invalid);

    files.make_folder(&name("/other"), MADE).await.unwrap();
    let taken =
        files.rename(&name("/a"), &name("/other"), RenameOptions::default()).await.unwrap_err();
    assert_eq!(taken.kind, FilesErrorKind::Exists);
    files.rename(&name("/a"), &name("/other"), replaces).await.unwrap();
    assert_eq!(names(&files, "/", 9).await, ["/other"]);
    assert_eq!(
        names(&files, "/other", 9).await,
        ["/other/1", "/other/b", "/other/empty", "/other/link"]
    );
    assert_eq!(content_of(&files, "/other/b/2").await, b"two\n");
    let moved = files.lookup(&name("/other/link")).await.unwrap().record;
    assert_eq!(moved.kind, FileKind::SymbolicLink("../x y".into()));
    assert_eq!(files.lookup(&name("/other/empty")).await.unwrap().record.attributes.uid, 7);

    for (from, to, kind) in [
        ("/other/1", "/other/empty", FilesErrorKind::IsFolder),
        ("/other/empty", "/other/1", FilesErrorKind::NotFolder),
        ("/other/empty", "/other/b", FilesErrorKind::NotEmpty),
        ("/nothing", "/other/1", FilesErrorKind::NotFound),
    ] {
        let refused = files.rename(&name(from), &name(to), replaces).await.unwrap_err();
        assert_eq!(refused.kind, kind, "{from} {to}: {refused}");
    }
    files.rename(&name("/other/1"), &name("/other/b/2"), replaces).await.unwrap();
    assert_eq!(content_of(&files, "/other/b/2").await, b"one\n");
    files.rename(&name("/other/empty"), &name("/e"), replaces).await.unwrap();
    assert_eq!(names(&files, "/", 9).await, ["/e", "/other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_not_moved_if_a_name_would_be_too_long() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let long = format!("/a{}", format!("/{}", "x".repeat(250)).repeat(16));
    let before = write(&files, &long, b"x\n").await.unwrap();
    write(&files, "/a/0", b"x\n").await.unwrap();
    let to = format!("/{}", "y".repeat(250));
    let refused =
        files.rename(&name("/a"), &name(&to), RenameOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind, FilesErrorKind::Invalid, "{refused}");
    assert_eq!(names(&files, "/", 9).await, ["/a"]);
    assert!(
        files.exists(&name("/a/0")).await.unwrap() && files.exists(&before.name).await.unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_can_be_moved_away_and_back() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/a/s/f", b"one\n").await.unwrap();
    for (from, to) in [("/a", "/b"), ("/b", "/a"), ("/a", "/b")] {
        files.rename(&name(from), &name(to), RenameOptions::default()).await.unwrap();
        assert_eq!(names(&files, "/", 9).await, [to]);
        assert_eq!(content_of(&files, &format!("{to}/s/f")).await, b"one\n");
        // In the same client, which has just removed the folder.
        write(&files, "/other/f", b"x").await.unwrap();
        files.remove(&name("/other/f")).await.unwrap();
        files.remove_folder(&name("/other")).await.unwrap();
    }
    write(&files, "/a/g", b"two\n").await.unwrap();
    assert!(files.lookup(&name("/a")).await.unwrap().record.kind.is_folder());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_moved_while_its_files_are_written() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    for round in 0..5 {
        let (from, to) = (format!("/from{round}"), format!("/to{round}"));
        let file = name(&format!("{from}/f"));
        write(&files, file.as_str(), b"line\n").await.unwrap();
        let (started, begun) = tokio::sync::oneshot::channel();
        let appending = tokio::spawn({
            let files = files.clone();
            async move {
                let (mut lines, mut started) = (1, Some(started));
                while files.append(&file, io::Cursor::new(b"line\n"), |_| {}).await.is_ok() {
                    lines += 1;
                    started.take().map(|started| started.send(()));
                }
                lines
            }
        });
        begun.await.unwrap();
        files.rename(&name(&from), &name(&to), RenameOptions::default()).await.unwrap();
        let lines = appending.await.unwrap();
        assert_eq!(content_of(&files, &format!("{to}/f")).await, b"line\n".repeat(lines));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_rename_of_a_folder_can_be_repeated() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    for number in 0..300 {
        write(&files, &format!("/a/{number:03}"), format!("{number}\n").as_bytes()).await.unwrap();
    }
    let renaming = tokio::spawn({
        let files = files.clone();
        async move { files.rename(&name("/a"), &name("/b"), RenameOptions::default()).await }
    });
    while !files.exists(&name("/b")).await.unwrap() {
        tokio::task::yield_now().await;
    }
    renaming.abort();
    let _ = renaming.await;
    files
        .rename(&name("/a"), &name("/b"), RenameOptions::default())
        .await
        .or_else(|error| match error.kind {
            // It was done before it was interrupted.
            FilesErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
        .unwrap();
    assert_eq!(names(&files, "/", 9).await, ["/b"]);
    assert_eq!(names(&files, "/b", 1000).await.len(), 300);
    assert_eq!(content_of(&files, "/b/007").await, b"7\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_and_content_change_independently() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/f", b"one\n").await.unwrap();
    let change = AttributeChange { mode: Some(0o4600), ..AttributeChange::default() };
    let changed = files.set_attributes(&name("/f"), &change).await.unwrap();
    assert_eq!(changed, files.lookup(&name("/f")).await.unwrap());
    assert_eq!((changed.record.attributes.mode, changed.record.attributes.uid), (0o4600, 1));
    let mut work = tokio::task::JoinSet::new();
    for number in 0..20 {
        let files = files.clone();
        work.spawn(async move {
            let change = AttributeChange { uid: Some(number), ..AttributeChange::default() };
            files.set_attributes(&name("/f"), &change).await.map(drop)
        });
    }
    let owned = files.clone();
    work.spawn(async move {
        owned.append(&name("/f"), io::Cursor::new(b"two\n"), |_| {}).await.map(drop)
    });
    work.join_all().await.into_iter().for_each(|done| done.unwrap());
    assert_eq!(content_of(&files, "/f").await, b"one\ntwo\n");
    let attributes = files.lookup(&name("/f")).await.unwrap().record.attributes;
    assert!(attributes.mode == 0o4600 && attributes.uid < 20, "{attributes:?}");
    assert!(attributes.modified_ns > changed.record.attributes.modified_ns);
}
