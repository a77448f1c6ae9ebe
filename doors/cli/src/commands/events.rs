//! `eyas events`: what has happened in a cluster, and what happens.

use clap::Args;
use eyas_client::Events;
use eyas_client::types::shown;
use eyas_client::view::EventView;

use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::Interrupt;
use crate::print::{self, say};
use crate::report::moment;
use crate::show;

/// The kind of the last event of a cluster.
const STOPPING: &str = "cluster-stopping";

#[derive(Args)]
pub(crate) struct EventsArgs {
    /// Print further events as they happen, until the cluster stops or Ctrl-C; with --json, each
    /// event on a line of its own
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    reconnect: ReconnectArgs,
}

pub(crate) async fn events(args: EventsArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut interrupt = Interrupt::listen();
    let mut events = Events::of(connect(global).await?, None, args.reconnect.patience());
    let mut gathered = Vec::new();
    loop {
        let part = tokio::select! {
            part = events.next() => part?,
            () = interrupt.received() => return Ok(ExitCode::SUCCESS),
        };
        if part.is_gap {
            say!(
                "events may be missing here: the dispatcher has started again, or too many have \
                 happened"
            );
        }
        let is_over = part.events.iter().any(|event| event.kind == STOPPING)
            || !args.follow && part.is_current;
        if !global.json {
            print::text(&part.events.iter().map(line_of).collect::<String>())?;
        } else if args.follow {
            part.events.iter().try_for_each(show::event_line)?;
        } else {
            gathered.extend(part.events);
        }
        if is_over {
            break;
        }
    }
    if global.json && !args.follow {
        show::json("events", &gathered)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An event as a line, with its time in UTC.
fn line_of(event: &EventView) -> String {
    format!("{}  {}\n", moment(event.unix_ms), shown(&event.text))
}
