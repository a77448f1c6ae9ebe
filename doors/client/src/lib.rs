//! Eyas for programs: find a cluster, draft a job, submit it, watch it.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use eyas_client::{Client, Cluster, Draft};
//! use eyas_client::types::{Program, TaskTemplate, Template, Value};
//!
//! let mut client = Client::connect(&Cluster::named("survey")?.access()?).await?;
//! let words = ["wc", "-c", "{}"].map(Template::parse);
//! let mut draft = Draft::new("count");
//! let template = draft.template(TaskTemplate::new(Program::Command(words.to_vec())))?;
//! for file in ["a.fits", "b.fits"] {
//!     draft.task_on_file(template, &file.into()).await?;
//! }
//! let job = client.submit(draft).await?;
//! client.watch(job, true, std::time::Duration::from_secs(60), |_| {}).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod attached;
mod client;
mod client_error;
mod clusters;
mod copy;
mod draft;
mod draft_files;
mod events;
mod fingerprints;
mod get;
mod globs;
mod graph;
mod jobfile;
mod kept;
mod kept_error;
mod map;
mod names;
mod near;
mod output_file;
mod ranges;
mod retry;
mod scratch;
mod sources;
mod task_texts;
mod users;

pub use attached::{AttachedEvent, AttachedInputs, AttachedReceiver, AttachedSender};
pub use client::{Client, WatchEvent};
pub use client_error::ClientError;
pub use clusters::{Cluster, ClusterError, DEFAULT_CLUSTER, home};
pub use copy::CopyError;
pub use draft::{Draft, DraftError, SubmitProgress};
pub use events::Events;
pub use fingerprints::TaskFingerprint;
pub use get::{DownloadFolder, GetError, GetProgress, GetRequest};
pub use globs::{ClusterFilesError, cluster_files, cluster_files_to_read};
pub use jobfile::{
    ArrayIndex, ArrayLength, ByteRange, ByteRangeError, Bytes, CPUS, CommandWords, Duration,
    InputFields, JobFileError, JobStep, JobSteps, Keep, MapStep, MapStepError, OneOrMore,
    OutputFields, PassOutput, RecordRange, RecordRangeError, StepOrderError, StepTasks, TaskFields,
    TaskFieldsError, check_requirements, draft_job, read_job_file, read_job_steps, read_job_text,
};
pub use kept::numbered;
pub use kept_error::KeptError;
pub use map::{
    BlockPiece, BlockRun, BlockWorker, MAX_REDUCERS, MapError, MapEvent, MapJob, MapRun, MapTask,
    PipelineError, PolicyTextError, Reduce, ReduceTask, RunOptions, Shuffle, TaskFailures,
    WorkError, map_worker, parse_policy, reduce_worker,
};
pub use names::{FileNamesError, PlaceError, bare_name, change_names, find_names, url_of_place};
pub use near::NearFile;
pub use output_file::OutputFileError;
pub use ranges::{check_range, product};
pub use retry::ChangedInput;

pub use scratch::ScratchFolder;
pub use sources::{ListLine, SourceError, files_of, lines_of};
pub use task_texts::TaskTexts;
pub use users::{FileOwner, UserMap, UserMapError, name_of_user};

pub use eyas_files as files;
pub use eyas_session::private::{PrivateError, PrivateFolder};
pub use eyas_session::trusted;
pub use eyas_types as types;
pub use eyas_wire::{client as messages, pool, printed, view};
