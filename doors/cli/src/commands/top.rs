//! `eyas top`: a live view of a cluster, or one frame of it. The terminal is restored however the
//! view ends: by a key, an error, a signal or a panic.

mod canvas;
mod cells;
mod draw;
mod keys;
pub(crate) mod overview;
mod rows;
mod screen;
mod table;
mod terminal;
mod watch;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use eyas_client::types::{JobId, units};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::error::{CliError, INTERRUPTED, ValueError};
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print;
use crate::show;
use canvas::DrawStyle;
use overview::Overview;
use screen::{KeyAction, Screen};
use terminal::Terminal;
use watch::{TopEvent, Watch};

/// Width of a frame that is not printed on a terminal, columns.
const PLAIN_WIDTH: u16 = 100;
/// Capacity of each queue between the parts of the view: events, keys and requests. A sender waits
/// while its queue is full.
const QUEUE_LENGTH: usize = 16;

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Time between two updates; rates are averages over this time
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval_us)]
    interval: u64,
    /// Print one frame as text and exit, after one --interval; --json implies this option
    #[arg(long)]
    once: bool,
}

/// Minimum time between two updates. Each update costs the dispatcher work.
const MIN_INTERVAL_US: u64 = 100_000;

fn parse_interval_us(text: &str) -> Result<u64, ValueError> {
    let us = units::parse_duration_us(text)?;
    if us < MIN_INTERVAL_US { Err(ValueError::Interval(text.into())) } else { Ok(us) }
}

pub(crate) async fn top(args: TopArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let pause = Duration::from_micros(args.interval);
    let cluster = global.cluster()?;
    let name = cluster.access()?.cluster;
    let mut watch = Watch::new(cluster);
    let is_once = args.once || global.json;
    if !is_once && !io::stdout().is_terminal() {
        return Err("standard output is not a terminal: use --once for one frame, or --json".into());
    }
    let first = watch.snapshot().await?;
    if !is_once {
        return show(watch, Screen::new(name, first), pause).await;
    }
    sleep(pause).await;
    let overview = Overview::between(Some(&first), &watch.snapshot().await?);
    match global.json {
        true => show::json("top", &overview)?,
        false => print::bytes(draw::plain(&name, &overview, width(), draw_style()).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw_style() -> DrawStyle {
    DrawStyle::of(|name| std::env::var(name).ok())
}

fn width() -> u16 {
    match terminal::size() {
        Ok((width, _)) if io::stdout().is_terminal() => width,
        _ => PLAIN_WIDTH,
    }
}

/// Shows the cluster until a key or a signal ends the view.
async fn show(watch: Watch, mut screen: Screen, pause: Duration) -> Result<ExitCode, CliError> {
    let mut signals = Signals::new()?;
    let (to_cancel, cancels) = mpsc::channel::<JobId>(QUEUE_LENGTH);
    let (watched, mut watch_events) = mpsc::channel(QUEUE_LENGTH);
    let mut resized = signal(SignalKind::window_change())?;
    let mut terminal =
        Terminal::enter().map_err(|error| format!("cannot use the terminal: {error}"))?;
    let mut keys = terminal::keys(QUEUE_LENGTH)?;
    tokio::spawn(watch.follow(pause, cancels, watched));
    let style = draw_style();
    loop {
        terminal.draw(|buffer| draw::screen(buffer, &screen, style))?;
        let action = tokio::select! {
            event = watch_events.recv() => {
                screen.handle(event.ok_or("the view of the cluster has ended")?);
                None
            }
            key = keys.recv() => screen.key(key.ok_or("the keyboard cannot be read")??),
            _ = resized.recv() => None,
            () = signals.any() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        match action {
            Some(KeyAction::Quit) => return Ok(ExitCode::SUCCESS),
            Some(KeyAction::Cancel(job)) if to_cancel.try_send(job).is_err() => {
                screen.handle(TopEvent::Answer(format!(
                    "job {job} was not cancelled: the dispatcher does not answer"
                )));
            }
            Some(KeyAction::Cancel(_)) | None => {}
        }
    }
}

/// Signals that end the view.
struct Signals([Signal; 4]);

impl Signals {
    fn new() -> io::Result<Self> {
        let [hangup, interrupt, quit, terminate] = [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
        ]
        .map(signal);
        Ok(Signals([hangup?, interrupt?, quit?, terminate?]))
    }

    async fn any(&mut self) {
        let [hangup, interrupt, quit, terminate] = &mut self.0;
        tokio::select! {
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
