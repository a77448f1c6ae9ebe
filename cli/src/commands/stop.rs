//! `eyas stop`: ends a cluster.

use std::process::ExitCode;
use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::{detach, show};

/// How long the processes of a cluster may take to end.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// Returns once the dispatcher has ended, and all processes of the cluster on this machine.
pub(crate) async fn stop(global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    let ToClient::Stopping { executors, processes } = client.ask(FromClient::Stop).await? else {
        return unexpected();
    };
    let ended = async {
        client.closed().await;
        detach::wait_until_ended(&processes).await;
    };
    if tokio::time::timeout(STOP_DEADLINE, ended).await.is_err() {
        let log = global.cluster()?.log_path();
        return Err(format!(
            "the cluster was told to stop, but some of its processes have not ended within {} s; see its log, {}",
            STOP_DEADLINE.as_secs(),
            log.display()
        )
        .into());
    }
    if global.json {
        show::json("executors stopped", &executors)?;
    } else {
        say!("stopped {}", format_count(executors, "executor"));
    }
    Ok(ExitCode::SUCCESS)
}
