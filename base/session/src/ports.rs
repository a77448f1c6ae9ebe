//! Where a process listens: the address of a network interface, and ports that a firewall lets
//! through.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::str::FromStr;

use nix::ifaddrs::getifaddrs;
use thiserror::Error;

/// Connections that the kernel queues until they are accepted. The standard library asks for 128,
/// which a burst fills.
const BACKLOG: i32 = 1024;

/// Ports that a process may listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// A text is not a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a range of ports, such as 5000-5100")]
pub struct PortRangeError(String);

/// An interface has no address to listen on.
#[derive(Debug, Error)]
pub enum InterfaceError {
    /// The system's list cannot be read.
    #[error("cannot list the network interfaces: {0}")]
    List(io::Error),
    /// There is no interface of this name.
    #[error("there is no network interface `{name}` on this host; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all interfaces with an address.
        known: String,
    },
}

/// Addresses and ports on which a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// The ports; any free port without a range.
    pub ports: Option<PortRange>,
}

/// Where the kernel says which ports it gives to connections: the first and the last.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below it are ports of well-known services.
const LOWEST_LASTING: u16 = 20_000;

impl PortRange {
    /// Ports that the kernel gives to no connection; `None` if it does not leave any of the higher
    /// ones.
    pub fn below_ephemeral() -> Option<Self> {
        let text = fs::read_to_string(EPHEMERAL).ok()?;
        let first: u16 = text.split_whitespace().next()?.parse().ok()?;
        let last = first.checked_sub(1).filter(|last| *last >= LOWEST_LASTING)?;
        Some(PortRange { first: LOWEST_LASTING, last })
    }

    fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let wrong = || PortRangeError(text.to_owned());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port =
            |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let range = PortRange { first: port(first)?, last: port(last)? };
        if range.first <= range.last { Ok(range) } else { Err(wrong()) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl BindAddress {
    /// Calls `bind` with one address after the other until one is free.
    ///
    /// # Errors
    /// The error of `bind`; `AddrInUse` if no port of the range is free.
    pub fn bind<T>(self, mut bind: impl FnMut(SocketAddr) -> io::Result<T>) -> io::Result<T> {
        let Some(ports) = self.ports else { return bind(SocketAddr::new(self.ip, 0)) };
        // Processes that start at the same time begin with different ports.
        let all = ports.ports();
        let turn = std::process::id() as usize % all.len();
        for port in all.clone().skip(turn).chain(all.take(turn)) {
            match bind(SocketAddr::new(self.ip, port)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        let why = format!(
            "no port of {ports} is free on {}: allow more ports with --ports FIRST-LAST",
            self.ip
        );
        Err(io::Error::new(io::ErrorKind::AddrInUse, why))
    }

    /// Listens on a TCP port.
    ///
    /// # Errors
    /// As [`bind`](BindAddress::bind).
    pub fn tcp(self) -> io::Result<TcpListener> {
        self.bind(listen)
    }
}

/// Listens on a TCP port.
///
/// # Errors
/// If the system refuses.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The address of a network interface of this host: its first IPv4 address, else its first IPv6
/// address that is valid beyond the link.
///
/// # Errors
/// If there is no such interface, or it has no such address.
pub fn interface_address(name: &str) -> Result<IpAddr, InterfaceError> {
    let listed = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
    let all: Vec<(String, IpAddr)> = listed
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) if !v6.ip().is_unicast_link_local() => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            Some((interface.interface_name, ip))
        })
        .collect();
    let own = || all.iter().filter(|(interface, _)| interface == name).map(|(_, ip)| *ip);
    own().find(IpAddr::is_ipv4).or_else(|| own().next()).ok_or_else(|| {
        let mut known: Vec<_> = all.iter().map(|(interface, _)| interface.as_str()).collect();
        known.dedup();
        InterfaceError::Unknown { name: name.to_owned(), known: known.join(", ") }
    })
}

/// The address of this host in its network: the one from which it sends to other networks, else the
/// first that is not a loopback address, else that. Nothing is sent.
pub fn own_address() -> IpAddr {
    // An address for documentation, to which the default route leads.
    const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let routed = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(ELSEWHERE)?;
        Ok(socket.local_addr()?.ip())
    };
    let first = || {
        let mut addresses = getifaddrs().ok()?.filter_map(|interface| interface.address);
        addresses.find_map(|address| {
            Some(IpAddr::V4(address.as_sockaddr_in()?.ip())).filter(|ip| !ip.is_loopback())
        })
    };
    routed().ok().or_else(first).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn ranges_of_ports_are_read() {
        assert_eq!("5000-5100".parse(), Ok(PortRange { first: 5000, last: 5100 }));
        assert_eq!("7".parse(), Ok(PortRange { first: 7, last: 7 }));
        for wrong in ["", "0-7", "9-8", "1-70000", "a-b", "1-2-3"] {
            assert_eq!(wrong.parse::<PortRange>(), Err(PortRangeError(wrong.into())));
        }
    }

    #[test]
    fn no_connection_has_a_lasting_port() {
        let Some(lasting) = PortRange::below_ephemeral() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = connection.local_addr().unwrap().port();
        assert!(
            lasting.first <= lasting.last && !lasting.ports().contains(&port),
            "{lasting} has {port}"
        );
    }

    #[test]
    fn listeners_share_a_range_until_it_is_full() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let place = BindAddress {
            ip: [127, 0, 0, 1].into(),
            ports: Some(PortRange { first: port, last: port }),
        };
        let full = place.tcp().unwrap_err();
        assert!(full.to_string().contains(&format!("no port of {port}-{port} is free")), "{full}");
        drop(free);
        assert_eq!(place.tcp().unwrap().local_addr().unwrap().port(), port);
    }

    #[test]
    fn the_loopback_interface_has_an_address() {
        assert_eq!(interface_address("lo").unwrap(), IpAddr::from([127, 0, 0, 1]));
        let unknown = interface_address("nope0").unwrap_err().to_string();
        assert!(unknown.contains("`nope0`") && unknown.contains("lo"), "{unknown}");
    }
}
