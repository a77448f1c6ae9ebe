//! Grid Engine: `qsub`, one `qstat -xml` for the states of all requests, `qacct` for those that it
//! no longer lists, and `qdel`. A request for several nodes is an array job, because parallel
//! environments differ from site to site.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::batch_command;
use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, together};
use crate::request::{BatchJob, RequestPlan};
use crate::script::shell;

/// Requests whose end is looked up at a time; each needs a command of its own.
const ENDS_AT_ONCE: usize = 8;

pub(super) struct GridEngine;

#[async_trait]
impl BatchSystem for GridEngine {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn directives(&self, plan: &RequestPlan) -> Vec<String> {
        let mut words = vec![
            format!("-S {}", shell()),
            format!("-l h_rt={}", time_limit(plan.options.time_limit_us)),
            // A job is warned by a signal before it is ended.
            "-notify".into(),
            "-r n".into(),
        ];
        if plan.nodes > 1 {
            words.push(format!("-t 1-{}", plan.nodes));
        }
        words.iter().map(|word| format!("#$ {word}")).collect()
    }

    fn names_hosts(&self) -> bool {
        false
    }

    fn node_number(&self) -> &'static str {
        "$SGE_TASK_ID"
    }

    fn warning(&self) -> Option<&'static str> {
        Some("USR2")
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let printed = batch_command::run_ok("qsub", &submission(plan, &["-terse"])).await?;
        Ok(BatchJob { id: submitted(&printed)?, cluster: None, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let (name, folder) = (plan.name(), plan.folder.clone());
        let found = listed().await?.into_iter().find(|job| job.name == name);
        Ok(found.map(|job| BatchJob { id: job.id, cluster: None, folder }))
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let mut listed = by_id(listed().await?);
        let mut known = BTreeMap::new();
        let (mut vanished, mut stuck) = (Vec::new(), Vec::new());
        for job in jobs {
            match listed.remove(&job.id) {
                Some(states) => {
                    let state = together(states);
                    if matches!(state, BatchState::Ended(_)) {
                        stuck.push(job.clone());
                    }
                    known.insert(job.id.as_str(), state);
                }
                None => vanished.push(job.id.as_str()),
            }
        }
        // A job in an error state stays in the list.
        if !stuck.is_empty()
            && let Err(why) = self.withdraw(&stuck).await
        {
            tracing::warn!("jobs in an error state are not removed: {why}");
        }
        for id in vanished.into_iter().take(ENDS_AT_ONCE) {
            // Without accounting, such requests stay unknown, and count as ended after some
            // questions.
            if let Ok(printed) =
                batch_command::run_ok("qacct", &["-j".to_owned(), id.to_owned()]).await
            {
                known.insert(id, read_end(&printed));
            }
        }
        let state =
            |job: &BatchJob| known.get(job.id.as_str()).cloned().unwrap_or(BatchState::Unknown);
        Ok(jobs.iter().map(|job| state(job).into()).collect())
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        let ids: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
        let output = batch_command::run("qdel", &ids).await?;
        // A job may have ended in the meantime.
        match output.is_success || output.message().contains("does not exist") {
            true => Ok(()),
            false => Err(BatchError::Failed { program: "qdel".into(), says: output.message() }),
        }
    }

    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError> {
        let directives = self.directives(plan);
        let options = directives
            .iter()
            .filter_map(|line| line.strip_prefix("#$ "))
            .flat_map(|line| line.split(' '));
        let mut words = vec!["-w".to_owned(), "v".to_owned()];
        words.extend(options.map(String::from));
        words.extend(plan.options.verbatim.iter().cloned());
        words.extend(["-b", "y", "/bin/true"].map(String::from));
        let output = batch_command::run("qsub", &words).await?;
        let says = output.message();
        if output.is_success {
            Ok(says)
        } else {
            Err(BatchError::Failed { program: "qsub".into(), says })
        }
    }
}

