//! What a client submits, checked before anything of it exists.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::course::JobOwner;
use eyas_types::matching::Terms;
use eyas_types::place::PlaceProblem;
use eyas_types::task::{
    MAX_CAPTURE_BYTES, MAX_INPUTS, MAX_PUSHED, MAX_REPLICAS, MAX_TEMPLATES, is_in_sandbox,
};
use eyas_types::units;
use eyas_types::{
    Distribution, Input, Name, Need, Numbers, ObjectId, ObjectSpec, Program, TaskItem,
    TaskTemplate, Value,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dependencies::{Dependencies, circle};
use crate::items::Items;

/// Most tasks in one job, and most objects that they read.
const MAX_TASKS: usize = if cfg!(test) { 100_000 } else { eyas_types::task::MAX_TASKS };

/// Most different requirements and ranks in one job: each is compiled, and matched with each
/// executor.
pub const MAX_TERMS: usize = 256;

/// Most outputs that the tasks of one job read of each other, counted for each task that reads. For
/// example 20,000 tasks that each read outputs of 1,000 others.
pub const MAX_EDGES: u64 = if cfg!(test) { 1_000_000 } else { 20_000_000 };

/// Most chunks of files that are known of one job. Where chunks have 64 MiB each, these are files
/// of 61 TiB.
pub const MAX_CHUNKS: usize = 1_000_000;

/// A job as it was submitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// For people.
    pub name: String,
    /// The owner: who submitted it.
    pub owner: JobOwner,
    /// What tasks are made from.
    pub templates: Vec<TaskTemplate>,
    /// Objects that inputs name by their indices.
    pub objects: Vec<ObjectSpec>,
    /// Its tasks.
    pub items: Items,
    /// Milliseconds since 1970 when it was accepted.
    pub submitted_unix_ms: u64,
    /// Whether results of earlier jobs are reused.
    pub reuse: bool,
    /// Objects that are pushed to executors, by their indices.
    pub broadcast: Vec<u32>,
    /// Which way they go.
    pub distribution: Distribution,
    /// Whether the job stops when its first tasks fail in the same way. The journal keeps it in a
    /// table of its own.
    #[serde(skip)]
    pub halts: bool,
    /// Whether the job belongs to the connection of a client, which adds tasks while the job runs.
    /// It is never written to the journal: it ends with the connection.
    #[serde(skip)]
    pub is_attached: bool,
    /// Chunks of objects that are files of several chunks, with their sizes. The journal keeps
    /// them in a table of their own.
    #[serde(skip)]
    pub chunks: BTreeMap<ObjectId, Vec<(ObjectId, u64)>>,
    /// The terms of each template, once the job was checked.
    #[serde(skip)]
    pub terms: Vec<Option<Arc<Terms>>>,
    /// What its tasks wait for, once the job was checked.
    #[serde(skip)]
    pub dependencies: Option<Dependencies>,
    /// The ids of its objects, once the job was checked: to compute a million of them takes long.
    #[serde(skip)]
    pub object_ids: Vec<ObjectId>,
    /// Likewise, of each template with many inputs, their ids and sizes in order.
    #[serde(skip)]
    pub shared_inputs: BTreeMap<u16, Arc<[(ObjectId, u64)]>>,
    /// Whether tasks read derived copies, once the job was checked.
    #[serde(skip)]
    pub reads_copies: bool,
    /// Where the log has the job already, if it was written before it was submitted.
    #[serde(skip)]
    pub stored: Option<StoredNumber>,
}

/// The log's number of a job that was written before it was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredNumber(pub u64);

/// Number of inputs of a template from which on their ids are kept in order.
const SHARED_INPUTS: usize = 10_000;

/// Inputs in the order of their ids, each once.
pub(crate) fn in_order(mut inputs: Vec<(ObjectId, u64)>) -> Vec<(ObjectId, u64)> {
    if inputs.len() > 1 {
        // As numbers, ids are compared faster than as bytes, and in the same order.
        inputs.sort_unstable_by_key(|(id, _)| u128::from_be_bytes(id.0));
        inputs.dedup();
    }
    inputs
}

/// Compiles a template's requirements and rank.
pub type Compile<'a> =
    &'a dyn Fn(Option<&str>, Option<&str>) -> Result<Option<Arc<Terms>>, InvalidExpression>;

