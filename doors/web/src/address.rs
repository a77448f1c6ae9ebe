//! Where the process listens, and the names under which browsers reach it.
//!
//! A page of another site can have its own name resolve to 127.0.0.1 (DNS rebinding), and the
//! browser then takes the process for a part of that site. The header `Host` has the other site's
//! name, so only known names are answered, also on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use axum::http::Uri;

/// Where the process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebAddress {
    /// A TCP address; port 0 stands for any free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why an address or a name cannot be used, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebAddressError {
    /// Not an address.
    Address(String),
    /// Not a name of a host.
    Name(String),
    /// Browsers on other machines would reach the process, and no name is allowed.
    Open(SocketAddr),
    /// Not the beginning of paths.
    Base(String),
    /// The server has paths of its own that begin so.
    OwnPath(String),
}

impl std::error::Error for WebAddressError {}

impl std::fmt::Display for WebAddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WebAddressError::Address(text) => write!(
                f,
                "`{text}` is not an address to listen on: write ADDRESS:PORT, such as \
                 127.0.0.1:8080, or unix:PATH"
            ),
            WebAddressError::Name(text) => write!(
                f,
                "`{text}` is not the name of a host: write it without a scheme and port, such as \
                 head.example.org"
            ),
            WebAddressError::Open(address) => write!(
                f,
                "{address} can be reached from other machines: say with --allow-host NAME under \
                 which name browsers reach it, or listen on 127.0.0.1"
            ),
            WebAddressError::Base(text) => write!(
                f,
                "`{text}` cannot be the beginning of paths: write /NAME or /NAME/NAME of letters, \
                 digits and -._~, such as /eyas"
            ),
            WebAddressError::OwnPath(text) => write!(
                f,
                "`{text}` cannot be the beginning of paths, because paths of the server itself \
                 begin so: write another name first, such as /eyas{text}"
            ),
        }
    }
}

impl Default for WebAddress {
    fn default() -> Self {
        WebAddress::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
    }
}

impl FromStr for WebAddress {
    type Err = WebAddressError;

    fn from_str(text: &str) -> Result<Self, WebAddressError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(WebAddress::Unix(path.into()));
        }
        let address = text.replace("localhost:", "127.0.0.1:").parse();
        address.map(WebAddress::Tcp).map_err(|_| WebAddressError::Address(text.into()))
    }
}

/// First parts of the server's own paths. If such a path began with the beginning of paths, nothing
/// would tell whether a proxy has taken that away already.
const OWN_FIRST_PARTS: [&str; 8] =
    ["api", "healthz", "jobs", "metrics", "monitoring", "nodes", "page", "readyz"];

/// The beginning of the paths at which browsers reach the process behind a reverse proxy, such as
/// `/eyas`; empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// The text, without a slash at its end.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes the beginning away from a URI that has it. Some reverse proxies pass it on, others
    /// have taken it away.
    pub(crate) fn take_from(&self, uri: &mut Uri) {
        let rest = uri.path().strip_prefix(&*self.0);
        let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            return;
        };
        let path = if rest.is_empty() { "/" } else { rest };
        let path = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = path.parse().ok();
        if let Ok(changed) = Uri::from_parts(parts) {
            *uri = changed;
        }
    }
}

impl FromStr for BasePath {
    type Err = WebAddressError;

    fn from_str(text: &str) -> Result<Self, WebAddressError> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let is_part = |part: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
            !part.is_empty() && part != "." && part != ".." && part.chars().all(is_plain)
        };
        let mut parts = path.split('/');
        let is_path = parts.next() == Some("") && parts.all(is_part);
        if !is_path || !text.starts_with('/') {
            return Err(WebAddressError::Base(text.to_owned()));
        }
        let first = path.split('/').nth(1).unwrap_or_default();
        match OWN_FIRST_PARTS.contains(&first) {
            true => Err(WebAddressError::OwnPath(path.to_owned())),
            false => Ok(BasePath(path.to_owned())),
        }
    }
}

