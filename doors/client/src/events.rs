//! What happens in a cluster, from a dispatcher that may be lost and come back.

use std::time::Duration;

use eyas_wire::client::{EventPosition, EventsPart, FromClient, ToClient};

use crate::client::{Client, can_come_back};
use crate::client_error::ClientError;

/// The events of a cluster, without an end.
pub struct Events {
    client: Client,
    position: Option<EventPosition>,
    patience: Duration,
    is_asked: bool,
}

impl Events {
    /// The events after a position; without one, all that the dispatcher remembers. A dispatcher
    /// that is lost is dialled again for up to `patience` each time, and goes on after the last
    /// event.
    pub fn of(client: Client, after: Option<EventPosition>, patience: Duration) -> Self {
        Events { client, position: after, patience, is_asked: false }
    }

    /// The next events. The first part comes at once, also if it is empty.
    ///
    /// # Errors
    /// If the key does not permit it, or the dispatcher does not answer within `patience`.
    pub async fn next(&mut self) -> Result<EventsPart, ClientError> {
        loop {
            match self.read().await {
                Err(ClientError::Session(why))
                    if can_come_back(&why) && !self.patience.is_zero() =>
                {
                    self.is_asked = false;
                    self.client.redial(self.patience).await?;
                }
                read => return read,
            }
        }
    }

    async fn read(&mut self) -> Result<EventsPart, ClientError> {
        if !self.is_asked {
            self.client.tell(FromClient::Events { after: self.position }).await?;
            self.is_asked = true;
        }
        let ToClient::Events(part) = self.client.next().await? else {
            return Err(ClientError::Unexpected);
        };
        self.position = Some(part.position);
        Ok(part)
    }
}
