//! `eyas web`: serves the HTTP API of a cluster, and its page; and makes tokens for it.

use std::time::Duration;

use clap::{Args, Subcommand};
use eyas_client::types::units::{format_duration_us, parse_duration_us};
use eyas_session::raise_descriptor_limit;
use eyas_web::{BasePath, HostNames, WebAddress, WebPlace, WebScope, WebServer};
use eyas_web::{WebTokenView, WebTokens};

use crate::clock::unix_ms;
use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::Signals;
use crate::print::{out, say};
use crate::show::{self, Table};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WebArgs {
    #[command(subcommand)]
    command: Option<WebCommand>,
    /// Listen on ADDRESS:PORT, or on a Unix socket, which only this user can open and which needs
    /// no token [default: 127.0.0.1 with any free port]
    #[arg(long, value_name = "ADDRESS|unix:PATH")]
    listen: Option<WebAddress>,
    /// Answer requests that reach the server under this name; may be repeated. Needed to listen on
    /// other addresses than loopback, and behind a reverse proxy
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Answer below this path, such as /eyas, at which a reverse proxy shows the server
    #[arg(long, value_name = "PATH")]
    base_path: Option<BasePath>,
}

#[derive(Subcommand)]
pub(crate) enum WebCommand {
    /// Make, list or revoke tokens for programs and other people
    #[command(subcommand)]
    Token(WebTokenCommand),
}

#[derive(Subcommand)]
pub(crate) enum WebTokenCommand {
    /// Make a token, and print it once; the cluster's folder keeps only its hash
    Create {
        /// What the token permits: read; submit, which also submits, cancels and retries jobs; or
        /// admin, which also forgets jobs, stops executors and pauses pools
        #[arg(long, value_name = "SCOPE", default_value = "read")]
        scope: WebScope,
        /// Refuse the token after this time
        #[arg(
            long,
            value_name = "DURATION",
            default_value = "30d",
            value_parser = parse_duration_us
        )]
        expires: u64,
        /// A name, by which the list shows for whom the token is
        #[arg(default_value = "")]
        name: String,
    },
    /// List tokens, without their secrets
    List,
    /// Revoke a token; streams that were opened with it end
    Revoke {
        /// The token's id, as `eyas web token list` shows it
        id: String,
    },
}

pub(crate) async fn web(args: WebArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    match args.command {
        Some(WebCommand::Token(command)) => token(command, global),
        None => serve(args, global).await,
    }
}

fn token(command: WebTokenCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let cluster = global.cluster()?;
    let tokens = WebTokens::of(&cluster);
    match command {
        WebTokenCommand::Create { scope, expires, name } => {
            // A mistyped name of a cluster would get a folder with a token that no server reads.
            cluster.access()?;
            let (view, text) = tokens.create(&name, scope, Duration::from_micros(expires))?;
            match global.json {
                true => show::json("token", &text)?,
                false => out!("{text}")?,
            }
            say!(
                "token {} is accepted for {}; it is not shown again. Send it as \
                 `Authorization: Bearer TOKEN`, or open the URL of `eyas web` with ?token=TOKEN",
                view.id,
                format_duration_us(expires)
            );
        }
        WebTokenCommand::List => print(&tokens.list()?, global)?,
        WebTokenCommand::Revoke { id } => {
            let revoked = tokens.revoke(&id)?;
            match global.json {
                true => show::json("tokens", &[revoked])?,
                false => say!("token {id} is no longer accepted"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(tokens: &[WebTokenView], global: &GlobalArgs) -> Result<(), CliError> {
    if global.json {
        return show::json("tokens", tokens);
    }
    let now_ms = unix_ms();
    let mut table = Table::new(&["TOKEN", "SCOPE", "AGE", "EXPIRES IN", "NAME"]);
    for token in tokens {
        let age = format_duration_us(now_ms.saturating_sub(token.made_unix_ms) * 1000);
        let left = match token.expires_unix_ms.checked_sub(now_ms) {
            Some(left_ms) => format_duration_us(left_ms.saturating_mul(1000)),
            None => "expired".into(),
        };
        let scope = token.scope.name().into();
        table.row(vec![token.id.clone(), scope, age, left, token.name.clone()]);
    }
    table.print()
}

async fn serve(args: WebArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
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
    let place = WebPlace {
        address: args.listen.unwrap_or_default(),
        names,
        base: args.base_path.unwrap_or_default(),
    };
    let server = WebServer::listen(cluster, place)?;
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
