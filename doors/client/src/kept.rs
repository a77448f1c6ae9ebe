//! Kept outputs of earlier jobs as inputs: `eyas://JOB/TASK/FILE`, and patterns of such names. In a
//! name that a user writes, JOB may be `last`, the job that was submitted last; the cluster knows
//! outputs by the numbers of their jobs alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use eyas_store::Glob;
use eyas_types::{JobId, Name, ObjectSpec, TaskId};
use eyas_wire::client::{FromClient, KeptPart, ToClient};

use crate::client::Client;
use crate::client_error::ClientError;
use crate::clusters::Cluster;
use crate::globs::is_pattern;
use crate::kept_error::KeptError;

/// If more names than this of one job are looked up together, all kept outputs of the job are
/// listed.
const ASKED_ONE_BY_ONE: usize = 16;
/// The word for the job that was submitted last.
const LAST: &str = "last";

/// The kept outputs of a cluster's jobs. What was looked up once is not asked for again.
#[derive(Default)]
pub(crate) struct KeptOutputs {
    cluster: Option<Cluster>,
    client: Option<Client>,
    known: HashMap<Name, ObjectSpec>,
    /// Jobs whose outputs are all known, in the order of their tasks.
    listed: HashMap<JobId, Vec<Name>>,
    /// The job that was submitted last, once it was asked for.
    last: Option<JobId>,
}

impl KeptOutputs {
    /// Names the cluster. It is dialled when the first output is looked up.
    pub fn on_cluster(&mut self, cluster: &Cluster) {
        self.cluster = Some(cluster.clone());
    }

    /// The objects with these names, in their order.
    pub async fn look_up(&mut self, names: &[&Name]) -> Result<Vec<ObjectSpec>, KeptError> {
        let mut numbered = Vec::with_capacity(names.len());
        for name in names.iter().copied() {
            numbered.push(self.numbered(name).await?);
        }
        let mut unknown: HashMap<JobId, Vec<&Name>> = HashMap::new();
        for name in numbered.iter().filter(|name| !self.known.contains_key(&***name)) {
            unknown.entry(job_of(name)?).or_default().push(name);
        }
        for (job, names) in unknown {
            if names.len() > ASKED_ONE_BY_ONE {
                self.list(names[0], job).await?;
            }
            for name in names {
                self.ask_for(name).await?;
            }
        }
        Ok(numbered.iter().map(|name| self.known[&**name].clone()).collect())
    }

    /// The name with the number of the job in place of `last`.
    async fn numbered<'a>(&mut self, name: &'a Name) -> Result<Cow<'a, Name>, KeptError> {
        if is_of_last(name) && self.last.is_none() {
            let client = self.client(name).await?;
            self.last = Some(last_job(client, name).await?);
        }
        Ok(self
            .last
            .and_then(|last| with_number(name, last))
            .map_or(Cow::Borrowed(name), Cow::Owned))
    }

    /// The name with the number of the job in place of `last`, if an output of that job was looked
    /// up.
    pub fn as_looked_up(&self, name: &Name) -> Name {
        self.last.and_then(|last| with_number(name, last)).unwrap_or_else(|| name.clone())
    }

    /// The names that match a pattern, in the order of the tasks. `name` is the pattern without
    /// escapes: if an output has this name, the result is that name only. A text that is not a
    /// pattern stands for itself.
    pub async fn find(&mut self, name: &Name, pattern: &Name) -> Result<Vec<Name>, KeptError> {
        let name = self.numbered(name).await?.into_owned();
        if !is_pattern(pattern) {
            return Ok(vec![name]);
        }
        let pattern = self.numbered(pattern).await?;
        let job = job_of(&pattern)?;
        self.list(&pattern, job).await?;
        let names = &self.listed[&job];
        if names.contains(&name) {
            return Ok(vec![name]);
        }
        let glob = Glob::parse(&pattern)?;
        let found: Vec<_> = names.iter().filter(|name| glob.names(name)).cloned().collect();
        if found.is_empty() { Err(KeptError::NotKept(pattern.into_owned())) } else { Ok(found) }
    }

    /// Looks up one output.
    async fn ask_for(&mut self, name: &Name) -> Result<(), KeptError> {
        let job = job_of(name)?;
        if !self.known.contains_key(name) && !self.listed.contains_key(&job) {
            let task = task_of(name, job).ok_or_else(|| KeptError::Name(name.clone()))?;
            self.ask(name, job, task.index, task.index.saturating_add(1)).await?;
        }
        if self.known.contains_key(name) { Ok(()) } else { Err(KeptError::NotKept(name.clone())) }
    }

    /// Looks up all outputs that a job keeps.
    async fn list(&mut self, name: &Name, job: JobId) -> Result<(), KeptError> {
        if !self.listed.contains_key(&job) {
            let found = self.ask(name, job, 0, u32::MAX).await?;
            self.listed.insert(job, found);
        }
        Ok(())
    }

    /// Asks for the kept outputs of some tasks. Returns their names, in the order of the tasks.
    async fn ask(
        &mut self,
        name: &Name,
        job: JobId,
        from: u32,
        to: u32,
    ) -> Result<Vec<Name>, KeptError> {
        let (mut found, mut next) = (Vec::new(), Some(from));
        while let Some(from) = next {
            let (objects, more) = part_of(self.client(name).await?, name, job, from..to).await?;
            for object in objects {
                found.push(object.source.clone());
                self.known.insert(object.source.clone(), object);
            }
            next = more;
        }
        Ok(found)
    }

    /// The connection, which is dialled for `name` if there is none yet.
    async fn client(&mut self, name: &Name) -> Result<&mut Client, KeptError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let cluster =
                    self.cluster.as_ref().ok_or_else(|| KeptError::NoCluster(name.clone()))?;
                Ok(none.insert(Client::connect(&cluster.access()?).await?))
            }
        }
    }
}

