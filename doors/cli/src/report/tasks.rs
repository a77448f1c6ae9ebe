//! The tasks of a job on the page: the slowest ones, and a table that the reader can search and
//! sort. The table has a bounded number of rows: failed tasks come first, then the slowest ones.

use std::fmt::Write;

use eyas_client::types::shown;
use eyas_client::types::shown::{shortened, with_short_quotes};
use eyas_client::types::task::DONE_EARLIER;
use eyas_client::types::units::format_bytes;
use eyas_client::view::{JobReport, TaskView};

use super::amount::{count, counted, duration};
use super::details::{JobDetails, is_done_earlier};
use super::escaped::EscapedText;
use super::run_times::TimesOfTasks;

/// Rows of the table of tasks.
const MAX_TASK_ROWS: usize = 5000;
/// Tasks that are listed as the slowest.
pub(super) const MAX_SLOWEST: usize = 10;
/// Characters of an item or of a status in a table.
const MAX_CELL_CHARS: usize = 120;

/// The run times: a histogram, and the slowest tasks.
pub(super) fn run_times(details: &JobDetails, report: &JobReport) -> String {
    let times = TimesOfTasks::of(&details.tasks);
    let Some(summary) = times.summary() else { return String::new() };
    let mut html = format!(
        r#"<section><h2>Run times</h2><p class="lead">Time from the start of a task's command to its
end, without waiting and without the transfer of inputs: {summary}.{}</p><div class="halves">"#,
        looked_at(details, report)
    );
    if let Some(histogram) = times.histogram() {
        let scale = match histogram.is_logarithmic {
            true => "Each bar has times about twice as long as the bar before it (logarithmic).",
            false => "All bars have the same range of times (linear).",
        };
        let _ = write!(
            html,
            "<figure><figcaption><h3>Tasks by run time</h3><p>{scale}</p></figcaption>{}</figure>",
            histogram.svg()
        );
    }
    html.push_str(
        r#"<figure><figcaption><h3>Slowest tasks</h3><p>A task's name is JOB.INDEX; <code>eyas task
show</code> tells more of it.</p></figcaption><div class="scroll"><table class="rows"><thead><tr>
<th scope="col">Task</th><th scope="col" class="left">Item</th><th scope="col"
class="left">Executor</th><th scope="col">Run time</th></tr></thead><tbody>"#,
    );
    for task in times.tasks.iter().take(MAX_SLOWEST) {
        let _ = write!(
            html,
            r#"<tr><th scope="row">{}</th><td class="left">{}</td><td class="left">{}</td>
<td>{}</td></tr>"#,
            task.task,
            item(task),
            executor(task),
            duration(task.ran_us as f64)
        );
    }
    html.push_str("</tbody></table></div></figure></div></section>");
    html
}

/// The sentence that says which tasks were looked at, if these are not all tasks.
fn looked_at(details: &JobDetails, report: &JobReport) -> String {
    let (read, total) = (details.tasks.len() as u64, report.job.tasks.total());
    if read >= total {
        return String::new();
    }
    format!(
        " These are of {} of {}: failed tasks, and parts that are spread evenly over the job.",
        count(read),
        counted(total, "task")
    )
}

/// The rows of the table: failed tasks, then the slowest ones.
fn rows(details: &JobDetails) -> Vec<&TaskView> {
    let mut tasks: Vec<_> = details.tasks.iter().collect();
    tasks.sort_by_key(|task| (task.state != "failed", u64::MAX - task.ran_us, task.task.index));
    tasks.truncate(MAX_TASK_ROWS);
    tasks
}

