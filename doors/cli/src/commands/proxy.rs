//! `eyas proxy`: passes on connections between nodes that cannot reach each other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use eyas_client::Client;
use eyas_client::messages::{FromClient, KeysRequest, ToClient};
use eyas_client::types::access::KeyRole;
use eyas_proxy::{Targets, TargetsTeller, serve};
use eyas_session::private::PrivateFolder;
use eyas_session::{Access, BindAddress, Proxy, listen};
use eyas_wire::trust::SecretText;
use tokio::net::{TcpListener, lookup_host};
use tokio::time::{sleep, timeout};

use crate::connect::{connect_to, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::interrupted;
use crate::network_args::NetworkArgs;
use crate::own_process::{READY, host_name};
use crate::print::{out, say};

/// Time between two requests for the addresses of executors.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two such requests, when a process asks for an address that is not known.
const ASK_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct ProxyArgs {
    /// Write the access file for executors behind the proxy to FILE, with mode 0600; it holds a
    /// secret key
    #[arg(long, short = 'o', value_name = "FILE")]
    output: PathBuf,
    /// Port to listen on [default: the port that FILE names, if it exists, or any free port]
    #[arg(long, value_name = "PORT", conflicts_with = "ports")]
    port: Option<u16>,
    /// Host name or address at which executors behind the proxy reach it [default: the address of
    /// --interface, else this host's name]
    #[arg(long, value_name = "HOST", conflicts_with = "interface")]
    inside: Option<String>,
    /// Host name or address at which other executors and clients reach the proxy [default: as
    /// --inside]
    #[arg(long, value_name = "HOST")]
    outside: Option<String>,
    #[command(flatten)]
    network: NetworkArgs,
}

pub(crate) async fn proxy(args: ProxyArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    eyas_executor::raise_descriptor_limit();
    let access = global.cluster()?.access()?;
    let mut client = connect_to(&access, global).await?;
    let inside = match args.network.address()? {
        Some(address) => address.to_string(),
        None => args.inside.unwrap_or_else(host_name),
    };
    let outside = args.outside.unwrap_or_else(|| inside.clone());
    let place = BindAddress { ip: Ipv4Addr::UNSPECIFIED.into(), ports: args.network.ports };
    // Executors that have an earlier access file of this proxy come back to its port.
    let port_before = Access::load(&args.output)
        .ok()
        .and_then(|access| access.proxy())
        .map(|proxy| proxy.inside.port());
    let bound = match args.port.or(port_before.filter(|_| args.network.ports.is_none())) {
        Some(port) => listen(SocketAddr::new(place.ip, port)),
        None => place.tcp(),
    };
    let bound = bound.map_err(|error| format!("the proxy cannot listen: {error}"))?;
    bound.set_nonblocking(true)?;
    let listener = TcpListener::from_std(bound)?;
    let port = listener.local_addr()?.port();
    let addresses =
        Proxy { inside: resolved(&inside, port).await?, outside: resolved(&outside, port).await? };
    let ToClient::Access(SecretText(text)) =
        client.ask(FromClient::Keys(KeysRequest::Issue { role: KeyRole::Executor })).await?
    else {
        return unexpected();
    };
    let (folder, name) = match (args.output.parent(), args.output.file_name()) {
        (Some(folder), Some(name)) => (folder, name),
        _ => return Err(format!("{} is not the name of a file", args.output.display()).into()),
    };
    PrivateFolder::make(folder)?.write(name, (text + &addresses.section()).as_bytes())?;
    let (targets, teller) = Targets::new(&access.dispatcher, addresses);
    say!(
        "the proxy listens on port {port}; executors behind it use the access file {}",
        args.output.display()
    );
    out!("{READY}")?;
    tokio::select! {
        () = serve(listener, targets) => {}
        () = keep_told(teller, client, &access) => {}
        () = interrupted(false) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The address of a host. IPv4 comes first, because the proxy listens on IPv4 addresses.
async fn resolved(host: &str, port: u16) -> Result<SocketAddr, CliError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let unknown = |error: io::Error| format!("cannot find the address of {host}: {error}");
    let found: Vec<_> = lookup_host((host, port)).await.map_err(unknown)?.collect();
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    Ok(*best.ok_or_else(|| format!("{host} has no address"))?)
}

/// Asks the dispatcher for the addresses of executors, again and again. If the dispatcher is away,
/// the addresses that are known stay.
async fn keep_told(mut teller: TargetsTeller, client: Client, access: &Access) {
    let mut client = Some(client);
    loop {
        if client.is_none() {
            client = Client::connect(access).await.ok();
        }
        if let Some(connected) = &mut client {
            match connected.ask(FromClient::Addresses).await {
                Ok(ToClient::Addresses(addresses)) => teller.tell(addresses),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("the dispatcher does not answer: {error}");
                    client = None;
                }
            }
        }
        // Bursts of connections share one request.
        sleep(ASK_PAUSE).await;
        let _ = timeout(ASK_EVERY, teller.wanted()).await;
    }
}
