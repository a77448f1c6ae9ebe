//! Options of processes that listen: the network interface and the ports.

use std::net::IpAddr;

use clap::Args;
use eyas_session::{InterfaceError, PortRange, interface_address};

/// Where a process listens.
#[derive(Args, Clone)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// Network interface whose address other processes use to reach this one, such as ib0
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Listen on free ports of this range, such as 5000-5100, which a firewall lets through
    /// [default: any free ports]
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<PortRange>,
}

impl NetworkArgs {
    /// The address of the interface, if one is named.
    pub fn address(&self) -> Result<Option<IpAddr>, InterfaceError> {
        self.interface.as_deref().map(interface_address).transpose()
    }
}
