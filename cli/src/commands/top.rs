//! `eyas top`: a live view of a cluster, or one frame of it. The terminal is as it was before however this ends: at a
//! key, an error, a signal or a panic.

mod canvas;
mod draw;
mod overview;
mod rows;
mod screen;
mod table;
mod watch;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use eyas_client::types::{JobId, units};
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, crossterm::terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::error::CliError;
use crate::error::INTERRUPTED;
use crate::global::GlobalArgs;
use crate::print;
use crate::show;
use canvas::Look;
use overview::Overview;
use screen::{Act, Screen};
use watch::{News, Watch};

/// Columns of a frame that goes to no terminal.
const PLAIN_WIDTH: u16 = 100;
/// News, keys and requests that wait to be taken; who has more to say waits.
const WAITING: usize = 16;

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Time between two updates; rates are averages over this time
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval_us)]
    interval: u64,
    /// Print one frame as text, from two looks at the cluster, and end; --json does the same
    #[arg(long)]
    once: bool,
}

/// Minimum time between two looks at a cluster, which cost the dispatcher work.
const MIN_INTERVAL_US: u64 = 100_000;

fn parse_interval_us(text: &str) -> Result<u64, String> {
    let us = units::parse_duration_us(text).map_err(|e| e.to_string())?;
    if us < MIN_INTERVAL_US { Err(format!("`{text}` is too short: write 100ms or more")) } else { Ok(us) }
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
    let first = watch.look().await?;
    if !is_once {
        return live(watch, Screen::new(name, first), pause).await;
    }
    sleep(pause).await;
    let overview = Overview::between(Some(&first), &watch.look().await?);
    match global.json {
        true => show::json("top", &overview)?,
        false => print::bytes(draw::plain(&name, &overview, width(), look()).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn look() -> Look {
    Look::of(|name| std::env::var(name).ok())
}

fn width() -> u16 {
    match terminal::size() {
        Ok((width, _)) if io::stdout().is_terminal() => width,
        _ => PLAIN_WIDTH,
    }
}

/// Shows the cluster until a key or a signal ends it.
async fn live(watch: Watch, mut screen: Screen, pause: Duration) -> Result<ExitCode, CliError> {
    let mut signals = Signals::new()?;
    let (to_cancel, cancels) = mpsc::channel::<JobId>(WAITING);
    let (tell, mut news) = mpsc::channel(WAITING);
    let mut shown = Shown::new()?;
    let mut events = events();
    tokio::spawn(watch.follow(pause, cancels, tell));
    let look = look();
    loop {
        shown.terminal.draw(|frame| draw::screen(frame, &screen, look))?;
        let act = tokio::select! {
            told = news.recv() => {
                screen.learn(told.ok_or("the view of the cluster has ended")?);
                None
            }
            event = events.recv() => match event.ok_or("the keyboard cannot be read")?? {
                Event::Key(key) => screen.key(key),
                _ => None,
            },
            () = signals.any() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        match act {
            Some(Act::Quit) => return Ok(ExitCode::SUCCESS),
            Some(Act::Cancel(job)) if to_cancel.try_send(job).is_err() => {
                screen.learn(News::Said(format!("job {job} was not cancelled: the dispatcher is away")));
            }
            Some(Act::Cancel(_)) | None => {}
        }
    }
}

/// Keys and changes of size. Waiting for them blocks, so that a thread does; it ends with the process.
fn events() -> mpsc::Receiver<io::Result<Event>> {
    let (tell, events) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if tell.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    events
}

/// A terminal that shows a screen of ours, and what was there before once this is dropped. A panic restores it before
/// it is told of, as `ratatui::try_init` sees to.
struct Shown {
    terminal: DefaultTerminal,
}

impl Shown {
    fn new() -> Result<Self, CliError> {
        ratatui::try_init().map(|terminal| Shown { terminal }).map_err(|e| {
            ratatui::restore();
            format!("cannot use the terminal: {e}").into()
        })
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // A second time would put the cursor back above what the panic said.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Signals that end the view.
struct Signals([Signal; 4]);

impl Signals {
    fn new() -> io::Result<Self> {
        let [hangup, interrupt, quit, terminate] =
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()].map(signal);
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