/// What is wrong with requirements or rank, as the compiler of expressions says it.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidExpression(pub String);

/// What is wrong with a task of a submission; the message tells it.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum TaskError {
    #[error("there is no template {0}")]
    NoTemplate(u16),
    #[error(
        "it has {0} inputs, and a task may have {MAX_INPUTS}: let several tasks read a part each, \
         and one task read their outputs"
    )]
    TooManyInputs(usize),
    #[error("its value `{0}` names an input that it does not have")]
    NoSuchInput(Name),
    #[error("there is no object {0}")]
    NoSuchObject(u32),
    #[error("there is no task {0} whose output it could read")]
    NoSuchTask(u32),
    #[error(
        "it reads output {output} of task {task}, which is a pattern and may be many files: name \
         one file"
    )]
    ReadsPattern { task: u32, output: u16 },
    #[error(
        "it reads output {output} of task {task}, which is delivered only when that task fails: \
         let it be delivered always, or read another output"
    )]
    ReadsFailure { task: u32, output: u16 },
    #[error("task {task} has no output {output}")]
    NoSuchOutput { task: u32, output: u16 },
}

/// What is wrong with a submission; the message tells it.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum SpecError {
    #[error("the job has more than {MAX_TASKS} tasks: submit it in parts")]
    TooManyTasks,
    #[error("the job names more than {MAX_TASKS} objects: submit it in parts")]
    TooManyObjects,
    #[error("the job has no template or more than {MAX_TEMPLATES}")]
    Templates,
    #[error(
        "no more than {} of a task's output can be kept: let it write a file and name that as \
         output",
        units::format_bytes(MAX_CAPTURE_BYTES)
    )]
    Capture,
    #[error("output `{0}` goes nowhere: name its destination, or keep it in the cluster")]
    Nowhere(String),
    #[error(
        "output `{0}` is delivered when its task fails, and such an output cannot be kept in the \
         cluster: name its destination, and do not keep it"
    )]
    KeptAfterFailure(String),
    #[error("output `{0}` is to have more than {MAX_REPLICAS} replicas")]
    Replicas(String),
    #[error(
        "tasks {} and {} would both write `{place}`: put `{{#}}` or a part of the item into its \
         name",
        tasks[0],
        tasks[1]
    )]
    Claimed { place: Name, tasks: [u32; 2] },
    #[error("task {task} would write `{place}`, which {problem}")]
    NoFile { place: Name, task: u32, problem: PlaceProblem },
    #[error(
        "task {task} would keep two files named `{name}` in the cluster, where folders do not \
         count: give one of them another name"
    )]
    KeptTwice { name: Name, task: u32 },
    #[error(
        "the job has more than {MAX_TERMS} different requirements and ranks: submit it in parts"
    )]
    TooManyTerms,
    #[error(
        "the job has executors fetch more than {MAX_PUSHED} objects ahead of its tasks: broadcast \
         fewer"
    )]
    TooManyPushed,
    #[error(
        "an input would be at `{0}`, which is not in the folder of its task: name it by a relative \
         path without `..`"
    )]
    InputName(Name),
    #[error("there is no object {0} to broadcast")]
    NoSuchBroadcast(u32),
    #[error(transparent)]
    Expression(InvalidExpression),
    #[error("a command has no words")]
    EmptyCommand,
    #[error("task {task}: {source}")]
    Task { task: u32, source: TaskError },
    #[error(
        "the job's tasks read outputs of other tasks {0} times or more, and {MAX_EDGES} times are \
         allowed: let one task gather the outputs in one file, and let the others read that file"
    )]
    TooManyEdges(u64),
    #[error("tasks {0:?} need each other's outputs in a circle")]
    Circle(Vec<u32>),
}

/// Further templates, objects and tasks of an attached job. Tasks may read outputs of earlier
/// tasks.
#[derive(Debug, Default)]
pub struct Extension {
    /// New templates. Their numbers continue those of the job.
    pub templates: Vec<TaskTemplate>,
    /// New objects. Their numbers continue those of the job.
    pub objects: Vec<ObjectSpec>,
    /// New tasks. Their numbers continue those of the job.
    pub items: Vec<TaskItem>,
    terms: Vec<Option<Arc<Terms>>>,
}

