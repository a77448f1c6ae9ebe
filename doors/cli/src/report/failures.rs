//! Failed tasks on the page, by the reason for which they failed, with examples.

use std::fmt::Write;

use eyas_client::view::JobReport;

use super::amount::{count, counted};
use super::details::{FailureGroup, JobDetails, groups_of};
use super::escaped::EscapedText;
use crate::show;

/// The section about failed tasks; nothing if no task failed.
pub(super) fn section(report: &JobReport, details: Option<&JobDetails>) -> String {
    let of_report;
    let groups: &[FailureGroup] = match details {
        Some(details) if !details.failures.is_empty() => &details.failures,
        _ => {
            of_report = groups_of(&report.failures);
            &of_report
        }
    };
    if groups.is_empty() {
        return String::new();
    }
    let listed: u64 = groups.iter().map(|group| group.count).sum();
    let failed = report.job.tasks.failed.max(listed);
    let which = match listed < failed {
        true => format!(", of which {} are sorted by their reason below", count(listed)),
        false => String::new(),
    };
    let mut html = format!(
        r#"<section><h2>Failures</h2><p class="lead">{} of {} failed{which}. Each reason has up to
three examples, with the last lines that the task wrote to standard error. <code>eyas task log
TASK</code> shows all of them.</p>"#,
        count(failed),
        counted(report.job.tasks.total(), "task")
    );
    for group in groups {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            html,
            r#"<h3 class="reason">{} <small>{}</small></h3><dl class="failures">"#,
            EscapedText(&group.reason),
            counted(group.count, "task")
        );
        for failure in &group.examples {
            let mut lines = show::details(failure);
            if failure.status != group.reason {
                lines.insert(0, failure.status.clone());
            }
            let _ = write!(
                html,
                "<dt>{}</dt><dd>{}</dd>",
                failure.task,
                EscapedText(&lines.join("\n"))
            );
        }
        html.push_str("</dl>");
    }
    html.push_str("</section>");
    html
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn failures_stand_under_their_reason() {
        let (mut report, details) = (example::hostile(), example::details());
        report.job.tasks.failed = 5000;
        let html = section(&report, Some(&details));
        assert!(html.contains("exit code 2 <small>41 tasks</small>"), "{html}");
        assert!(html.contains("5,000 of 255,000 tasks failed, of which 41 are sorted"), "{html}");
        assert_eq!(html.matches("<dt>").count(), 3);
        // Without details, the failures of the report are grouped.
        let html = section(&report, None);
        assert_eq!(html.matches("class=\"reason\"").count(), 3);
        report.failures.clear();
        assert_eq!(section(&report, None), "");
    }
}