/// Names under which browsers reach the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// Reads the names of `--allow-host`.
    ///
    /// # Errors
    /// If one has characters that no name of a host has.
    pub fn read(names: &[String]) -> Result<Self, WebAddressError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_name = |name: &str| {
            let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
            is_address || !name.is_empty() && name.chars().all(is_part)
        };
        match names.iter().find(|name| !is_name(name)) {
            Some(wrong) => Err(WebAddressError::Name(wrong.clone())),
            None => Ok(HostNames(names.iter().map(|name| name.to_ascii_lowercase()).collect())),
        }
    }

    /// Refuses an address that other machines reach, if no name is allowed.
    ///
    /// # Errors
    /// See [`WebAddressError::Open`].
    pub fn check(&self, address: &WebAddress) -> Result<(), WebAddressError> {
        match address {
            WebAddress::Tcp(tcp) if !tcp.ip().is_loopback() && self.0.is_empty() => {
                Err(WebAddressError::Open(*tcp))
            }
            _ => Ok(()),
        }
    }

    /// Where a person opens this process, which listens on `own`: the address itself on loopback,
    /// else the first allowed name.
    pub fn place_of(&self, own: SocketAddr) -> String {
        match self.0.first() {
            Some(name) if !own.ip().is_loopback() => match name.parse::<Ipv6Addr>() {
                Ok(_) => format!("[{name}]:{}", own.port()),
                Err(_) => format!("{name}:{}", own.port()),
            },
            _ => own.to_string(),
        }
    }

    /// Whether the header `Host` of a request names this process, which listens on `own`. Under an
    /// allowed name, the port may be that of a proxy.
    pub fn are_of(&self, host: &str, own: SocketAddr) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
            _ => (host, Some(80)),
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if self.0.contains(&name) || self.0.iter().any(|ip| format!("[{ip}]") == name) {
            return true;
        }
        let is_own = name == "localhost" || name == "127.0.0.1" || name == "[::1]";
        own.ip().is_loopback() && is_own && port == Some(own.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_read() {
        let tcp = |text: &str| Ok(WebAddress::Tcp(text.parse().unwrap()));
        assert_eq!("127.0.0.1:80".parse(), tcp("127.0.0.1:80"));
        assert_eq!("localhost:80".parse(), tcp("127.0.0.1:80"));
        assert_eq!("[::1]:0".parse(), tcp("[::1]:0"));
        assert_eq!("unix:/run/e".parse(), Ok(WebAddress::Unix("/run/e".into())));
        for wrong in ["", "80", "unix:", "host:80", "127.0.0.1"] {
            assert!(wrong.parse::<WebAddress>().is_err(), "{wrong}");
        }
        for wrong in ["", "http://a", "a:80", "a/b", "ä"] {
            assert!(HostNames::read(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn beginnings_of_paths_are_read() {
        let read = |text: &str| text.parse().map(|base: BasePath| base.0);
        assert_eq!(read("/eyas/"), Ok("/eyas".into()));
        assert_eq!(read("/site/eyas-1"), Ok("/site/eyas-1".into()));
        assert_eq!(read("/"), Ok(String::new()));
        for wrong in ["", "eyas", "//evil", "/a//b", "/a/../b", "/a?b", "/{job}", "/a b", "/*"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("/api"), Err(WebAddressError::OwnPath("/api".into())));
        let why = read("/jobs/lab/").unwrap_err().to_string();
        assert!(why.contains("such as /eyas/jobs/lab"), "{why}");
        assert_eq!(read("/lab/jobs"), Ok("/lab/jobs".into()));
        let taken = |text: &str| {
            let mut uri: Uri = text.parse().unwrap();
            "/eyas".parse::<BasePath>().unwrap().take_from(&mut uri);
            uri.to_string()
        };
        assert_eq!(taken("/eyas/jobs/1?state=failed"), "/jobs/1?state=failed");
        assert_eq!(["/eyas", "/eyas/", "/eyas?a=1"].map(taken), ["/", "/", "/?a=1"]);
        assert_eq!(["/eyasx", "/jobs", "/"].map(taken), ["/eyasx", "/jobs", "/"]);
    }

    #[test]
    fn only_known_names_of_hosts_are_answered() {
        let own = "127.0.0.1:8080".parse().unwrap();
        let none = HostNames::default();
        for (host, is_own) in [
            ("127.0.0.1:8080", true),
            ("localhost:8080", true),
            ("LOCALHOST.:8080", true),
            ("[::1]:8080", true),
            ("127.0.0.1", false),
            ("127.0.0.1:8081", false),
            ("evil.example:8080", false),
            ("localhost.evil.example:8080", false),
            ("", false),
        ] {
            assert_eq!(none.are_of(host, own), is_own, "{host}");
        }
        let named = HostNames::read(&["Head.example".into(), "::1".into()]).unwrap();
        let open = "0.0.0.0:8080".parse().unwrap();
        assert!(named.are_of("head.example", open) && named.are_of("head.example:443", open));
        assert!(named.are_of("[::1]:1", open) && !named.are_of("localhost:8080", open));
        assert_eq!(named.place_of(open), "head.example:8080");
        assert_eq!(named.place_of(own), "127.0.0.1:8080");
        assert!(none.check(&WebAddress::Tcp(open)).is_err());
        assert!(named.check(&WebAddress::Tcp(open)).is_ok());
        assert!(none.check(&WebAddress::default()).is_ok());
    }
}
