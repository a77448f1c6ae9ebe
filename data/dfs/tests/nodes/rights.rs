//! What a client may do with the token of a job.

use eyas_files::{FileWriter, FilesErrorKind, WriteOptions};
use eyas_types::access::FilesScope;
use eyas_types::dfs::Format;

use crate::cluster::{Cluster, content_of, name, write};

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
