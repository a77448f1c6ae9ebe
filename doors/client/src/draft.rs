//! A job that is put together before it is submitted. Each source becomes an object with its
//! present version, and is looked up once, however many tasks read it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use eyas_store::emulation::Limits;
use eyas_store::{ClusterFile, Storage, StorageError, name_of, path_of, url_of};
use eyas_types::object::is_kept_name;
use eyas_types::task::{MAX_TASKS, MAX_TEMPLATES};
use eyas_types::units::format_count;
use eyas_types::{
    Distribution, Input, InputFrom, Name, Numbers, ObjectId, ObjectSpec, PartOfFile, TaskItem,
    TaskTemplate, Template, Value,
};
use thiserror::Error;

use crate::clusters::Cluster;
use crate::draft_files::{ClusterNames, files_storage};
use crate::globs::find;
use crate::kept::KeptOutputs;
use crate::kept_error::KeptError;
use crate::sources::SourceError;

/// Why a task or input cannot be added to a job.
#[derive(Debug, Error)]
pub enum DraftError {
    /// An input is missing or cannot be read.
    #[error(transparent)]
    Source(#[from] StorageError),
    /// A kept output of another job cannot be read.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The current folder was removed.
    #[error("the current folder was removed: change to a folder that exists")]
    NoFolder,
    /// The work that looks up sources in the background panicked.
    #[error("looking up inputs was broken off: {0}")]
    Broken(tokio::task::JoinError),
    /// A word has a placeholder for a column that the item does not have.
    #[error(
        "`{word}` asks for column {column}, but the item has {}",
        format_count(*.columns as u64, "column")
    )]
    Column {
        /// The word, as it was written.
        word: Template,
        /// Number of the column, from 1.
        column: u16,
        /// Number of columns of the item.
        columns: usize,
    },
    /// A word has a placeholder for the item of a task that has none.
    #[error("`{word}` asks for the item, but the task has none: {NO_ITEM}")]
    NoItem {
        /// The word, as it was written.
        word: Template,
    },
    /// A word has a placeholder for an input that the task does not have.
    #[error(
        "`{word}` asks for input {input}, but the task has {}: name the file with --input \
         (`inputs` in a job file)",
        format_count(*.inputs as u64, "input")
    )]
    Input {
        /// The word, as it was written.
        word: Template,
        /// Number of the input, from 1.
        input: u32,
        /// Number of inputs of the task.
        inputs: usize,
    },
    /// Blocks of a file that is not in the cluster.
    #[error(
        "`{url}` is not a file of the cluster, and only such files have blocks: copy it there \
         first, with `eyas dfs put {url} /{name}`, and name eyas:///{name}"
    )]
    NoBlocks {
        /// Path or URL of the file.
        url: Name,
        /// Its name without folders.
        name: Name,
    },
    /// The range of an input begins after the last byte of its file.
    #[error(
        "`{url}` has {size_bytes} bytes, and so none from {first} on: the range is beyond its end"
    )]
    BeyondEnd {
        /// Path or URL of the file.
        url: Name,
        /// Size of the file.
        size_bytes: u64,
        /// The first byte that was asked for.
        first: u64,
    },
    /// The job has too many templates.
    #[error("a job can have at most {MAX_TEMPLATES} different commands: submit it in parts")]
    Templates,
    /// The job has too many tasks.
    #[error("a job can have at most {MAX_TASKS} tasks: submit it in parts")]
    Tasks,
}

/// Progress of a job from draft to acceptance. All fields are numbers so far, unless they say
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitProgress {
    /// Versions of the inputs are looked up.
    Sources(u64),
    /// Tasks are added to the draft.
    Tasks(u64),
    /// Tasks are sent to the dispatcher.
    Sent {
        /// Number of tasks that were sent.
        sent: u64,
        /// Number of tasks of the job.
        tasks: u64,
    },
    /// The dispatcher checks the job, and writes it to its journal.
    Accepting {
        /// Number of tasks of the job.
        tasks: u64,
    },
}

/// Tasks that were drafted together.
pub(crate) enum DraftTasks {
    Items(Vec<TaskItem>),
    /// One task for each number, without inputs of its own.
    Numbers {
        template: u16,
        numbers: Numbers,
        count: usize,
    },
}

impl DraftTasks {
    /// Number of tasks.
    pub fn len(&self) -> usize {
        match self {
            DraftTasks::Items(items) => items.len(),
            DraftTasks::Numbers { count, .. } => *count,
        }
    }

