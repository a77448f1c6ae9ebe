//! A job as it is put together: sources become objects with a version, and each is looked at once.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use eyas_store::emulation::Limits;
use eyas_store::{Storage, StorageError, name_of, path_of, url_of};
use eyas_types::task::{MAX_TASKS, MAX_TEMPLATES};
use eyas_types::{Distribution, Input, InputFrom, Name, Numbers, ObjectSpec, Program, TaskItem, TaskTemplate, Value};
use thiserror::Error;

use crate::globs::find;
use crate::sources::SourceError;

/// What is wrong with a job that is put together.
#[derive(Debug, Error)]
pub enum DraftError {
    /// An input cannot be read.
    #[error(transparent)]
    Source(#[from] StorageError),
    /// The working folder is not known.
    #[error("the current folder cannot be used: {0}")]
    Folder(String),
    /// A placeholder stands for nothing.
    #[error("{0}")]
    Placeholder(String),
    /// Too much of something.
    #[error("a job can have at most {MAX_TEMPLATES} different commands")]
    Templates,
    /// Too many tasks.
    #[error("a job can have at most {MAX_TASKS} tasks: submit it in parts")]
    Tasks,
}

/// How far a job is on its way to the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparing {
    /// So many sources were looked at.
    Sources(u64),
    /// So many tasks were drafted.
    Tasks(u64),
    /// So many tasks were sent, of all.
    Sent(u64, u64),
    /// The dispatcher checks so many tasks, and writes them down.
    Accepting(u64),
}

/// Tasks that were drafted together.
pub(crate) enum Tasks {
    Items(Vec<TaskItem>),
    /// One for each number, without inputs of its own.
    Numbers {
        template: u16,
        numbers: Numbers,
        count: usize,
    },
}

/// Between two times at which it is told how far a draft is, and others have their turn.
const STEP: usize = 1024;

/// A job that is not submitted yet.
pub struct Draft {
    pub(crate) name: String,
    pub(crate) templates: Vec<TaskTemplate>,
    pub(crate) objects: Vec<ObjectSpec>,
    pub(crate) tasks: Vec<Tasks>,
    pub(crate) count: usize,
    pub(crate) reuse: bool,
    pub(crate) broadcast: BTreeSet<u32>,
    pub(crate) distribution: Distribution,
    places: HashMap<Name, u32>,
    pub(crate) see: Box<dyn FnMut(Preparing) + Send>,
    pub(crate) storage: Storage,
    folder: Option<PathBuf>,
}

impl Draft {
    /// A job without tasks. Relative names are meant from the current folder.
    pub fn new(name: &str) -> Self {
        Draft {
            name: name.to_owned(),
            templates: Vec::new(),
            objects: Vec::new(),
            tasks: Vec::new(),
            count: 0,
            reuse: false,
            broadcast: BTreeSet::new(),
            distribution: Distribution::default(),
            places: HashMap::new(),
            see: Box::new(|_| {}),
            storage: Storage::new(Limits::default()),
            folder: std::env::current_dir().ok(),
        }
    }

    /// Shows how far it is, now and then, until its job is accepted.
    pub fn seen_by(mut self, see: impl FnMut(Preparing) + Send + 'static) -> Self {
        self.see = Box::new(see);
        self
    }

    /// Takes results of earlier jobs, where the same was run and is still there.
    pub fn reuse_results(&mut self) {
        self.reuse = true;
    }

    /// Has all executors that may run its tasks fetch this input ahead of them. What another task writes cannot be.
    pub fn broadcast(&mut self, input: &Input) {
        if let InputFrom::Object(place) = input.from {
            self.broadcast.insert(place);
        }
    }

    /// Which way inputs that are broadcast go. Along a spanning tree, they are all inputs if none was named, and no task
    /// starts before they are there.
    pub fn distribute(&mut self, distribution: Distribution) {
        self.distribution = distribution;
    }

