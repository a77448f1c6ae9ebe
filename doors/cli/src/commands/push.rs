//! `eyas push`: copies objects to executors before tasks need them, and shows the progress.

use clap::Args;
use eyas_client::Draft;
use eyas_client::messages::PushRequest;
use eyas_client::types::object::is_kept_name;
use eyas_client::types::units::{format_bytes, format_count};
use eyas_client::types::{Distribution, Name};
use eyas_client::view::{PushView, RecipientView};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::{show, words};

#[derive(Args)]
pub(crate) struct PushArgs {
    /// Paths, URLs or patterns, as for inputs of tasks; or eyas://JOB/TASK/FILE, or a pattern such
    /// as eyas://JOB/*/FILE, for outputs that are kept in the cluster; JOB may be `last`
    #[arg(required = true, value_name = "OBJECT", value_parser = words::name())]
    objects: Vec<Name>,
    /// The executors: `all`, a name or id as in `eyas executor list`, or a label such as site=a
    /// (may be repeated)
    #[arg(long, value_name = "EXECUTORS", default_value = "all")]
    to: Vec<String>,
    /// How the objects are copied to the executors: chain; or, for comparison, spanning-tree
    #[arg(long, value_name = "METHOD", default_value = "chain")]
    distribution: Distribution,
    /// Return as soon as the copies have started, and let them continue
    #[arg(long)]
    no_wait: bool,
}

/// Handles `eyas push`. The command succeeds if all executors have all objects.
pub(crate) async fn push(args: PushArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut draft = Draft::new("push").on_cluster(&global.cluster()?);
    let mut kept = Vec::new();
    for pattern in &args.objects {
        let found = draft.find(pattern).await?;
        if is_kept_name(pattern) {
            kept.extend(found);
        } else {
            draft.look_up(&found).await?;
        }
    }
    let (objects, wait) = (draft.into_objects(), !args.no_wait);
    let mut client = connect(global).await?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(
        ProgressStyle::with_template("{wide_bar:.green} {pos}/{len} {msg}")
            .expect("the template is valid"),
    );
    let request = PushRequest { objects, kept, to: args.to, distribution: args.distribution, wait };
    let pushed = client.push(request, |view| show_progress(&bar, view)).await;
    bar.finish_and_clear();
    let view = pushed?;
    if global.json {
        show::json("push", &view)?;
    } else {
        for failure in &view.failures {
            let what = failure.source.clone().unwrap_or("the objects".into());
            say!("{} does not have {what}: {}", failure.executor, failure.reason);
        }
        say!("{}", summary(&view));
    }
    let has_failed = view.executors.iter().any(|executor| executor.state == "incomplete");
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show_progress(bar: &ProgressBar, view: &PushView) {
    bar.set_length(view.objects * view.executors.len() as u64);
    bar.set_position(view.executors.iter().map(|executor| executor.objects).sum());
    let bytes: u64 = view.executors.iter().map(|executor| executor.bytes).sum();
    let rate = bytes as f64 / bar.elapsed().as_secs_f64().max(1e-3);
    let (bytes, rate) = (format_bytes(bytes), format_bytes(rate as u64));
    bar.set_message(format!(
        "{} of {} | {bytes} | {rate}/s",
        complete(view),
        format_count(view.executors.len() as u64, "executor")
    ));
}

fn complete(view: &PushView) -> usize {
    let is_complete = |executor: &&RecipientView| executor.state == "complete";
    view.executors.iter().filter(is_complete).count()
}

fn summary(view: &PushView) -> String {
    let what = format!("{} ({})", format_count(view.objects, "object"), format_bytes(view.bytes));
    let executors = format_count(view.executors.len() as u64, "executor");
    match view.is_over {
        true => format!("pushed {what} to {} of {executors}", complete(view)),
        false => format!("pushing {what} to {executors}"),
    }
}
