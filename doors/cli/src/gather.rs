//! Waiting for the nodes of the cluster's file system.

use eyas_client::files::{DfsClient, JoinProgress};
use eyas_client::types::units::format_count;

use crate::error::CliError;
use crate::print::say;

/// Waits until this number of nodes have joined the file system, or all nodes that exist. Prints a
/// message if it has to wait.
pub(crate) async fn gather(files: &DfsClient, nodes: usize) -> Result<(), CliError> {
    let say = |JoinProgress { joined, wanted }| {
        let wanted = format_count(wanted as u64, "node");
        say!("waiting until {wanted} have joined the file system; {joined} so far");
    };
    let gathering = files.gather(nodes, say).await?;
    if !gathering.is_enough() {
        let JoinProgress { joined, wanted } = gathering;
        say!(
            "only {joined} of {} joined in time: files written now have fewer replicas until the \
             others join",
            format_count(wanted as u64, "node")
        );
    }
    Ok(())
}
