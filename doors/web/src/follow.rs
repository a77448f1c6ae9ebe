//! Keeps the events and the state current. While no page is open, the dispatcher is only listened
//! to, and asked for nothing.

use std::sync::Arc;
use std::time::Duration;

use eyas_client::{ClientError, Events};
use tokio::time::{sleep, timeout};

use crate::shared::Shared;

/// Time between two questions about the state.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Shortest time between two such questions, when events tell of changes.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// First and longest time before a lost dispatcher is dialled again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Follows the dispatcher's events without an end.
pub(crate) async fn follow_events(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let why = match shared.dispatcher.dial().await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let mut events = Events::of(client, shared.feed.position(), Duration::ZERO);
                read_events(&shared, &mut events).await.to_string()
            }
            Err(why) => why.message,
        };
        if shared.live.is_connected() {
            tracing::warn!("the dispatcher is lost: {why}");
        }
        shared.live.note_connection(false);
        shared.dispatcher.note_loss().await;
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Adds events to the feed until the connection ends. Returns why.
async fn read_events(shared: &Shared, events: &mut Events) -> ClientError {
    loop {
        match events.next().await {
            Ok(part) => {
                shared.feed.add(part);
                shared.live.note_connection(true);
            }
            Err(why) => return why,
        }
    }
}

/// Asks for the state while pages read it, without an end.
pub(crate) async fn follow_state(shared: Arc<Shared>) {
    let mut changes = shared.feed.changes();
    loop {
        if shared.live.readers() == 0 {
            shared.wanted.notified().await;
        }
        if let Err(why) = shared.look().await {
            tracing::debug!("no state of the cluster: {}", why.message);
        }
        sleep(LOOK_PAUSE).await;
        tokio::select! {
            _ = timeout(LOOK_EVERY - LOOK_PAUSE, changes.changed()) => {}
            () = shared.wanted.notified() => {}
        }
    }
}
