//! Job files. A job whose tasks would be looked up is only read, so that no input leads to a file.

use eyas_client::{Cluster, TaskFields, check_requirements, read_job_text};
use serde::Deserialize;

use crate::choice;

/// As much of a job file as says whether it has tasks. It takes all that the reader of job files
/// takes, and more.
#[derive(Deserialize)]
struct Tasks {
    #[serde(default)]
    task: Vec<TaskFields>,
}

/// A job file in TOML, or in lines of JSON.
pub(crate) fn jobs(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (file, tasks) = match kind % 2 {
        0 => {
            ("job.toml", toml::from_str::<Tasks>(text).map(|tasks| tasks.task).unwrap_or_default())
        }
        _ => {
            let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
            let lines = lines.filter_map(|line| serde_json::from_str::<TaskFields>(line).ok());
            ("job.jsonl", lines.collect())
        }
    };
    for fields in &tasks {
        let _ = fields.requirements.as_deref().map(check_requirements);
        for range in &fields.array.0 {
            let _ = eyas_client::check_range(&range.to_string());
        }
    }
    if !tasks.is_empty() {
        return;
    }
    let Ok(cluster) = Cluster::named("none") else { return };
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime without threads");
    let read = runtime.block_on(read_job_text(file, text, None, &cluster, |_| {}));
    if let Err(error) = read {
        let line = error.line.expect("the text was read");
        assert!((1..=text.lines().count().max(1) + 1).contains(&line), "{error}");
        let _ = error.to_string();
    }
}