    /// Its objects, each with the version it has now.
    pub fn into_objects(self) -> Vec<ObjectSpec> {
        self.objects
    }

    /// How many tasks it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no task.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a template; its place, which tasks name.
    ///
    /// # Errors
    /// If there are too many.
    pub fn template(&mut self, template: TaskTemplate) -> Result<u16, DraftError> {
        if self.templates.len() >= MAX_TEMPLATES {
            return Err(DraftError::Templates);
        }
        self.templates.push(template);
        Ok((self.templates.len() - 1) as u16)
    }

    /// Adds a task whose item is a file, which it reads.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn task_on_file(&mut self, template: u16, file: &Name) -> Result<(), DraftError> {
        let input = self.input(file).await?;
        let value = Value { text: file.clone(), input: Some(0) };
        self.task(TaskItem { template, values: vec![value], inputs: vec![input] })
    }

    /// Adds a task.
    ///
    /// # Errors
    /// If its command has a placeholder for a column or input that it does not have.
    pub fn task(&mut self, item: TaskItem) -> Result<(), DraftError> {
        let template = &self.templates[usize::from(item.template)];
        check_placeholders(template, item.values.len(), template.inputs.len() + item.inputs.len())?;
        self.make_room(1)?;
        match self.tasks.last_mut() {
            Some(Tasks::Items(items)) => items.push(item),
            _ => self.tasks.push(Tasks::Items(vec![item])),
        }
        Ok(())
    }

    /// Adds a task for each number, which has that as its item, and no input of its own. However many they are, they take no
    /// memory here.
    ///
    /// # Errors
    /// If the command has a placeholder for a column or input that there is not, or they are too many.
    pub fn tasks_of_numbers(&mut self, template: u16, numbers: Numbers) -> Result<(), DraftError> {
        let fields = &self.templates[usize::from(template)];
        check_placeholders(fields, 1, fields.inputs.len())?;
        let count = numbers.count_up_to(MAX_TASKS);
        self.make_room(count)?;
        self.tasks.push(Tasks::Numbers { template, numbers, count });
        Ok(())
    }

    fn make_room(&mut self, tasks: usize) -> Result<(), DraftError> {
        if self.count + tasks > MAX_TASKS {
            return Err(DraftError::Tasks);
        }
        self.count += tasks;
        Ok(())
    }

    /// Says how far it is and lets others have their turn, after some tasks.
    pub(crate) async fn pause(&mut self) {
        if self.count.is_multiple_of(STEP) {
            (self.see)(Preparing::Tasks(self.count as u64));
            tokio::task::yield_now().await;
        }
    }

    /// The files that a pattern names, or the objects of a bucket (`s3://…`), in order of name; a name that exists as it is
    /// stands for itself, as do other URLs.
    ///
    /// # Errors
    /// If there are none, or they cannot be looked for.
    pub async fn find(&mut self, pattern: &Name) -> Result<Vec<Name>, SourceError> {
        find(&self.storage, pattern, pattern).await
    }

    /// An input from a path or URL, with the version it has now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn input(&mut self, path_or_url: &Name) -> Result<Input, DraftError> {
        let place = match self.places.get(path_or_url) {
            Some(place) => *place,
            None => {
                let object = self.storage.stat(&self.url(path_or_url)?, None).await?;
                self.objects.push(object);
                let place = self.objects.len() as u32 - 1;
                self.places.insert(path_or_url.clone(), place);
                place
            }
        };
        Ok(Input { from: InputFrom::Object(place), name: None })
    }

    /// Looks at many sources at once, so that [`input`](Self::input) finds them known.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub async fn look_at(&mut self, sources: &[Name]) -> Result<(), DraftError> {
        /// Sources looked at at a time, each part by one task.
        const AT_A_TIME: usize = 16;
        const PART: usize = 64;
        let mut unknown: Vec<_> = sources.iter().filter(|source| !self.places.contains_key(*source)).cloned().collect();
        unknown.sort_unstable();
        unknown.dedup();
        for parts in unknown.chunks(AT_A_TIME * PART) {
            let mut looks = Vec::new();
            for part in parts.chunks(PART) {
                let urls = part.iter().map(|source| self.url(source)).collect::<Result<Vec<_>, _>>()?;
                let storage = self.storage.clone();
                looks.push(tokio::spawn(async move {
                    let mut objects = Vec::with_capacity(urls.len());
                    for url in urls {
                        objects.push(storage.stat(&url, None).await?);
                    }
                    Ok::<_, StorageError>(objects)
                }));
            }
            for (part, look) in parts.chunks(PART).zip(looks) {
                let objects = look.await.map_err(|e| DraftError::Folder(e.to_string()))??;
                for (source, object) in part.iter().zip(objects) {
                    self.objects.push(object);
                    self.places.insert(source.clone(), self.objects.len() as u32 - 1);
                }
                (self.see)(Preparing::Sources(self.objects.len() as u64));
            }
        }
        Ok(())
    }

    /// The folder from which relative names are meant.
    ///
    /// # Errors
    /// If the current folder is gone.
    pub fn folder(&self) -> Result<Name, DraftError> {
        let folder = self.folder.as_deref().ok_or_else(|| DraftError::Folder("it is gone".into()))?;
        Ok(name_of(folder))
    }

    fn url(&self, path_or_url: &Name) -> Result<Name, DraftError> {
        if path_or_url.is_url() || path_or_url.starts_with(b"/") {
            return Ok(url_of(path_or_url)?);
        }
        let path = path_of(&self.folder()?).join(path_of(path_or_url));
        // `a/./b` and `a//b` are one object; `..` is left to the file system, which knows about links.
        let path: PathBuf = path.components().collect();
        Ok(url_of(&name_of(path))?)
    }
}

