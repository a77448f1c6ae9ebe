//! `eyas report`: writes the report of a job to a file, and prints it as a table.

use std::path::PathBuf;

use crate::connect::{connect, job_of};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, WhichJob};
use crate::print::{self, say};
use crate::{report as pages, trace};
use clap::Args;

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// The job's id, or `last` for the job that was submitted last
    job: WhichJob,
    /// Write the report to FILE (.html, .csv or .json) [default: eyas-report-JOB.html]
    #[arg(long, short = 'o', value_name = "FILE", value_parser = pages::parse_path)]
    output: Option<PathBuf>,
    /// Compare with another job
    #[arg(long, value_name = "JOB")]
    baseline: Option<WhichJob>,
    /// Write a trace to FILE: arrivals, run times and reads of the job's tasks, for `eyas
    /// simulate run`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(crate) async fn report(args: ReportArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    let job = job_of(&mut client, args.job).await?;
    let report = pages::fetch(&mut client, job).await?;
    let baseline = match args.baseline {
        Some(which) => {
            let job = job_of(&mut client, which).await?;
            Some(pages::fetch(&mut client, job).await?)
        }
        None => None,
    };
    if let Some(path) = &args.trace {
        trace::write(&mut client, &report.job, path).await?;
    }
    if global.json {
        print::text(&(pages::json(&report) + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let details = pages::fetch_details(&mut client, &report).await?;
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("eyas-report-{job}.html")));
    pages::write(&path, &report, Some(&details), baseline.as_ref())?;
    print::text(&pages::table(&report, Some(&details)))?;
    say!("the report is in {}", path.display());
    Ok(ExitCode::SUCCESS)
}