    /// The tasks one by one. Tasks of numbers are made when the iterator reaches them.
    pub fn items(&self) -> impl Iterator<Item = Cow<'_, TaskItem>> {
        let (items, numbers) = match self {
            DraftTasks::Items(items) => (&items[..], None),
            DraftTasks::Numbers { template, numbers, .. } => (&[][..], Some((*template, numbers))),
        };
        let of_number = |template, number: u64| TaskItem {
            template,
            values: vec![Value { text: number.to_string().into(), input: None }],
            inputs: Vec::new(),
        };
        let of_numbers = numbers.into_iter().flat_map(move |(template, numbers)| {
            numbers.iter().map(move |number| Cow::Owned(of_number(template, number)))
        });
        items.iter().map(Cow::Borrowed).chain(of_numbers)
    }
}

/// Maximum number of chunks of a file that the dispatcher is told.
const CHUNKS_OF_FILE: usize = 512;

/// What to do if a placeholder has no item.
pub(crate) const NO_ITEM: &str = "give it items with --each, --each-line or --array (`each`, \
                                  `each_line` or `array` in a job file), or write `\\{}` for the \
                                  braces themselves";

/// Number of tasks after which a draft reports its progress and yields to other work.
const STEP: usize = 1024;

/// A job that is not submitted yet.
pub struct Draft {
    pub(crate) name: String,
    pub(crate) templates: Vec<TaskTemplate>,
    pub(crate) objects: Vec<ObjectSpec>,
    /// Chunks of objects that are files of several chunks, by the objects' indices.
    pub(crate) chunks: Vec<(u32, Vec<(ObjectId, u64)>)>,
    pub(crate) tasks: Vec<DraftTasks>,
    pub(crate) count: usize,
    pub(crate) reuse: bool,
    /// Whether the job stops when its first tasks fail in the same way.
    pub(crate) halts: bool,
    pub(crate) broadcast: BTreeSet<u32>,
    pub(crate) distribution: Distribution,
    /// Index in `objects` of each path or URL, as it was written.
    known: HashMap<Name, u32>,
    pub(crate) see: Box<dyn FnMut(SubmitProgress) + Send>,
    storage: Storage,
    /// Files of the cluster, by their URLs.
    files: HashMap<Name, ClusterFile>,
    kept: KeptOutputs,
    folder: Option<PathBuf>,
    /// Words of commands in which files outside of the sandboxes were looked for.
    pub(crate) examined: HashSet<Name>,
}

impl Draft {
    /// A job without tasks. Relative paths begin at the current folder.
    pub fn new(name: &str) -> Self {
        Draft {
            name: name.to_owned(),
            templates: Vec::new(),
            objects: Vec::new(),
            chunks: Vec::new(),
            tasks: Vec::new(),
            count: 0,
            reuse: false,
            halts: false,
            broadcast: BTreeSet::new(),
            distribution: Distribution::default(),
            known: HashMap::new(),
            see: Box::new(|_| {}),
            storage: Storage::new(Limits::default()),
            files: HashMap::new(),
            kept: KeptOutputs::default(),
            folder: std::env::current_dir().ok(),
            examined: HashSet::new(),
        }
    }

    /// Calls `see` with the progress from time to time, until the dispatcher has accepted the job.
    pub fn seen_by(mut self, see: impl FnMut(SubmitProgress) + Send + 'static) -> Self {
        self.see = Box::new(see);
        self
    }

    /// Gives the draft access to the files of a cluster, `eyas:///PATH`, to kept outputs,
    /// `eyas://JOB/TASK/FILE`, and to files with names, `lfn://NAME`.
    pub fn on_cluster(mut self, cluster: &Cluster) -> Self {
        self.kept.on_cluster(cluster);
        self.storage.provide_files(Arc::new(files_storage(cluster.clone())));
        self.storage.provide_names(Arc::new(ClusterNames::of(cluster.clone())));
        self
    }

    /// Lets the dispatcher use results of earlier tasks with the same command and inputs, if their
    /// outputs still exist.
    pub fn reuse_results(&mut self) {
        self.reuse = true;
    }

    /// Whether the job stops when its first tasks fail in the same way and none succeeds.
    pub fn halt_if_all_fail(&mut self, halts: bool) {
        self.halts = halts;
    }

