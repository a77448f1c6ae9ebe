//! A job that is attached to a connection, for one executor of the Python package.

use std::ffi::OsString;
use std::mem::take;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_client::messages::{FromClient, PushRequest, ToClient};
use eyas_client::pool::PoolsRequest;
use eyas_client::types::access::FilesScope;
use eyas_client::types::dfs::FileNameError;
use eyas_client::types::place::PlaceProblem;
use eyas_client::types::task::MAX_TASKS;
use eyas_client::types::{
    DeliverWhen, Distribution, GPU, Input, InputFrom, JobId, Name, OutputSpec, Program, Resources,
    TaskId, TaskItem, TaskTemplate, Template, TemplatePart, Value, WorkingFolder, shown,
};
use eyas_client::{
    AttachedInputs, Client, Cluster, ClusterError as ClusterNotFound, Draft, check_requirements,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyByteArray;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use crate::cluster_error::{error, short};
use crate::downloads::Downloads;
use crate::objects::object;
use crate::results::EndedCall;
use crate::traffic::JobTraffic;
use crate::waiting::{END_DEADLINE, connect, runtime_of_threads, wait, wait_once};

/// Threads that send.
const THREADS: usize = 1;

/// Size of a result that is read from a store on this machine into memory. A larger one is
/// downloaded, and its file is mapped.
const MAX_NEAR_BYTES: usize = 256 << 20;

/// A job that is attached to a connection. Calls are added to it, and their results come in any
/// order.
#[pyclass(frozen)]
pub struct CallSession {
    traffic: Arc<JobTraffic>,
    /// Sends, and is shared with threads that look up inputs.
    runtime: Mutex<Option<Arc<Runtime>>>,
    /// Has the connection; the thread that waits for results runs it.
    receiving: Mutex<Option<Arc<Runtime>>>,
    sending: Handle,
    inputs: AsyncMutex<AttachedInputs>,
    downloads: Downloads,
    /// Id of the job.
    #[pyo3(get)]
    job: u32,
}

/// The input with this number, or the output with a number of the task with one.
fn input_of((number, output): (u32, Option<u16>)) -> Input {
    let from = match output {
        None => InputFrom::Object(number),
        Some(output) => InputFrom::Output { task: number, output },
    };
    Input { from, name: None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cluster with this access file or name, or the one that `eyas` commands use by default.
pub(crate) fn cluster_of(
    access: Option<PathBuf>,
    name: Option<String>,
) -> Result<Cluster, ClusterNotFound> {
    match (access, name) {
        (Some(access), _) => Ok(Cluster::with_access(&access)),
        (None, Some(name)) => Cluster::named(&name),
        (None, None) => Cluster::implied(),
    }
}

/// Asks a cluster for something. The answer has the fields of the JSON of the command that shows
/// the same.
#[pyfunction]
#[pyo3(signature = (what, *, job=None, task=None, cluster=None, access=None))]
pub fn ask<'py>(
    py: Python<'py>,
    what: &str,
    job: Option<u32>,
    task: Option<u32>,
    cluster: Option<String>,
    access: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let job = job.map(JobId);
    let request = match (what, job, task) {
        ("executors", ..) => FromClient::Executors,
        ("job", Some(job), _) => FromClient::Jobs { job: Some(job) },
        ("pools", ..) => FromClient::Pools(PoolsRequest::Show { name: None }),
        ("report", Some(job), _) => FromClient::Report { job },
        ("explain", Some(job), Some(index)) => FromClient::Explain { task: TaskId { job, index } },
        _ => return Err(error(format!("there is nothing to ask about {what}"))),
    };
    let access = cluster_of(access, cluster).and_then(|cluster| cluster.access()).map_err(error)?;
    let asking =
        async { Client::connect(&access).await.map_err(error)?.ask(request).await.map_err(error) };
    let answer = match wait_once(py, asking)? {
        ToClient::Executors(views) => serde_json::to_value(&views),
        ToClient::Jobs(views) => serde_json::to_value(&views),
        ToClient::Pools(views) => serde_json::to_value(&views),
        ToClient::Report(report) => serde_json::to_value(&report),
        ToClient::Explained(explanation) => serde_json::to_value(&explanation),
        _ => return Err(error("the dispatcher has given another answer")),
    };
    object(py, &answer.map_err(error)?)
}

/// The path of the access file of a cluster.
#[pyfunction]
#[pyo3(signature = (*, cluster=None, access=None))]
pub fn access_path(cluster: Option<String>, access: Option<PathBuf>) -> PyResult<PathBuf> {
    Ok(cluster_of(access, cluster).map_err(error)?.access_path().to_owned())
}

/// Refuses a destination to which no task can write, before the task runs.
#[pyfunction]
pub fn check_destination(destination: &[u8]) -> PyResult<()> {
    match PlaceProblem::of(destination) {
        Some(problem) => {
            Err(PyValueError::new_err(short(format!("`{}` {problem}", shown(destination)))))
        }
        None => Ok(()),
    }
}

/// Copies files to executors, and waits for that. The answer has the fields of the JSON of `eyas
/// push`.
#[pyfunction]
#[pyo3(signature = (files, to, *, cluster=None, access=None))]
pub fn push<'py>(
    py: Python<'py>,
    files: Vec<PyBackedBytes>,
    to: Vec<String>,
    cluster: Option<String>,
    access: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let files: Vec<_> = files.iter().map(|file| Name::from(&file[..])).collect();
    let cluster = cluster_of(access, cluster).map_err(error)?;
    let access = cluster.access().map_err(error)?;
    let pushing = async {
        let mut draft = Draft::new("push").on_cluster(&cluster);
        draft.look_up(&files).await.map_err(|why| PyOSError::new_err(short(why)))?;
        let (objects, kept) = (draft.into_objects(), Vec::new());
        let request =
            PushRequest { objects, kept, to, distribution: Distribution::default(), wait: true };
        Client::connect(&access).await.map_err(error)?.push(request, |_| ()).await.map_err(error)
    };
    object(py, &serde_json::to_value(wait_once(py, pushing)?).map_err(error)?)
}

#[pymethods]
impl CallSession {
    /// Connects to the cluster with this access file or name, or to the one that `eyas` commands
    /// use by default, and attaches a job with this name. Results are downloaded into a folder
    /// inside of `results`, by default the folder for temporary files.
    #[new]
    #[pyo3(signature = (name, *, cluster=None, access=None, results=None))]
    fn new(
        py: Python<'_>,
        name: String,
        cluster: Option<String>,
        access: Option<PathBuf>,
        results: Option<PathBuf>,
    ) -> PyResult<Self> {
        let cluster = cluster_of(access, cluster).map_err(error)?;
        let access = cluster.access().map_err(error)?;
        let attaching = async {
            Client::connect(&access).await.map_err(error)?.attach(name).await.map_err(error)
        };
        let receiving = Builder::new_current_thread().enable_all().build()?;
        let (receiving, (job, sender, receiver)) = connect(py, receiving, attaching)?;
        let runtime = runtime_of_threads(THREADS)?;
        let traffic = Arc::new(JobTraffic::new(sender, results.clone()));
        runtime.spawn(traffic.clone().send());
        receiving.spawn(traffic.clone().receive(receiver));
        let inputs = AsyncMutex::new(AttachedInputs::new(&cluster));
        let downloads = Downloads::new(cluster, results);
        Ok(CallSession {
            traffic,
            sending: runtime.handle().clone(),
            runtime: Mutex::new(Some(Arc::new(runtime))),
            receiving: Mutex::new(Some(Arc::new(receiving))),
            inputs,
            downloads,
            job: job.0,
        })
    }

    /// Adds a kind of tasks, and returns its number. `words` start a worker that is called, or,
    /// with `is_command`, are a command with placeholders for columns. Each output is a pattern and
    /// a destination, both with placeholders, and the word that says after which ends of its task
    /// the output is delivered; an output without a destination is kept in the cluster. With
    /// `is_command` false, the first output is optional: the result, if it is large.
    /// `inputs` are numbers of files that are on the node before; their paths there follow the
    /// words. The tasks may read the files `reads` of the cluster, and write into `folders`.
    #[pyo3(signature = (
        words, *, is_command, environment, inputs, outputs, cpus_milli, memory_bytes, gpus,
        timeout_us, retries, priority, requirements, capture_bytes, reads=vec![], folders=vec![]
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn add_template(
        &self,
        words: Vec<String>,
        is_command: bool,
        environment: Vec<(String, String)>,
        inputs: Vec<u32>,
        outputs: Vec<(String, Option<String>, String)>,
        cpus_milli: u32,
        memory_bytes: u64,
        gpus: u64,
        timeout_us: Option<u64>,
        retries: u32,
        priority: i32,
        requirements: Option<String>,
        capture_bytes: u64,
        reads: Vec<String>,
        folders: Vec<String>,
    ) -> PyResult<u16> {
        let paths =
            (0..inputs.len() as u32).map(|input| Template(vec![TemplatePart::Input(input)]));
        let parse = |word: &String| {
            if is_command { Template::parse(word) } else { Template::literal(word.as_str()) }
        };
        if let Some(requirements) = &requirements {
            // The dispatcher would refuse all that is sent with it.
            check_requirements(requirements).map_err(|why| PyValueError::new_err(short(why)))?;
        }
        let words = words.iter().map(parse).chain(paths).collect();
        let program = if is_command { Program::Command(words) } else { Program::Call(words) };
        let mut template = TaskTemplate::new(program);
        template.inputs = inputs.into_iter().map(|object| input_of((object, None))).collect();
        template.env = environment
            .into_iter()
            .map(|(name, value)| (name, Template::literal(value.as_str())))
            .collect();
        // A worker works for many calls.
        template.folder =
            if is_command { WorkingFolder::Sandbox } else { WorkingFolder::Path(Name::from("/")) };
        template.base = Name::from(std::env::current_dir()?.into_os_string().into_vec());
        for (number, (pattern, destination, when)) in outputs.into_iter().enumerate() {
            let when = DeliverWhen::of_word(when.as_bytes());
            template.outputs.push(OutputSpec {
                pattern: Template::parse(pattern.as_str()),
                replicas: destination.is_none().into(),
                destination: destination.map(|destination| Template::parse(destination.as_str())),
                until_read: false,
                optional: !is_command && number == 0,
                when: when.ok_or_else(|| error("an output has an unknown time of delivery"))?,
            });
        }
        template.resources = Resources { cpus_milli, memory_bytes, ..Resources::default() };
        if gpus > 0 {
            template.resources.named.push((GPU.into(), gpus));
        }
        (template.timeout_us, template.retries, template.priority) =
            (timeout_us, retries, priority);
        (template.requirements, template.capture_bytes) = (requirements, capture_bytes);
        let reads = reads.iter().map(|name| name.parse()).collect::<Result<_, _>>();
        template.files = FilesScope { reads: reads.map_err(|e: FileNameError| error(e))?, folders };
        let mut unsent = self.traffic.unsent();
        let number = unsent.template_count;
        unsent.template_count =
            number.checked_add(1).ok_or_else(|| error("there are too many kinds of calls"))?;
        unsent.templates.push(template);
        if is_command {
            unsent.commands.insert(number);
        }
        Ok(number)
    }

    /// Looks up paths and URLs of inputs, and returns their numbers.
    fn look_up(&self, py: Python<'_>, names: Vec<PyBackedBytes>) -> PyResult<Vec<u32>> {
        let names: Vec<_> = names.iter().map(|name| Name::from(&name[..])).collect();
        // Not locked meanwhile: other threads ask whether the session is over.
        let runtime = lock(&self.runtime).clone().ok_or_else(|| error("the session has ended"))?;
        let looking = async {
            let mut known = self.inputs.lock().await;
            let mut numbers = Vec::with_capacity(names.len());
            for name in &names {
                let (number, object) =
                    known.object(name).await.map_err(|why| PyOSError::new_err(short(why)))?;
                // In the order of their numbers: the inputs are still locked.
                self.traffic.unsent().objects.extend(object);
                numbers.push(number);
            }
            Ok(numbers)
        };
        let numbers = wait(py, &runtime, looking).flatten();
        py.detach(|| end_runtime(runtime));
        numbers
    }

    /// Adds a task, and returns its number. A column is its text, and whether it is the path of an
    /// input: of the next one of `inputs`. Further inputs have no column. An input is the number of
    /// one that was looked up, or a task and the number of its output.
    fn submit(
        &self,
        template: u16,
        columns: Vec<(PyBackedBytes, bool)>,
        inputs: Vec<(u32, Option<u16>)>,
    ) -> PyResult<u32> {
        let mut next = 0..;
        let values = columns.iter().map(|(text, is_input)| {
            let input = if *is_input { next.next() } else { None };
            Value { text: Name::from(&text[..]), input }
        });
        let values = values.collect();
        let item =
            TaskItem { template, values, inputs: inputs.into_iter().map(input_of).collect() };
        let mut unsent = self.traffic.unsent();
        if unsent.is_closed {
            return Err(error("the session was closed"));
        }
        let number = unsent.task_count;
        if number as usize == MAX_TASKS {
            return Err(error(format!("an executor takes {MAX_TASKS} calls: begin another one")));
        }
        unsent.task_count += 1;
        if unsent.commands.contains(&template) {
            self.traffic.received().commands.insert(number);
        }
        let is_first = unsent.items.is_empty();
        unsent.items.push(item);
        drop(unsent);
        if is_first && self.traffic.received().result_count >= number {
            // All earlier calls have ended.
            self.traffic.send_now(&self.sending);
        } else if is_first {
            self.traffic.unsent_changed();
        }
        Ok(number)
    }

    /// Cancels a call.
    fn cancel(&self, task: u32) {
        self.traffic.unsent().cancelled.push(task);
        self.traffic.unsent_changed();
    }

    /// Cancels the calls that no executor has.
    fn cancel_waiting(&self) {
        self.traffic.unsent().cancels_waiting = true;
        self.traffic.unsent_changed();
    }

    /// The outputs of a call are needed only by calls that were already added.
    fn unneeded(&self, task: u32) {
        self.traffic.unneeded(task);
    }

    /// Downloads a file that a call keeps in the cluster into a folder.
    fn fetch(&self, py: Python<'_>, task: u32, file: &[u8], folder: PathBuf) -> PyResult<()> {
        self.downloads.fetch(py, JobId(self.job), task, Name::from(file), folder)
    }

    /// Downloads the result of a call, and returns its path. The caller removes it.
    fn fetch_result(&self, py: Python<'_>, task: u32, file: &[u8]) -> PyResult<OsString> {
        self.downloads.fetch_result(py, JobId(self.job), task, Name::from(file))
    }

    /// The large result of a call, if a store on this machine has it: the content of its file.
    fn near_result<'py>(
        &self,
        py: Python<'py>,
        task: u32,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let file = py.detach(|| self.traffic.near_result(task));
        let Some(file) = file.filter(|file| file.size_bytes() <= MAX_NEAR_BYTES) else {
            return Ok(None);
        };
        let mut is_whole = false;
        let content = PyByteArray::new_with(py, file.size_bytes(), |into| {
            is_whole = py.detach(|| file.read(into));
            Ok(())
        })?;
        Ok(is_whole.then_some(content))
    }

    /// Adds no more calls. The results of those that were added still come.
    fn close(&self) {
        self.traffic.unsent().is_closed = true;
        self.traffic.unsent_changed();
    }

    /// Waits for results, for up to `timeout_s`, and returns them. `None` if no more can come.
    fn results(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<Vec<EndedCall>>> {
        let receiving = lock(&self.receiving).clone();
        py.detach(|| {
            if let Some(receiving) = receiving {
                let limit = Duration::from_secs_f64(timeout_s);
                // Whether it has waited as long as that does not matter.
                let _ = receiving
                    .block_on(async { timeout(limit, self.traffic.wait_for_results()).await });
                end_runtime(receiving);
            }
        });
        let mut received = self.traffic.received();
        received.is_woken = false;
        let (results, end) = (take(&mut received.results), received.end.clone());
        drop(received);
        match end {
            Some(why) if results.is_empty() && why.is_empty() => Ok(None),
            Some(why) if results.is_empty() => Err(error(why)),
            _ => Ok(Some(results)),
        }
    }

    /// Ends the present or the next wait for results.
    fn wake(&self) {
        self.traffic.wake();
    }

    /// Whether the connection was ended here.
    #[getter]
    fn is_over(&self) -> bool {
        lock(&self.runtime).is_none()
    }

    /// Ends the connection. Calls that have not ended are cancelled.
    fn disconnect(&self, py: Python<'_>) {
        let runtimes = [lock(&self.runtime).take(), lock(&self.receiving).take()];
        if let [Some(runtime), Some(receiving)] = runtimes {
            py.detach(|| {
                end_runtime(runtime);
                end_runtime(receiving);
                self.downloads.close();
            });
            self.traffic.end(String::new());
        }
    }
}

/// Ends a runtime, unless another thread still uses it, which then ends it.
fn end_runtime(runtime: Arc<Runtime>) {
    if let Some(runtime) = Arc::into_inner(runtime) {
        runtime.shutdown_timeout(END_DEADLINE);
    }
}