/// The name of a kept output with the number of its job, which may be `last` in `name`.
///
/// # Errors
/// If the cluster has no job, or the connection ends.
pub async fn numbered(client: &mut Client, name: &Name) -> Result<Name, KeptError> {
    if !is_of_last(name) {
        return Ok(name.clone());
    }
    let last = last_job(client, name).await?;
    Ok(with_number(name, last).unwrap_or_else(|| name.clone()))
}

async fn last_job(client: &mut Client, name: &Name) -> Result<JobId, KeptError> {
    client.last_job().await?.ok_or_else(|| KeptError::NoJob(name.clone()))
}

/// The kept outputs of some tasks of a job, and the first task of the next part, if there are more.
async fn part_of(
    client: &mut Client,
    name: &Name,
    job: JobId,
    tasks: Range<u32>,
) -> Result<(Vec<ObjectSpec>, Option<u32>), KeptError> {
    let request = FromClient::Kept { job, from: tasks.start, to: tasks.end, doubted: Vec::new() };
    let ToClient::Kept(part) = client.ask(request).await? else {
        return Err(ClientError::Unexpected.into());
    };
    let KeptPart { outputs, unfinished, next, .. } = part;
    if unfinished > 0 {
        return Err(KeptError::Unfinished { name: name.clone(), job, tasks: unfinished });
    }
    if let Some(lost) = outputs.iter().find(|output| output.is_lost) {
        return Err(KeptError::Lost(lost.object.source.clone()));
    }
    Ok((outputs.into_iter().map(|output| output.object).collect(), next))
}

/// The kept output of this name.
pub(crate) async fn kept_output(client: &mut Client, name: &Name) -> Result<ObjectSpec, KeptError> {
    let name = numbered(client, name).await?;
    let job = job_of(&name)?;
    let index = task_of(&name, job).ok_or_else(|| KeptError::Name(name.clone()))?.index;
    let (found, _) = part_of(client, &name, job, index..index.saturating_add(1)).await?;
    found
        .into_iter()
        .find(|object| object.source == name)
        .ok_or_else(|| KeptError::NotKept(name.clone()))
}

/// Whether the name has `last` in place of the number of the job.
fn is_of_last(name: &Name) -> bool {
    parts_of(name).is_some_and(|(job, _)| job == LAST)
}

/// The name of `last` with the number of that job; `None` if it has another job.
fn with_number(name: &Name, last: JobId) -> Option<Name> {
    let (_, rest) = parts_of(name).filter(|(job, _)| *job == LAST)?;
    Some(Name::concat(&[format!("eyas://{last}/").as_bytes(), rest]))
}

/// The job in the name of a kept output.
fn job_of(name: &Name) -> Result<JobId, KeptError> {
    parts_of(name)
        .and_then(|(job, _)| job.parse().ok())
        .ok_or_else(|| KeptError::Name(name.clone()))
}

/// The task in the name of a kept output.
fn task_of(name: &Name, job: JobId) -> Option<TaskId> {
    let (_, rest) = parts_of(name)?;
    let (index, file) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
    let index = str::from_utf8(index).ok()?.parse().ok()?;
    (file.len() > 1).then_some(TaskId { job, index })
}

/// The text of the job's number, and what follows it.
fn parts_of(name: &Name) -> Option<(&str, &[u8])> {
    let rest = name.strip_prefix(b"eyas://")?;
    let (job, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
    Some((str::from_utf8(job).ok()?, &rest[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_job_a_task_and_a_file() {
        let task = |name: &str| {
            let name = Name::from(name);
            job_of(&name).ok().map(|job| task_of(&name, job).map(|task| task.to_string()))
        };
        assert_eq!(task("eyas://3/7/a"), Some(Some("3.7".into())));
        assert_eq!(task("eyas://3/7/a/b"), Some(Some("3.7".into())));
        assert_eq!(task("eyas://3/*/a"), Some(None));
        assert_eq!(task("eyas://3/7/"), Some(None));
        assert_eq!(task("eyas://3/7"), Some(None));
        for wrong in ["eyas://data/a.csv", "eyas://0/1/a", "eyas://*/1/a", "eyas://3"] {
            let error = job_of(&wrong.into()).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("eyas:///PATH"), "{error}");
        }
    }

    #[test]
    fn last_stands_for_the_number_of_a_job() {
        for (written, numbered) in [
            ("eyas://last/0/a", Some("eyas://7/0/a")),
            ("eyas://last/*/a/last/b", Some("eyas://7/*/a/last/b")),
            ("eyas://3/last/a", None),
            ("eyas://last", None),
            ("eyas:///last/0/a", None),
            ("eyas://lasting/0/a", None),
        ] {
            let name = Name::from(written);
            assert_eq!(with_number(&name, JobId(7)), numbered.map(Name::from), "{written}");
            assert_eq!(is_of_last(&name), numbered.is_some(), "{written}");
        }
    }
}