    /// Copies this input to all executors that may run tasks of the job, ahead of the tasks.
    /// Outputs of other tasks cannot be broadcast; for them, this does nothing.
    pub fn broadcast(&mut self, input: &Input) {
        if let Some(object) = input.from.object() {
            self.broadcast.insert(object);
        }
    }

    /// Whether some tasks read what nodes make of files.
    pub(crate) fn derives(&self) -> bool {
        let items = self.tasks.iter().flat_map(DraftTasks::items);
        self.templates.iter().any(|template| template.inputs.iter().any(Input::is_derived))
            || items.into_iter().any(|item| item.inputs.iter().any(Input::is_derived))
    }

    /// Sets how inputs that are broadcast reach the executors. With a spanning tree, no task starts
    /// before all copies exist; if no input was named with [`broadcast`](Self::broadcast), all
    /// inputs are broadcast.
    pub fn distribute(&mut self, distribution: Distribution) {
        self.distribution = distribution;
    }

    /// The objects that tasks of the draft read, each with its present version.
    pub fn into_objects(self) -> Vec<ObjectSpec> {
        self.objects
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the draft has no task.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a template, and returns the number by which tasks refer to it.
    ///
    /// # Errors
    /// If the job has too many templates.
    pub fn template(&mut self, template: TaskTemplate) -> Result<u16, DraftError> {
        if self.templates.len() >= MAX_TEMPLATES {
            return Err(DraftError::Templates);
        }
        self.templates.push(template);
        Ok((self.templates.len() - 1) as u16)
    }

    /// Adds a task that reads one file. The file's name is the task's item.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn task_on_file(&mut self, template: u16, file: &Name) -> Result<(), DraftError> {
        let input = self.input(file).await?;
        let value = Value { text: file.clone(), input: Some(0) };
        self.task(TaskItem { template, values: vec![value], inputs: vec![input] })
    }

    /// Adds a task of one of the draft's templates.
    ///
    /// # Errors
    /// If the template has a placeholder for a column or input that the task does not have, or the
    /// job has too many tasks.
    pub fn task(&mut self, item: TaskItem) -> Result<(), DraftError> {
        let template = &self.templates[usize::from(item.template)];
        check_placeholders(template, item.values.len(), template.inputs.len() + item.inputs.len())?;
        self.make_room(1)?;
        match self.tasks.last_mut() {
            Some(DraftTasks::Items(items)) => items.push(item),
            _ => self.tasks.push(DraftTasks::Items(vec![item])),
        }
        Ok(())
    }

    /// Adds one task for each number. The number is the task's item; the task has no input of its
    /// own. The draft keeps the ranges only, so a million tasks need no more memory than one.
    ///
    /// # Errors
    /// If the template has a placeholder for a column or input that the tasks do not have, or the
    /// job has too many tasks.
    pub fn tasks_of_numbers(&mut self, template: u16, numbers: Numbers) -> Result<(), DraftError> {
        let fields = &self.templates[usize::from(template)];
        check_placeholders(fields, 1, fields.inputs.len())?;
        let count = numbers.count_up_to(MAX_TASKS);
        self.make_room(count)?;
        self.tasks.push(DraftTasks::Numbers { template, numbers, count });
        Ok(())
    }

    /// The columns of the items of tasks that were added together.
    pub(crate) fn items_of(&self, first: u32, count: u32) -> Vec<Vec<Name>> {
        let texts = |item: &TaskItem| item.values.iter().map(|value| value.text.clone()).collect();
        let mut start = 0;
        for tasks in &self.tasks {
            let place = first as usize - start;
            match tasks {
                _ if place >= tasks.len() => start += tasks.len(),
                DraftTasks::Items(items) => {
                    return items[place..][..count as usize].iter().map(texts).collect();
                }
                DraftTasks::Numbers { numbers, .. } => {
                    return numbers.iter().map(|number| vec![number.to_string().into()]).collect();
                }
            }
        }
        Vec::new()
    }

    fn make_room(&mut self, tasks: usize) -> Result<(), DraftError> {
        if self.count + tasks > MAX_TASKS {
            return Err(DraftError::Tasks);
        }
        self.count += tasks;
        Ok(())
    }

    /// After each `STEP` tasks, reports the progress and yields to other work.
    pub(crate) async fn pause(&mut self) {
        if self.count.is_multiple_of(STEP) {
            (self.see)(SubmitProgress::Tasks(self.count as u64));
            tokio::task::yield_now().await;
        }
    }

