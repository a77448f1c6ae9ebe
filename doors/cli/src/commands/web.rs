//! `eyas web`: serves the HTTP API of a cluster, and its page.

use clap::Args;
use eyas_session::raise_descriptor_limit;
use eyas_web::{HostNames, WebAddress, WebServer};

use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::Signals;
use crate::print::{out, say};
use crate::show;

#[derive(Args)]
pub(crate) struct WebArgs {
    /// Listen on ADDRESS:PORT, or on a Unix socket, which only this user can open and which needs
    /// no token [default: 127.0.0.1 with any free port]
    #[arg(long, value_name = "ADDRESS|unix:PATH")]
    listen: Option<WebAddress>,
    /// Answer requests that reach the server under this name; may be repeated. Needed to listen on
    /// other addresses than loopback, and behind a reverse proxy
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
}

pub(crate) async fn web(args: WebArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    // Each open page has a connection.
    raise_descriptor_limit();
    let mut signals = Signals::listen();
    let cluster = global.cluster()?;
    cluster.access()?;
    // A server that is started before its cluster waits for it.
    if let Err(why) = connect(global).await {
        say!("{why}. Until the cluster runs, requests are answered with 503");
    }
    let names = HostNames::read(&args.allow_host)?;
    let server = WebServer::listen(cluster, &args.listen.unwrap_or_default(), names)?;
    if server.address().is_some_and(|address| !address.ip().is_loopback()) {
        say!(
            "connections from other machines are not encrypted, and a program that sees the \
             traffic can use the token. Put a reverse proxy with TLS in front, or use `ssh -L`"
        );
    }
    match global.json {
        true => show::json("url", &server.url())?,
        false => out!("eyas web: {}", server.url())?,
    }
    tokio::select! {
        () = server.serve() => {}
        () = signals.next() => {}
    }
    Ok(ExitCode::SUCCESS)
}
