//! The formats of all messages between clients and nodes of the file system.

use std::net::SocketAddr;
use std::path::Path;

use eyas_blocks::{Alpha, BlockPolicy, Effect, Event, Record, Sizes, TaskAnswer};
use eyas_files::protocol::{
    ChunkPresence, CutFailure, FilesOrigin, NodeRequest, NodeResponse, RequestBody, ResponseBody,
    RunReply, RunRequest, SmallContent, StoreFailure,
};
use eyas_formats::Formats;
use eyas_ring::{FileAnswer, FileOperation, ListDepth, Refusal, Replaceable};
use eyas_types::access::FilesAccess;
use eyas_types::dfs::FileKind;
use eyas_wire::PROTOCOL_VERSION;

#[test]
fn messages_have_the_formats_that_were_recorded() {
    Formats::default()
        .with::<NodeRequest>()
        .with::<NodeResponse>()
        .with::<RequestBody>()
        .with::<ResponseBody>()
        .with::<RunRequest>()
        .with::<RunReply>()
        .with::<FileOperation>()
        .with::<Result<FileAnswer, Refusal>>()
        .with::<FileAnswer>()
        .with::<Refusal>()
        .with::<Event>()
        .with::<Effect>()
        .with::<FilesOrigin>()
        .with::<FilesAccess>()
        .with::<ChunkPresence>()
        .with::<CutFailure>()
        .with::<StoreFailure>()
        .with::<SmallContent>()
        .with::<ListDepth>()
        .with::<Replaceable>()
        .with::<Record>()
        .with::<TaskAnswer>()
        .with::<FileKind>()
        .with::<BlockPolicy>()
        .with::<Alpha>()
        .with::<Sizes>()
        .with::<SocketAddr>()
        .assert_recorded(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("formats.txt"),
            PROTOCOL_VERSION,
        );
}