    /// The files, objects of a bucket (`s3://…`), files of the cluster (`eyas:///…`) or kept
    /// outputs (`eyas://JOB/…`; JOB may be `last`) that match a pattern, sorted by name; kept outputs are in the order
    /// of their tasks. The name of an existing file or object matches that file only, even if it
    /// has special characters. Any other URL stands for itself.
    ///
    /// # Errors
    /// If nothing matches, or a folder or bucket cannot be listed.
    pub async fn find(&mut self, pattern: &Name) -> Result<Vec<Name>, SourceError> {
        self.find_named(pattern, pattern).await
    }

    /// The same. `name` is the pattern without escapes.
    pub(crate) async fn find_named(
        &mut self,
        name: &Name,
        pattern: &Name,
    ) -> Result<Vec<Name>, SourceError> {
        if is_kept_name(pattern) {
            return Ok(self.kept.find(name, pattern).await?);
        }
        find(&self.storage, name, pattern).await
    }

    /// An input from a path or URL, with its present version.
    ///
    /// # Errors
    /// If the file or object is missing or cannot be read.
    pub async fn input(&mut self, path_or_url: &Name) -> Result<Input, DraftError> {
        let object = match self.known.get(path_or_url) {
            Some(object) => *object,
            None if is_kept_name(path_or_url) => {
                let object = self.kept.look_up(&[path_or_url]).await?.remove(0);
                self.add_object(path_or_url, object)
            }
            None if is_cluster_file(path_or_url) => {
                let file = self.cluster_file(path_or_url).await?;
                self.add_file(path_or_url, &file)
            }
            None => {
                let object = self.storage.stat(&self.url(path_or_url)?).await?;
                self.add_object(path_or_url, object)
            }
        };
        Ok(Input { from: InputFrom::Object(object), name: None })
    }

    /// Forgets all inputs, so that the next ones get the indices from 0 and their present versions.
    pub(crate) fn forget_inputs(&mut self) {
        self.objects.clear();
        self.chunks.clear();
        self.known.clear();
        self.files.clear();
    }

    /// An input for each block of a file of the cluster, `eyas:///PATH`, in its order.
    ///
    /// # Errors
    /// If the file is missing, or is not a file of the cluster.
    pub async fn blocks(&mut self, url: &Name) -> Result<Vec<Input>, DraftError> {
        if !is_cluster_file(url) {
            let name = url.rsplit(|byte| *byte == b'/').next().unwrap_or_default().into();
            return Err(DraftError::NoBlocks { url: url.clone(), name });
        }
        let blocks: Vec<_> = self.cluster_file(url).await?.blocks().collect();
        let first = self.objects.len() as u32;
        self.objects.extend(blocks);
        (self.see)(SubmitProgress::Sources(self.objects.len() as u64));
        let input = |object| Input { from: InputFrom::Object(object), name: None };
        Ok((first..self.objects.len() as u32).map(input).collect())
    }

    /// An input that is a part of a file: a range of its bytes or records. The range is cut at the
    /// end of the file. A part of a file of the cluster, `eyas:///PATH`, is an object of its own.
    /// Of any other file, nodes store the whole file, the sandbox of the task gets a copy of the
    /// part, and the node counts the records.
    ///
    /// # Errors
    /// If the file is missing or has none of these bytes, or if a file of the cluster has none of
    /// these records.
    pub async fn part(&mut self, url: &Name, part: PartOfFile) -> Result<Input, DraftError> {
        let is_derived =
            matches!(part, PartOfFile::Decompressed { .. } | PartOfFile::Prepared { .. });
        if !is_cluster_file(url) || is_derived {
            return self.part_of_object(url, part).await;
        }
        let file = self.cluster_file(url).await?;
        let object = match part {
            PartOfFile::Decompressed { .. } | PartOfFile::Prepared { .. } => {
                unreachable!("it is made of a whole object")
            }
            PartOfFile::Bytes { first, end } => file.part(first..end)?,
            PartOfFile::Records { first, end } => file.records(first..end).await?,
        };
        let index = self.objects.len() as u32;
        self.note_chunks(index, file.chunks(&object));
        self.objects.push(object);
        Ok(Input { from: InputFrom::Object(index), name: None })
    }

