//! A large job, submitted as clients do.

use eyas_session::Session;
use eyas_types::{Distribution, FileMode, JobId, ObjectSpec, TaskItem, TaskTemplate, Version};
use eyas_wire::client::{FromClient, SUBMISSION_PART, ToClient};

/// Submits a job of one template in parts. Its tasks read the first `objects` objects of a survey.
pub async fn submit(
    session: &mut Session,
    name: &str,
    template: TaskTemplate,
    objects: u32,
    tasks: u32,
    item: impl Fn(u32) -> TaskItem,
) -> JobId {
    submit_objects(session, name, template, (0..objects).map(object), tasks, item).await
}

/// The same with other objects.
pub async fn submit_objects(
    session: &mut Session,
    name: &str,
    template: TaskTemplate,
    mut objects: impl Iterator<Item = ObjectSpec>,
    tasks: u32,
    item: impl Fn(u32) -> TaskItem,
) -> JobId {
    let writer = &mut session.writer;
    let submit = FromClient::Submit {
        name: name.into(),
        user: String::new(),
        templates: vec![template],
        reuse: false,
        broadcast: Vec::new(),
        distribution: Distribution::default(),
        tasks: tasks.into(),
    };
    writer.send(&[submit]).await.expect("it reads");
    loop {
        let part: Vec<_> = objects.by_ref().take(SUBMISSION_PART).collect();
        if part.is_empty() {
            break;
        }
        writer.send(&[FromClient::Objects(part)]).await.expect("it reads");
    }
    for first in (0..tasks).step_by(SUBMISSION_PART) {
        let part = first..tasks.min(first + SUBMISSION_PART as u32);
        writer.send(&[FromClient::Items(part.map(&item).collect())]).await.expect("it reads");
    }
    writer.send(&[FromClient::Commit]).await.expect("it reads");
    match &session.reader.next::<ToClient>().await.expect("an answer")[..] {
        [ToClient::Accepted { job }] => *job,
        other => panic!("{other:?}"),
    }
}

/// Path of an object of a survey.
pub fn path(object: u32) -> String {
    format!("/data/survey/run-{:03}/frame-{object:08}.fits", object / 1000)
}

fn object(number: u32) -> ObjectSpec {
    let version = Version::Modified {
        mtime_ns: 1_600_000_000_000_000_000,
        size_bytes: 1000 + u64::from(number % 7),
    };
    ObjectSpec {
        source: format!("file://{}", path(number)).into(),
        version,
        mode: FileMode::READABLE,
    }
}
