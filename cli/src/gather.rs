//! Waiting until enough nodes of the cluster's file system have joined.

use eyas_client::files::{DfsClient, Gathering};
use eyas_client::types::units::format_count;

use crate::error::CliError;
use crate::print::say;

/// Waits until this many nodes have joined, or all that exist, and says so if there is something to wait for.
pub(crate) async fn gather(files: &DfsClient, nodes: usize) -> Result<(), CliError> {
    let say = |Gathering { joined, wanted }| {
        let wanted = format_count(wanted as u64, "node");
        say!("waiting until {wanted} of the file system have joined; {joined} so far");
    };
    let gathering = files.gather(nodes, say).await?;
    if !gathering.is_enough() {
        let Gathering { joined, wanted } = gathering;
        say!(
            "only {joined} of {} joined in time: files written now have fewer replicas until the others join",
            format_count(wanted as u64, "node")
        );
    }
    Ok(())
}