    async fn part_of_object(&mut self, url: &Name, part: PartOfFile) -> Result<Input, DraftError> {
        let mut input = self.input(url).await?;
        if let Some(object) = input.from.object() {
            let size_bytes = self.objects[object as usize].size_bytes();
            if let PartOfFile::Bytes { first, .. } = part
                && first >= size_bytes
            {
                return Err(DraftError::BeyondEnd { url: url.clone(), size_bytes, first });
            }
            input.from = InputFrom::Part { object, part };
        }
        Ok(input)
    }

    /// Adds a whole file of the cluster, and returns its index.
    fn add_file(&mut self, url: &Name, file: &ClusterFile) -> u32 {
        let object = file.whole();
        let chunks = file.chunks(&object);
        let index = self.add_object(url, object);
        self.note_chunks(index, chunks);
        index
    }

    /// Notes the chunks of a file that has several, or some of them, by which tasks are placed.
    fn note_chunks(&mut self, index: u32, chunks: Vec<(ObjectId, u64)>) {
        let step = chunks.len().div_ceil(CHUNKS_OF_FILE).max(1);
        if chunks.len() > 1 {
            self.chunks.push((index, chunks.into_iter().step_by(step).collect()));
        }
    }

    /// A file of the cluster, which is looked up once for the whole draft.
    async fn cluster_file(&mut self, url: &Name) -> Result<ClusterFile, DraftError> {
        let url = self.url(url)?;
        if let Some(file) = self.files.get(&url) {
            return Ok(file.clone());
        }
        let file = self.storage.cluster_file(&url).await?;
        self.files.insert(url, file.clone());
        Ok(file)
    }

    /// Adds an object, and returns its index.
    fn add_object(&mut self, path_or_url: &Name, object: ObjectSpec) -> u32 {
        self.objects.push(object);
        let index = self.objects.len() as u32 - 1;
        self.known.insert(path_or_url.clone(), index);
        index
    }

