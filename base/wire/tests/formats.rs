//! The formats of all messages of sessions with the dispatcher, and of the greeting of every
//! session.

use std::net::SocketAddr;
use std::path::Path;

use eyas_formats::Formats;
use eyas_types::access::KeyRole;
use eyas_types::outcome::FailureKind;
use eyas_types::task::{InputFrom, PartOfFile, Program, WorkingFolder};
use eyas_types::template::{InputListEnd, PathPart, TemplatePart};
use eyas_types::{
    CopyNews, DeliverWhen, Distribution, NameChange, Origin, ProvisioningPolicy, Status, Version,
};
use eyas_wire::client::{FromClient, KeysRequest, NamesQuery, ToClient};
use eyas_wire::executor::{FromExecutor, ToExecutor};
use eyas_wire::pool::{PoolsRequest, RequestFile};
use eyas_wire::printed::Printed;
use eyas_wire::trust::TrustRefusal;
use eyas_wire::view::{JobState, KeyState};
use eyas_wire::{DataMode, Hello, PROTOCOL_VERSION, Role};

#[test]
fn messages_have_the_formats_that_were_recorded() {
    Formats::default()
        .with::<Hello>()
        .with::<Role>()
        .with::<DataMode>()
        .with::<TrustRefusal>()
        .with::<FromClient>()
        .with::<ToClient>()
        .with::<FromExecutor>()
        .with::<ToExecutor>()
        .with::<KeysRequest>()
        .with::<NamesQuery>()
        .with::<CopyNews>()
        .with::<NameChange>()
        .with::<PoolsRequest>()
        .with::<Printed>()
        .with::<JobState>()
        .with::<KeyState>()
        .with::<Distribution>()
        .with::<InputFrom>()
        .with::<Origin>()
        .with::<PartOfFile>()
        .with::<Program>()
        .with::<ProvisioningPolicy>()
        .with::<SocketAddr>()
        .with::<Status>()
        .with::<TemplatePart>()
        .with::<Version>()
        .with::<FailureKind>()
        .with::<DeliverWhen>()
        .with::<InputListEnd>()
        .with::<KeyRole>()
        .with::<PathPart>()
        .with::<RequestFile>()
        .with::<WorkingFolder>()
        .assert_recorded(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("formats.txt"),
            PROTOCOL_VERSION,
        );
}
