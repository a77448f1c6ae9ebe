//! `eyas top`: a live view of a cluster, or one frame of it. The terminal is restored however the view ends: by a key,
//! an error, a signal or a panic.

mod canvas;
mod draw;
mod overview;
mod rows;
mod screen;
mod table;
mod watch;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use eyas_client::types::{JobId, units};
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, crossterm::terminal};
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
use watch::{TopEvent, Watch};

/// Width of a frame that is not printed on a terminal, columns.
const PLAIN_WIDTH: u16 = 100;
/// Capacity of each queue between the parts of the view: events, keys and requests. A sender waits while its queue is
/// full.
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
        return live(watch, Screen::new(name, first), pause).await;
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
async fn live(watch: Watch, mut screen: Screen, pause: Duration) -> Result<ExitCode, CliError> {
    let mut signals = Signals::new()?;
    let (to_cancel, cancels) = mpsc::channel::<JobId>(QUEUE_LENGTH);
    let (watched, mut watch_events) = mpsc::channel(QUEUE_LENGTH);
    let mut terminal = RestoredTerminal::new()?;
    let mut terminal_events = terminal_events();
    tokio::spawn(watch.follow(pause, cancels, watched));
    let style = draw_style();
    loop {
        terminal.0.draw(|frame| draw::screen(frame, &screen, style))?;
        let action = tokio::select! {
            event = watch_events.recv() => {
                screen.handle(event.ok_or("the view of the cluster has ended")?);
                None
            }
            event = terminal_events.recv() => match event.ok_or("the keyboard cannot be read")?? {
                Event::Key(key) => screen.key(key),
                _ => None,
            },
            () = signals.any() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        match action {
            Some(KeyAction::Quit) => return Ok(ExitCode::SUCCESS),
            Some(KeyAction::Cancel(job)) if to_cancel.try_send(job).is_err() => {
                screen.handle(TopEvent::Answer(format!("job {job} was not cancelled: the dispatcher does not answer")));
            }
            Some(KeyAction::Cancel(_)) | None => {}
        }
    }
}

/// Keys, and changes of the terminal's size. Reading them blocks, so a thread of its own reads them until the process
/// ends.
fn terminal_events() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, events) = mpsc::channel(QUEUE_LENGTH);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    events
}

/// A terminal that shows this view, and its former content after this value is dropped. After a panic, the hook that
/// `ratatui::try_init` installs restores the terminal before the panic's message is printed.
struct RestoredTerminal(DefaultTerminal);

impl RestoredTerminal {
    fn new() -> Result<Self, CliError> {
        ratatui::try_init().map(RestoredTerminal).map_err(|e| {
            ratatui::restore();
            format!("cannot use the terminal: {e}").into()
        })
    }
}

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        // Restoring a second time would move the cursor above the panic's message.
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
