//! `eyas stop`: stops a cluster.

use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::{detach, show};

/// The processes of a cluster must end within this time.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// Stops the cluster. Returns when the dispatcher and all processes of the cluster on this machine
/// have ended.
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
            "the cluster was told to stop, but some of its processes have not ended within {} s; \
             see the log {}",
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