impl Extension {
    /// Checks the templates, and compiles their expressions.
    ///
    /// # Errors
    /// If a template or an expression is invalid.
    pub fn compile(&mut self, compile: Compile<'_>) -> Result<(), SpecError> {
        check_templates(&self.templates)?;
        check_input_names(self.templates.iter().flat_map(|template| &template.inputs))?;
        self.terms = compile_terms(&self.templates, compile)?;
        Ok(())
    }
}

impl JobSpec {
    /// Checks that a job may have this number of tasks.
    ///
    /// # Errors
    /// If there are too many.
    pub fn expect(&self, tasks: u64) -> Result<(), SpecError> {
        if tasks > MAX_TASKS as u64 { Err(SpecError::TooManyTasks) } else { Ok(()) }
    }

    /// Adds tasks of an array. If there are too many, none is made.
    ///
    /// # Errors
    /// If there are too many.
    pub fn push_numbers(&mut self, template: u16, numbers: &Numbers) -> Result<(), SpecError> {
        let room = MAX_TASKS - self.items.len();
        if numbers.count_up_to(room) > room {
            return Err(SpecError::TooManyTasks);
        }
        for number in numbers.iter() {
            let value = Value { text: number.to_string().into(), input: None };
            self.items.push(&TaskItem { template, values: vec![value], inputs: Vec::new() });
        }
        Ok(())
    }

    /// Adds tasks, in the order of their indices.
    ///
    /// # Errors
    /// If there are too many.
    pub fn push(&mut self, items: &[TaskItem]) -> Result<(), SpecError> {
        if self.items.len() + items.len() > MAX_TASKS {
            return Err(SpecError::TooManyTasks);
        }
        items.iter().for_each(|item| self.items.push(item));
        self.dependencies = None;
        Ok(())
    }

    /// Adds objects, in the order in which inputs name them.
    ///
    /// # Errors
    /// If there are too many.
    pub fn push_objects(&mut self, objects: Vec<ObjectSpec>) -> Result<(), SpecError> {
        if self.objects.len() + objects.len() > MAX_TASKS {
            return Err(SpecError::TooManyObjects);
        }
        self.objects.extend(objects);
        self.object_ids.clear();
        Ok(())
    }

