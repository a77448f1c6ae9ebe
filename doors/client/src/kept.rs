//! Kept outputs of earlier jobs as inputs: `eyas://JOB/TASK/FILE`, and patterns of such names.

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

/// The kept outputs of a cluster's jobs. What was looked up once is not asked for again.
#[derive(Default)]
pub(crate) struct KeptOutputs {
    cluster: Option<Cluster>,
    client: Option<Client>,
    known: HashMap<Name, ObjectSpec>,
    /// Jobs whose outputs are all known, in the order of their tasks.
    listed: HashMap<JobId, Vec<Name>>,
}

impl KeptOutputs {
    /// Names the cluster. It is dialled when the first output is looked up.
    pub fn on_cluster(&mut self, cluster: &Cluster) {
        self.cluster = Some(cluster.clone());
    }

    /// The objects with these names, in their order.
    pub async fn look_up(&mut self, names: &[&Name]) -> Result<Vec<ObjectSpec>, KeptError> {
        let mut unknown: HashMap<JobId, Vec<&Name>> = HashMap::new();
        for name in names.iter().copied().filter(|name| !self.known.contains_key(*name)) {
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
        Ok(names.iter().map(|name| self.known[*name].clone()).collect())
    }

    /// The names that match a pattern, in the order of the tasks. `name` is the pattern without
    /// escapes: if an output has this name, the result is that name only. A text that is not a
    /// pattern stands for itself.
    pub async fn find(&mut self, name: &Name, pattern: &Name) -> Result<Vec<Name>, KeptError> {
        if !is_pattern(pattern) {
            return Ok(vec![name.clone()]);
        }
        let job = job_of(pattern)?;
        self.list(pattern, job).await?;
        let names = &self.listed[&job];
        if names.contains(name) {
            return Ok(vec![name.clone()]);
        }
        let glob = Glob::parse(pattern)?;
        let found: Vec<_> = names.iter().filter(|name| glob.names(name)).cloned().collect();
        if found.is_empty() { Err(KeptError::NotKept(pattern.clone())) } else { Ok(found) }
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
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let cluster =
                    self.cluster.as_ref().ok_or_else(|| KeptError::NoCluster(name.clone()))?;
                none.insert(Client::connect(&cluster.access()?).await?)
            }
        };
        let (mut found, mut next) = (Vec::new(), Some(from));
        while let Some(from) = next {
            let (objects, more) = part_of(client, name, job, from..to).await?;
            for object in objects {
                found.push(object.source.clone());
                self.known.insert(object.source.clone(), object);
            }
            next = more;
        }
        Ok(found)
    }
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
    let job = job_of(name)?;
    let index = task_of(name, job).ok_or_else(|| KeptError::Name(name.clone()))?.index;
    let (found, _) = part_of(client, name, job, index..index.saturating_add(1)).await?;
    found
        .into_iter()
        .find(|object| object.source == *name)
        .ok_or_else(|| KeptError::NotKept(name.clone()))
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
}