    /// Looks up the versions of many sources concurrently, so that [`input`](Self::input) need not
    /// look them up one by one.
    ///
    /// # Errors
    /// If one of the sources is missing or cannot be read.
    pub async fn look_up(&mut self, sources: &[Name]) -> Result<(), DraftError> {
        /// Number of lookups that run at the same time; each handles `PART` sources.
        const CONCURRENCY: usize = 16;
        const PART: usize = 64;
        let mut unknown: Vec<_> =
            sources.iter().filter(|source| !self.known.contains_key(*source)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let kept: Vec<_> = unknown.extract_if(.., |name| is_kept_name(name)).collect();
        for (name, object) in kept.iter().zip(self.kept.look_up(&kept).await?) {
            self.add_object(name, object);
        }
        let of_cluster: Vec<_> = unknown.extract_if(.., |name| is_cluster_file(name)).collect();
        for parts in of_cluster.chunks(CONCURRENCY * PART) {
            let mut lookups = Vec::new();
            for part in parts.chunks(PART) {
                let unknown = part.iter().filter(|name| !self.files.contains_key(**name));
                let (urls, storage) =
                    (unknown.map(|name| (*name).clone()).collect::<Vec<_>>(), self.storage.clone());
                lookups.push(tokio::spawn(async move { storage.cluster_files(urls).await }));
            }
            for (part, lookup) in parts.chunks(PART).zip(lookups) {
                self.files.extend(lookup.await.map_err(DraftError::Broken)??);
                for source in part {
                    let file = self.files[*source].clone();
                    self.add_file(source, &file);
                }
                (self.see)(SubmitProgress::Sources(self.objects.len() as u64));
            }
        }
        for parts in unknown.chunks(CONCURRENCY * PART) {
            let mut lookups = Vec::new();
            for part in parts.chunks(PART) {
                let urls =
                    part.iter().map(|source| self.url(source)).collect::<Result<Vec<_>, _>>()?;
                let storage = self.storage.clone();
                lookups.push(tokio::spawn(async move { storage.stat_all(urls).await }));
            }
            for (part, lookup) in parts.chunks(PART).zip(lookups) {
                let objects = lookup.await.map_err(DraftError::Broken)??;
                for (source, object) in part.iter().zip(objects) {
                    self.add_object(source, object);
                }
                (self.see)(SubmitProgress::Sources(self.objects.len() as u64));
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn set_folder(&mut self, folder: &std::path::Path) {
        self.folder = Some(folder.to_owned());
    }

    /// The folder at which relative paths begin: the current folder when the draft was made.
    ///
    /// # Errors
    /// If the folder had been removed.
    pub fn folder(&self) -> Result<Name, DraftError> {
        self.folder.as_ref().map(name_of).ok_or(DraftError::NoFolder)
    }

    /// The inputs, of those given, that are sources, by their URLs. Any way to write a path leads
    /// to its URL.
    pub(crate) fn by_url(&self, inputs: &[Input]) -> HashMap<Name, u32> {
        let source =
            |input: &Input| Some(self.objects[input.from.object()? as usize].source.clone());
        (0..).zip(inputs).filter_map(|(place, input)| Some((source(input)?, place))).collect()
    }

    pub(crate) fn url(&self, path_or_url: &Name) -> Result<Name, DraftError> {
        if is_kept_name(path_or_url) {
            return Ok(self.kept.as_looked_up(path_or_url));
        }
        if path_or_url.is_url() || path_or_url.starts_with(b"/") {
            return Ok(url_of(path_or_url)?);
        }
        let path = path_of(&self.folder()?).join(path_of(path_or_url));
        // `a/./b` and `a//b` are one object. `..` stays: only the file system knows where links
        // lead.
        let path: PathBuf = path.components().collect();
        Ok(url_of(&name_of(path))?)
    }
}

/// Whether a source is a file of the cluster, `eyas:///PATH`.
fn is_cluster_file(source: &Name) -> bool {
    source.starts_with(b"eyas:///")
}

/// Checks that the item and the task have every column and input for which the template has a
/// placeholder.
fn check_placeholders(
    template: &TaskTemplate,
    columns: usize,
    inputs: usize,
) -> Result<(), DraftError> {
    for word in template.words() {
        let (column, input) = (word.highest_column(), word.highest_input());
        if columns == 0 && word.has_value() {
            return Err(DraftError::NoItem { word: word.clone() });
        }
        if usize::from(column) > columns {
            return Err(DraftError::Column { word: word.clone(), column, columns });
        }
        if input as usize > inputs {
            return Err(DraftError::Input { word: word.clone(), input, inputs });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{Program, Template};

    #[tokio::test]
    async fn blocks_are_of_files_of_the_cluster() {
        let error = Draft::new("test").blocks(&"in/a.txt".into()).await.err();
        assert_eq!(
            error.expect("it is a local file").to_string(),
            "`in/a.txt` is not a file of the cluster, and only such files have blocks: copy it \
             there first, with `eyas dfs put in/a.txt /a.txt`, and name eyas:///a.txt"
        );
    }

    #[tokio::test]
    async fn each_source_is_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(path_of(b"a b\n\xff.fits"));
        std::fs::write(&file, "data").unwrap();
        let name = name_of(file);
        let mut draft = Draft::new("test");
        let template = draft
            .template(TaskTemplate::new(Program::Command(vec![Template::parse("{}")])))
            .unwrap();
        draft.look_up(&[name.clone(), name.clone()]).await.unwrap();
        draft.task_on_file(template, &name).await.unwrap();
        draft.task_on_file(template, &name).await.unwrap();
        assert_eq!((draft.len(), draft.objects.len()), (2, 1));
        assert_eq!(draft.objects[0].size_bytes(), 4);
    }

    #[tokio::test]
    async fn missing_files_and_columns_are_named() {
        let mut draft = Draft::new("test");
        let error = draft.input(&"/no/such/file.fits".into()).await.unwrap_err().to_string();
        assert!(error.contains("/no/such/file.fits"), "{error}");
        let template = draft
            .template(TaskTemplate::new(Program::Command(vec![Template::parse("{2}")])))
            .unwrap();
        let value = Value { text: "x".into(), input: None };
        let item = TaskItem { template, values: vec![value], inputs: Vec::new() };
        assert!(draft.task(item).unwrap_err().to_string().contains("column 2"));
        for (word, is_refused) in
            [("a{}", true), ("{2}", true), ("{//}", true), (r"\{} {x} {#}", false)]
        {
            let template = draft
                .template(TaskTemplate::new(Program::Command(vec![Template::parse(word)])))
                .unwrap();
            let added = draft.task(TaskItem { template, values: Vec::new(), inputs: Vec::new() });
            assert_eq!(added.is_err(), is_refused, "{word}");
        }
    }
}