    /// Takes other versions of objects, by their indices.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn replace_objects(&mut self, current: Vec<(u32, ObjectSpec)>) {
        current.into_iter().for_each(|(index, object)| self.objects[index as usize] = object);
    }

    /// Adds chunks of objects, by the objects' indices. Those beyond `MAX_CHUNKS` are left out, as
    /// they only help to place tasks.
    pub fn push_chunks(&mut self, chunks: Vec<(u32, Vec<(ObjectId, u64)>)>) {
        let mut count: usize = self.chunks.values().map(Vec::len).sum();
        for (object, chunks) in chunks {
            count += chunks.len();
            if count <= MAX_CHUNKS
                && let Some(object) = self.objects.get(object as usize)
            {
                self.chunks.insert(object.id(), chunks);
            }
        }
    }

    /// Whether what came from disk can be used.
    pub fn is_sound(&mut self, compile: Compile<'_>) -> bool {
        self.items.is_sound() && self.check(compile, u64::MAX).is_ok()
    }

    /// Checks that all templates and objects that tasks name exist, that no task waits for itself,
    /// that no two tasks write the same file, and that all expressions compile.
    ///
    /// # Errors
    /// What is wrong.
    pub fn validate(&mut self, compile: Compile<'_>) -> Result<(), SpecError> {
        let edges = self.edges_of_templates();
        if edges > MAX_EDGES {
            return Err(SpecError::TooManyEdges(edges));
        }
        check_input_names(self.templates.iter().flat_map(|template| &template.inputs))?;
        self.check(compile, MAX_EDGES)?;
        self.check_claims()
    }

    /// How many outputs of other tasks its tasks read as inputs of their templates. Nothing is
    /// expanded for it.
    fn edges_of_templates(&self) -> u64 {
        let is_edge = |input: &&Input| input.from.output().is_some();
        let count = |template: &TaskTemplate| template.inputs.iter().filter(is_edge).count() as u64;
        let edges: Vec<u64> = self.templates.iter().map(count).collect();
        let of_task =
            |task| edges.get(usize::from(self.items.template(task))).copied().unwrap_or(0);
        (0..self.items.len() as u32).map(of_task).sum()
    }

    /// Roughly how much there is to check and to write: the number of its tasks, objects and inputs
    /// of templates.
    pub fn weight(&self) -> usize {
        let inputs: usize = self.templates.iter().map(|template| template.inputs.len()).sum();
        self.items.len() + self.items.content_bytes() / 64 + self.objects.len() + inputs
    }

    /// The template of an item.
    pub fn template_of(&self, item: &TaskItem) -> &TaskTemplate {
        &self.templates[usize::from(item.template)]
    }

    /// All inputs of an item, its template's first.
    pub fn inputs_of<'a>(
        &'a self,
        item: &'a TaskItem,
    ) -> core::iter::Chain<core::slice::Iter<'a, Input>, core::slice::Iter<'a, Input>> {
        self.template_of(item).inputs.iter().chain(&item.inputs)
    }

    /// What tasks of a template need of an executor.
    pub fn need(&self, template: u16) -> Need {
        let terms = self.terms.get(usize::from(template)).cloned().flatten();
        let template = &self.templates[usize::from(template)];
        let (priority, timeout_us) = (template.priority, template.timeout_us);
        Need { priority, resources: template.resources.clone(), timeout_us, terms }
    }

    /// What tasks of each template need.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        (0..self.templates.len() as u16).map(|template| self.need(template))
    }

    /// Objects that are to be with all executors that may run its tasks.
    pub fn pushed(&self) -> Vec<&ObjectSpec> {
        match (self.broadcast.is_empty(), self.distribution) {
            (true, Distribution::SpanningTree) => self.objects.iter().collect(),
            _ => self.broadcast.iter().map(|index| &self.objects[*index as usize]).collect(),
        }
    }

    fn check(&mut self, compile: Compile<'_>, max_edges: u64) -> Result<(), SpecError> {
        if self.templates.is_empty() || self.templates.len() > MAX_TEMPLATES {
            return Err(SpecError::Templates);
        }
        check_templates(&self.templates)?;
        if let Some(index) =
            self.broadcast.iter().find(|index| **index as usize >= self.objects.len())
        {
            return Err(SpecError::NoSuchBroadcast(*index));
        }
        if self.pushed().len() > MAX_PUSHED {
            return Err(SpecError::TooManyPushed);
        }
        self.terms = compile_terms(&self.templates, compile)?;
        let (mut needs, mut of_templates, mut edges) = (BTreeMap::new(), BTreeMap::new(), 0);
        let mut inputs = self.templates.iter().flat_map(|template| &template.inputs);
        self.reads_copies = inputs.any(Input::is_derived);
        // A journal may have jobs of versions that did not look at names.
        let is_new = max_edges == MAX_EDGES;
        for task in 0..self.items.len() as u32 {
            let item = self.items.get(task);
            check_input_names(item.inputs.iter().filter(|_| is_new))?;
            self.reads_copies |= item.inputs.iter().any(Input::is_derived);
            let producers = self
                .check_item(&item, &mut of_templates)
                .map_err(|source| SpecError::Task { task, source })?;
            edges += producers.len() as u64;
            if edges > max_edges {
                return Err(SpecError::TooManyEdges(edges));
            }
            if !producers.is_empty() {
                needs.insert(task, producers);
            }
        }
        let dependencies = Dependencies::of(&needs);
        let circle = circle(needs, &dependencies);
        if !circle.is_empty() {
            return Err(SpecError::Circle(circle));
        }
        self.dependencies = Some(dependencies);
        self.object_ids = self.objects.iter().map(ObjectSpec::id).collect();
        let shared =
            |template: u16| Some((template, self.shared_inputs_of(template, &self.object_ids)?));
        self.shared_inputs = (0..self.templates.len() as u16).filter_map(shared).collect();
        Ok(())
    }

    /// The ids and sizes of a template's inputs, in order and each once, if they are many and all
    /// are objects of the job: to sort a million of them for each task takes long.
    pub(crate) fn shared_inputs_of(
        &self,
        template: u16,
        object_ids: &[ObjectId],
    ) -> Option<Arc<[(ObjectId, u64)]>> {
        let inputs = &self.templates[usize::from(template)].inputs;
        if inputs.len() < SHARED_INPUTS {
            return None;
        }
        let input = |input: &Input| {
            let object = input.from.object()? as usize;
            Some((object_ids[object], self.objects[object].size_bytes()))
        };
        Some(in_order(inputs.iter().map(input).collect::<Option<_>>()?).into())
    }

    /// Adds templates, objects and tasks. If anything is wrong with them, none is added.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn extend(&mut self, extension: Extension) -> Result<(), SpecError> {
        let Extension { templates, objects, items, terms } = extension;
        let (had_templates, had_objects, first) =
            (self.templates.len(), self.objects.len(), self.items.len());
        if had_templates + templates.len() > MAX_TEMPLATES {
            return Err(SpecError::Templates);
        }
        if first + items.len() > MAX_TASKS {
            return Err(SpecError::TooManyTasks);
        }
        self.push_objects(objects)?;
        self.templates.extend(templates);
        self.terms.extend(terms);
        let mut of_templates = BTreeMap::new();
        let inputs = self.templates[had_templates..].iter().flat_map(|template| &template.inputs);
        let mut inputs = inputs.chain(items.iter().flat_map(|item| &item.inputs));
        self.reads_copies |= inputs.any(Input::is_derived);
        let checked = (first as u32..).zip(&items).try_for_each(|(task, item)| {
            check_input_names(&item.inputs)?;
            // Later tasks do not exist yet, so none waits for them.
            self.check_item(item, &mut of_templates)
                .map_err(|source| SpecError::Task { task, source })?;
            self.items.push(item);
            Ok(())
        });
        if checked.is_err() {
            self.templates.truncate(had_templates);
            self.terms.truncate(had_templates);
            self.objects.truncate(had_objects);
            self.items.truncate(first);
        }
        checked
    }
}