/// Whether every placeholder of a task stands for something.
fn check_placeholders(template: &TaskTemplate, columns: usize, inputs: usize) -> Result<(), DraftError> {
    let words = match &template.program {
        Program::Command(words) => &words[..],
        Program::Noop => &[],
    };
    let outputs = template.outputs.iter().flat_map(|output| [Some(&output.pattern), output.destination.as_ref()]);
    for word in words.iter().chain(outputs.flatten()).chain(template.env.iter().map(|(_, value)| value)) {
        if usize::from(word.highest_column()) > columns {
            let why = format!("`{word}` asks for column {}, the item has {columns}", word.highest_column());
            return Err(DraftError::Placeholder(why));
        }
        if usize::from(word.highest_input()) > inputs {
            let why = format!("`{word}` asks for input {}, the task has {inputs}", word.highest_input());
            return Err(DraftError::Placeholder(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::Template;

    #[tokio::test]
    async fn each_source_is_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(path_of(b"a b\n\xff.fits"));
        std::fs::write(&file, "data").unwrap();
        let name = name_of(file);
        let mut draft = Draft::new("test");
        let template = draft.template(TaskTemplate::new(Program::Command(vec![Template::parse("{}")]))).unwrap();
        draft.look_at(&[name.clone(), name.clone()]).await.unwrap();
        draft.task_on_file(template, &name).await.unwrap();
        draft.task_on_file(template, &name).await.unwrap();
        assert_eq!((draft.len(), draft.objects.len()), (2, 1));
        assert_eq!(draft.objects[0].size_bytes(), 4);
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let mut draft = Draft::new("test");
        let error = draft.input(&"/no/such/file.fits".into()).await.unwrap_err().to_string();
        assert!(error.contains("/no/such/file.fits"), "{error}");
        let template = draft.template(TaskTemplate::new(Program::Command(vec![Template::parse("{2}")]))).unwrap();
        let value = Value { text: "x".into(), input: None };
        let item = TaskItem { template, values: vec![value], inputs: Vec::new() };
        assert!(draft.task(item).unwrap_err().to_string().contains("column 2"));
    }
}