/// The words of `qsub`; the script is the last one.
fn submission(plan: &RequestPlan, mode: &[&str]) -> Vec<String> {
    let file = |name: &str| plan.folder.join(name).display().to_string();
    let mut words: Vec<String> = mode.iter().map(|word| (*word).to_owned()).collect();
    let folder = plan.folder.parent().unwrap_or(&plan.folder).display().to_string();
    words.extend(["-o".into(), file("stdout"), "-e".into(), file("stderr"), "-wd".into(), folder]);
    words.extend(plan.options.verbatim.iter().cloned());
    words.extend(["-N".into(), plan.name()]);
    // It would replace hosts that the user names.
    if !plan.excluded.is_empty() && !names_hosts(&plan.options.verbatim) {
        let others: Vec<_> = plan.excluded.iter().map(|host| format!("!{host}")).collect();
        words.extend(["-l".to_owned(), format!("hostname={}", others.join("&"))]);
    }
    words.push(plan.script().display().to_string());
    words
}

/// Whether options of `qsub` request hosts.
fn names_hosts(words: &[String]) -> bool {
    let is_host = |resource: &str| resource.starts_with("h=") || resource.starts_with("hostname=");
    words.iter().any(|word| word.split(',').any(is_host))
}

fn time_limit(us: u64) -> String {
    let seconds = us.div_ceil(1_000_000);
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// What `-terse` prints: `ID`, or `ID.FIRST-LAST:STEP` of an array job, perhaps after warnings.
fn submitted(printed: &str) -> Result<String, BatchError> {
    let line =
        printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let id = line.split('.').next().unwrap_or_default();
    match id.is_empty() || !id.chars().all(|c| c.is_ascii_digit()) {
        true => Err(BatchError::unknown("qsub", printed)),
        false => Ok(id.into()),
    }
}

/// A job, or some tasks of an array job, in the list of `qstat`.
#[derive(Debug, Default, PartialEq)]
struct ListedJob {
    id: String,
    name: String,
    /// Letters, such as `qw`.
    state: String,
}

/// The jobs of the user.
async fn listed() -> Result<Vec<ListedJob>, BatchError> {
    // `$user` is the user of the command. A site's defaults may list the jobs of all users.
    read_list(&batch_command::run_ok("qstat", &["-xml", "-u", "$user"].map(String::from)).await?)
}

fn by_id(listed: Vec<ListedJob>) -> BTreeMap<String, Vec<BatchState>> {
    let mut states = BTreeMap::<_, Vec<_>>::new();
    listed
        .into_iter()
        .for_each(|job| states.entry(job.id).or_default().push(parse_state(&job.state)));
    states
}

/// The XML of `qstat`. Tasks of an array job that run are listed one by one.
fn read_list(xml: &str) -> Result<Vec<ListedJob>, BatchError> {
    let unknown = || BatchError::unknown("qstat", xml);
    let mut reader = Reader::from_str(xml);
    let (mut listed, mut tag, mut job) = (Vec::new(), String::new(), ListedJob::default());
    let mut is_answer = false;
    loop {
        match reader.read_event().map_err(|_| unknown())? {
            Event::Start(start) => {
                tag = start.name().as_ref().to_owned();
                is_answer |= tag == "job_info";
            }
            Event::End(end) if end.name().as_ref() == "job_list" => {
                listed.push(std::mem::take(&mut job))
            }
            Event::End(_) => tag.clear(),
            Event::Text(text) => {
                let field = match tag.as_str() {
                    "JB_job_number" => &mut job.id,
                    "JB_name" => &mut job.name,
                    "state" => &mut job.state,
                    _ => continue,
                };
                field.push_str(text.trim());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if is_answer { Ok(listed) } else { Err(unknown()) }
}

/// A state of Grid Engine: letters, such as `qw` or `Rr`.
fn parse_state(letters: &str) -> BatchState {
    let has = |letter| letters.contains(letter);
    let says = || Some(letters.to_owned());
    if has('E') {
        // It would wait for ever.
        let says = format!("{letters}: it is in an error state, which `qstat -j` explains");
        BatchState::Ended(BatchEnd { says, is_of_node: false })
    } else if has('q') || has('w') || has('h') && !has('r') {
        BatchState::Pending(says())
    } else if ["r", "t", "s", "S", "T", "d"].iter().any(|letter| letters.contains(letter)) {
        BatchState::Running
    } else {
        BatchState::Pending(says())
    }
}

/// How a job ended, by its record in the accounting.
fn read_end(printed: &str) -> BatchState {
    let field = |name: &str| {
        let line = printed.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        line.trim_start().strip_prefix(name).map(str::trim)
    };
    let failed = field("failed").filter(|failed| *failed != "0");
    let says = match (failed, field("exit_status")) {
        (Some(failed), _) => format!("failed: {failed}"),
        (None, Some(status)) => format!("exit status {status}"),
        (None, None) => "ended".into(),
    };
    // Failures 8 to 25 are of the node; others, such as 37 (walltime) and 100 (a signal), are of
    // the request.
    let number = failed.and_then(|failed| failed.split_whitespace().next()?.parse::<u32>().ok());
    BatchState::Ended(BatchEnd {
        says,
        is_of_node: number.is_some_and(|number| (8..=25).contains(&number)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_xml() {
        let xml = "<?xml version='1.0'?>\n<job_info xmlns:xsd=\"x\"><queue_info><job_list \
                   state=\"running\"><JB_job_number>1</JB_job_number><JB_name>a&amp;b</\
                   JB_name><state>r</state></job_list></queue_info><job_info><job_list \
                   state=\"pending\"><JB_job_number>5</JB_job_number><JB_name>eyas-x-0-1a</\
                   JB_name><state>Eqw</state><tasks>1,2</tasks></job_list><job_list \
                   state=\"pending\"><JB_job_number>1</JB_job_number><state>qw</state></\
                   job_list></job_info></job_info>";
        let listed = read_list(xml).unwrap();
        assert_eq!((&*listed[1].id, &*listed[1].name), ("5", "eyas-x-0-1a"));
        let mut states = by_id(listed);
        let first = states.remove("1").unwrap();
        assert_eq!(first, [BatchState::Running, BatchState::Pending(Some("qw".into()))]);
        assert_eq!(together(first), BatchState::Running);
        assert!(
            matches!(&states["5"][..], [BatchState::Ended(end)] if end.says.starts_with("Eqw"))
        );
        for wrong in ["", "error: commlib error", "<html></html>", "<job_info><a>"] {
            let read = read_list(wrong);
            assert!(read.is_err() || wrong.starts_with("<job_info"), "{wrong}");
        }
    }

    #[test]
    fn all_states_are_understood() {
        for letters in ["r", "t", "Rr", "dr", "s", "S", "T", "hr"] {
            assert_eq!(parse_state(letters), BatchState::Running, "{letters}");
        }
        for letters in ["qw", "hqw", "hRwq", "x"] {
            assert_eq!(
                parse_state(letters),
                BatchState::Pending(Some(letters.into())),
                "{letters}"
            );
        }
    }

    #[test]
    fn hosts_of_the_user_are_not_replaced() {
        let names = |words: &[&str]| {
            names_hosts(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert!(names(&["-l", "mem=1G,h=a*"]) && names(&["-l", "hostname=!b"]));
        assert!(!names(&["-l", "h_vmem=1G", "-q", "all.q"]));
    }

    #[test]
    fn ids_and_ends_are_read() {
        assert_eq!(submitted("5.1-2:1\n").unwrap(), "5");
        assert_eq!(submitted("warning\n17\n").unwrap(), "17");
        assert!(submitted("Unable to run job").is_err());
        let end =
            |failed: &str| match read_end(&format!("failed       {failed}\nexit_status  137\n")) {
                BatchState::Ended(end) => (end.says, end.is_of_node),
                other => panic!("{other:?}"),
            };
        assert_eq!(end("0"), ("exit status 137".into(), false));
        assert_eq!(
            end("100 : assumedly after job"),
            ("failed: 100 : assumedly after job".into(), false)
        );
        assert!(end("21  : in recognizing job").1);
        assert_eq!(time_limit(3_661_000_000), "1:01:01");
    }
}