/// The table of tasks.
pub(super) fn table(details: &JobDetails, report: &JobReport) -> String {
    const HEADS: [(&str, &str, bool); 10] = [
        ("Task", "JOB.INDEX, the name of the task in commands", true),
        ("Item", "The file, line or number that the task was made from", false),
        ("State", "The state of the task, and the end of its last try if it failed", false),
        ("Executor", "The node's process that ran the task last", false),
        ("Run time", "From the start of the command to its end", true),
        ("In the queue", "From the submission of the job until the task got an executor", true),
        ("Staging", "Time at the executor before the start: inputs are fetched (staged)", true),
        ("CPU time", "Processor time that the task used", true),
        ("Memory", "Most memory that the processes of the task used together", true),
        ("Tries", "Number of times that the task was given to an executor", true),
    ];
    let tasks = rows(details);
    if tasks.is_empty() {
        return String::new();
    }
    let left_out = report.job.tasks.total().saturating_sub(tasks.len() as u64);
    let extent = match left_out {
        0 => counted(tasks.len() as u64, "task"),
        _ => format!(
            "{}: failed tasks first, then the slowest; {} left out, which <code>eyas task list \
             {}</code> lists",
            counted(tasks.len() as u64, "task"),
            count(left_out),
            report.job.job
        ),
    };
    let mut html = format!(
        r#"<details id="tasks"><summary>Tasks as a table <small>{extent}</small></summary>
<p class="tools" hidden><label>Show only rows with <input type="search" id="filter"
placeholder="text, such as failed or node-3"></label> <span id="found" role="status"></span>
<span>Click on a heading to sort.</span></p>
<div class="scroll"><table class="rows"><thead><tr>"#
    );
    for (name, meaning, is_number) in HEADS {
        let class = if is_number { "" } else { r#" class="left""# };
        let _ = write!(html, r#"<th scope="col" title="{meaning}"{class}>{name}</th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for task in tasks {
        row(&mut html, task);
    }
    html.push_str("</tbody></table></div></details>");
    html
}

/// Adds the row of a task. Cells with units have the plain number, too, by which the script sorts.
fn row(html: &mut String, task: &TaskView) {
    let is_done_earlier = is_done_earlier(task);
    let state = match (&task.status, task.reused) {
        _ if is_done_earlier => DONE_EARLIER.into(),
        (_, Some(from)) => format!("{}, result of task {from} reused", task.state),
        (Some(status), None) if task.state == "failed" => {
            format!("failed: {}", with_short_quotes(status))
        }
        _ => task.state.clone(),
    };
    let state = shortened(&state, MAX_CELL_CHARS);
    let _ = write!(
        html,
        r#"<tr><th scope="row" data-n="{}">{}</th><td class="left">{}</td>
<td class="left">{}</td><td class="left">{}</td>"#,
        task.task.index,
        task.task,
        item(task),
        EscapedText(&state),
        executor(task)
    );
    for us in [task.ran_us, task.queued_us, task.waited_us, task.cpu_us] {
        let time = if is_done_earlier { "–".into() } else { duration(us as f64) };
        let _ = write!(html, r#"<td data-n="{us}">{time}</td>"#);
    }
    let bytes = task.peak_memory_bytes;
    let memory = if bytes == 0 { "–".to_owned() } else { format_bytes(bytes) };
    let _ = write!(
        html,
        r#"<td data-n="{bytes}">{memory}</td><td data-n="{0}">{0}</td></tr>"#,
        task.tries
    );
}

/// The item of a task, or its id in the job file.
pub(super) fn item_text(task: &TaskView) -> String {
    let text = match (&task.id, task.item.is_empty()) {
        _ if is_done_earlier(task) => "–".into(),
        (Some(id), true) => shown(id).to_string(),
        _ => shown(&task.item).to_string(),
    };
    shortened(&text, MAX_CELL_CHARS).into_owned()
}

fn item(task: &TaskView) -> String {
    EscapedText(&item_text(task)).to_string()
}

fn executor(task: &TaskView) -> String {
    EscapedText(task.executor.as_deref().unwrap_or("–")).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_table_has_failed_tasks_then_the_slowest_and_is_bounded() {
        let mut details = example::details();
        let report = example::diffusion();
        let one = details.tasks[0].clone();
        details.tasks = (0..20_000)
            .map(|index| {
                let mut task = one.clone();
                (task.task.index, task.ran_us) = (index, u64::from(index) + 1);
                task.state = if index % 5000 == 7 { "failed" } else { "succeeded" }.into();
                task
            })
            .collect();
        let shown: Vec<_> = rows(&details).iter().map(|task| task.task.index).collect();
        assert_eq!(shown[..6], [15_007, 10_007, 5007, 7, 19_999, 19_998]);
        let html = table(&details, &report);
        assert_eq!(html.matches("<tr><th scope=\"row\"").count(), MAX_TASK_ROWS);
        assert!(html.contains("245,000 left out"), "the job has 250,000 tasks");
        assert!(run_times(&details, &report).contains("of 20,000 of 250,000 tasks"));
        details.tasks.clear();
        assert_eq!(table(&details, &report) + &run_times(&details, &report), "");
    }

    #[test]
    fn tasks_of_an_earlier_run_have_no_times() {
        let mut details = example::details();
        details.tasks.truncate(1);
        let task = &mut details.tasks[0];
        (task.id, task.status, task.ran_us) = (Some(DONE_EARLIER.into()), None, 0);
        (task.command, task.item) = (Vec::new(), "".into());
        let html = table(&details, &example::diffusion());
        assert!(html.contains(r#"<td class="left">done in an earlier run</td>"#), "{html}");
        assert!(html.contains(r#"<td data-n="0">–</td>"#), "{html}");
    }
}