/// Checks that inputs with names are in the folders of their tasks.
fn check_input_names<'a>(inputs: impl IntoIterator<Item = &'a Input>) -> Result<(), SpecError> {
    let mut names = inputs.into_iter().filter_map(|input| input.name.as_ref());
    match names.find(|name| !is_in_sandbox(name)) {
        Some(name) => Err(SpecError::InputName(name.clone())),
        None => Ok(()),
    }
}

/// Checks what can be told of templates alone.
fn check_templates(templates: &[TaskTemplate]) -> Result<(), SpecError> {
    let is_empty = |template: &TaskTemplate| match &template.program {
        Program::Command(words) | Program::Call(words) => words.is_empty(),
        Program::Noop => false,
    };
    if templates.iter().any(is_empty) {
        return Err(SpecError::EmptyCommand);
    }
    if templates
        .iter()
        .any(|template| template.capture_bytes > MAX_CAPTURE_BYTES && !template.keeps_streams())
    {
        return Err(SpecError::Capture);
    }
    for output in templates.iter().flat_map(|template| &template.outputs) {
        if output.destination.is_none() && output.replicas == 0 {
            return Err(SpecError::Nowhere(output.pattern.to_string()));
        }
        if output.replicas > 0 && output.when.is_after_failure() {
            return Err(SpecError::KeptAfterFailure(output.pattern.to_string()));
        }
        if output.replicas > MAX_REPLICAS {
            return Err(SpecError::Replicas(output.pattern.to_string()));
        }
    }
    Ok(())
}

/// Compiles the templates' expressions, each once.
fn compile_terms(
    templates: &[TaskTemplate],
    compile: Compile<'_>,
) -> Result<Vec<Option<Arc<Terms>>>, SpecError> {
    let mut known = BTreeMap::new();
    let mut terms = Vec::with_capacity(templates.len());
    for template in templates {
        let texts = (template.requirements.as_deref(), template.rank.as_deref());
        if !known.contains_key(&texts) {
            if known.len() == MAX_TERMS {
                return Err(SpecError::TooManyTerms);
            }
            known.insert(texts, compile(texts.0, texts.1).map_err(SpecError::Expression)?);
        }
        terms.push(known[&texts].clone());
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::dfs::FileNameProblem;
    use eyas_types::s3::S3UrlProblem;
    use eyas_types::{
        DeliverWhen, FileMode, InputFrom, NumberRange, OutputSpec, Template, Version,
    };

    fn plain(_: Option<&str>, _: Option<&str>) -> Result<Option<Arc<Terms>>, InvalidExpression> {
        Ok(None)
    }

    fn chain(links: &[&[u32]]) -> JobSpec {
        let mut template = TaskTemplate::new(Program::Noop);
        let (pattern, destination) = (Template::literal("out"), Template::parse("/tmp/out-{#}"));
        template.outputs.push(OutputSpec {
            pattern,
            destination: Some(destination),
            replicas: 0,
            until_read: false,
            optional: false,
            when: DeliverWhen::Success,
        });
        let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
        for needs in links {
            let input = |task: &u32| Input {
                from: InputFrom::Output { task: *task, output: 0 },
                name: None,
            };
            let item = TaskItem {
                template: 0,
                values: Vec::new(),
                inputs: needs.iter().map(input).collect(),
            };
            spec.push(&[item]).unwrap();
        }
        spec
    }

    #[test]
    fn workflows_without_circles_are_accepted() {
        assert_eq!(chain(&[&[], &[0], &[0, 1, 1], &[2]]).validate(&plain), Ok(()));
        assert_eq!(chain(&[&[1], &[]]).validate(&plain), Ok(()), "a task may need a later one");
    }

    #[test]
    fn an_input_that_would_leave_the_folder_of_its_task_is_refused() {
        for (name, is_refused) in [
            ("in/a.fits", false),
            ("./a", false),
            ("../a", true),
            ("in/../../a", true),
            ("/abs", true),
            ("", true),
            (".", true),
            ("a\0b", true),
        ] {
            for of_template in [true, false] {
                let from = InputFrom::Output { task: 0, output: 0 };
                let input = Input { from, name: Some(name.into()) };
                let mut spec = chain(&[&[]]);
                let mut reader = TaskTemplate::new(Program::Noop);
                let mut item = TaskItem { template: 1, values: Vec::new(), inputs: Vec::new() };
                let inputs = if of_template { &mut reader.inputs } else { &mut item.inputs };
                inputs.push(input);
                spec.templates.push(reader);
                spec.push(&[item]).unwrap();
                assert!(spec.is_sound(&plain), "a journal may have it");
                let expected =
                    if is_refused { Err(SpecError::InputName(name.into())) } else { Ok(()) };
                assert_eq!(spec.validate(&plain), expected, "{name:?}");
            }
        }
    }

    #[test]
    fn a_task_has_a_bounded_number_of_inputs() {
        let with = |of_template: usize, of_item: usize| {
            let input = Input { from: InputFrom::Object(0), name: None };
            let mut template = TaskTemplate::new(Program::Noop);
            template.inputs = vec![input.clone(); of_template];
            let version = Version::Modified { mtime_ns: 0, size_bytes: 0 };
            let object =
                ObjectSpec { source: "file:///x".into(), version, mode: FileMode::READABLE };
            let mut spec =
                JobSpec { templates: vec![template], objects: vec![object], ..JobSpec::default() };
            let value = Value { text: "x".into(), input: Some(of_item as u32 - 1) };
            spec.push(&[TaskItem {
                template: 0,
                values: vec![value],
                inputs: vec![input; of_item],
            }])
            .unwrap();
            assert_eq!(spec.items.template(0), 0);
            spec.validate(&plain)
        };
        assert_eq!(with(MAX_INPUTS - 1, 1), Ok(()));
        assert_eq!(with(1, MAX_INPUTS - 1), Ok(()));
        let refused = with(1, MAX_INPUTS).unwrap_err();
        assert_eq!(
            refused,
            SpecError::Task { task: 0, source: TaskError::TooManyInputs(MAX_INPUTS + 1) }
        );
        assert!(refused.to_string().contains("1000001 inputs"), "{refused}");
    }

    #[test]
    fn a_task_may_read_the_outputs_of_very_many_others() {
        const COUNT: u32 = 20_000;
        let all: Vec<u32> = (0..COUNT).collect();
        let mut links: Vec<&[u32]> = vec![&[]; COUNT as usize];
        links.push(&all);
        assert_eq!(chain(&links).validate(&plain), Ok(()));
        let last = [COUNT];
        links[0] = &last;
        assert_eq!(chain(&links).validate(&plain), Err(SpecError::Circle(vec![0, COUNT])));
    }

    #[test]
    fn reads_of_a_template_are_counted_before_they_are_expanded() {
        let with = |readers: usize, reads: u32| {
            let mut spec = chain(&vec![&[][..]; 2000]);
            let mut reader = spec.templates[0].clone();
            reader.inputs = (0..reads)
                .map(|task| Input { from: InputFrom::Output { task, output: 0 }, name: None })
                .collect();
            spec.templates.push(reader);
            spec.push(&vec![
                TaskItem { template: 1, values: Vec::new(), inputs: Vec::new() };
                readers
            ])
            .unwrap();
            spec.validate(&plain)
        };
        assert_eq!(with(1000, 1000), Ok(()));
        assert_eq!(with(2000, 2000), Err(SpecError::TooManyEdges(4_000_000)));
        let refused = with(1001, 1000).unwrap_err().to_string();
        assert!(refused.contains("1001000 times") && refused.contains("gather"), "{refused}");
    }

    #[test]
    fn each_output_is_one_tasks_own() {
        let with = |destination: &str, items: &[&str]| {
            let mut spec = JobSpec::default();
            let (pattern, destination) =
                (Template::literal("deep/out"), Some(Template::parse(destination)));
            let mut template = TaskTemplate::new(Program::Noop);
            template.base = "/base".into();
            template.outputs.push(OutputSpec {
                pattern,
                destination,
                replicas: 0,
                until_read: false,
                optional: false,
                when: DeliverWhen::Success,
            });
            spec.templates.push(template);
            let value = |text: &&str| eyas_types::Value { text: (*text).into(), input: None };
            let item =
                |text| TaskItem { template: 0, values: vec![value(text)], inputs: Vec::new() };
            spec.push(&items.iter().map(item).collect::<Vec<_>>()).unwrap();
            spec.validate(&plain)
        };
        for (destination, place) in [
            ("x", "/base/x"),
            ("./", "/base/out"),
            ("{//}/y", "/base/a/y"),
            ("s3://b/k", "s3://b/k"),
        ] {
            let claimed = SpecError::Claimed { place: place.into(), tasks: [0, 1] };
            assert_eq!(with(destination, &["a/1", "a/2"]), Err(claimed));
            assert_eq!(with(destination, &["a/1"]), Ok(()));
        }
        for (destination, problem) in [
            ("eyas:///../x", PlaceProblem::File(FileNameProblem::Relative)),
            ("eyas:////x//{/}", PlaceProblem::File(FileNameProblem::EmptyComponent)),
            ("s3://b/a/./{/}", PlaceProblem::S3(S3UrlProblem::Key)),
            ("s3://b/../", PlaceProblem::S3(S3UrlProblem::Key)),
            ("http://h/{/}", PlaceProblem::Scheme),
        ] {
            assert!(matches!(
                with(destination, &["a/1"]),
                Err(SpecError::NoFile { problem: p, .. }) if p == problem
            ));
        }
        for destination in ["{/}", "x-{#}", "{}/", "slot-{%}", "eyas:///x/{/}", "eyas:///{#}/"] {
            assert_eq!(with(destination, &["a/1", "a/2"]), Ok(()));
        }
    }

    #[test]
    fn kept_outputs_of_a_task_have_different_names() {
        let with = |outputs: &[(&str, Option<&str>)]| {
            let mut template = TaskTemplate::new(Program::Noop);
            for (pattern, destination) in outputs {
                let (pattern, destination) =
                    (Template::parse(pattern), destination.map(Template::parse));
                template.outputs.push(OutputSpec {
                    pattern,
                    destination,
                    replicas: 1,
                    until_read: false,
                    optional: false,
                    when: DeliverWhen::Success,
                });
            }
            let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
            spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }]).unwrap();
            spec.validate(&plain)
        };
        let twice = SpecError::KeptTwice { name: "out".into(), task: 0 };
        assert_eq!(with(&[("a/out", None), ("b/out", None)]), Err(twice));
        assert_eq!(with(&[("a/out", None), ("b/out-{#}", None)]), Ok(()));
        assert_eq!(
            with(&[("a/out", None), ("b/out", Some("/there/"))]),
            Ok(()),
            "that goes by its place"
        );
        assert_eq!(
            with(&[("*/out", None), ("a/out", None)]),
            Ok(()),
            "what a pattern finds goes by its folders, too"
        );
    }

    #[test]
    fn a_submission_is_bounded_while_it_comes() {
        let mut spec = JobSpec::default();
        let version = eyas_types::Version::Modified { mtime_ns: 0, size_bytes: 1 };
        let object = ObjectSpec { source: "file:///a".into(), version, mode: FileMode::READABLE };
        assert_eq!(spec.push_objects(vec![object.clone(); MAX_TASKS]), Ok(()));
        assert_eq!(spec.push_objects(vec![object]), Err(SpecError::TooManyObjects));
        let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
        assert_eq!(spec.push(&vec![item.clone(); MAX_TASKS]), Ok(()));
        assert_eq!(spec.push(&[item]), Err(SpecError::TooManyTasks));
        assert_eq!(
            (spec.expect(MAX_TASKS as u64), spec.expect(u64::MAX)),
            (Ok(()), Err(SpecError::TooManyTasks))
        );
    }

    #[test]
    fn an_array_is_as_large_as_a_job_may_be_or_not_made_at_all() {
        let numbers = |last: u64| Numbers(vec![NumberRange { first: 1, last, step: 1 }]);
        let mut spec = JobSpec::default();
        spec.push_numbers(3, &numbers(12)).unwrap();
        let item = |text: &str| TaskItem {
            template: 3,
            values: vec![Value { text: text.into(), input: None }],
            inputs: Vec::new(),
        };
        assert_eq!(
            (spec.items.len(), spec.items.get(0), spec.items.get(11)),
            (12, item("1"), item("12"))
        );
        for last in [MAX_TASKS as u64 - 11, u64::MAX] {
            assert_eq!(spec.push_numbers(3, &numbers(last)), Err(SpecError::TooManyTasks));
        }
        assert_eq!(spec.items.len(), 12, "nothing of what is too much was made");
        assert_eq!(spec.push_numbers(3, &numbers(MAX_TASKS as u64 - 12)), Ok(()));
    }

    #[test]
    fn circles_and_dangling_references_are_named() {
        assert_eq!(chain(&[&[0]]).validate(&plain), Err(SpecError::Circle(vec![0])));
        assert_eq!(
            chain(&[&[], &[3], &[1], &[2]]).validate(&plain),
            Err(SpecError::Circle(vec![1, 2, 3]))
        );
        assert!(chain(&[&[7]]).validate(&plain).unwrap_err().to_string().contains("no task 7"));
        let mut spec = chain(&[&[], &[0]]);
        spec.templates[0].outputs[0].pattern = Template::parse("{}[0-9].txt");
        assert!(spec.validate(&plain).unwrap_err().to_string().contains("name one file"));
        let mut spec = chain(&[&[], &[0]]);
        spec.templates[0].outputs[0].when = DeliverWhen::Always;
        assert_eq!(spec.validate(&plain), Ok(()));
        spec.templates[0].outputs[0].when = DeliverWhen::Failure;
        let refused = spec.validate(&plain).unwrap_err().to_string();
        assert!(refused.contains("output 0 of task 0, which is delivered only when"), "{refused}");
        for when in [DeliverWhen::Always, DeliverWhen::Failure] {
            let mut spec = chain(&[&[]]);
            (spec.templates[0].outputs[0].when, spec.templates[0].outputs[0].replicas) = (when, 1);
            assert_eq!(
                spec.validate(&plain),
                Err(SpecError::KeptAfterFailure("out".into())),
                "{when:?}"
            );
        }
        let mut spec = chain(&[&[]]);
        spec.push(&[TaskItem { template: 4, values: Vec::new(), inputs: Vec::new() }]).unwrap();
        assert!(spec.validate(&plain).unwrap_err().to_string().starts_with("task 1"));
    }
}
