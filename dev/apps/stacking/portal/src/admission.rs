//! The checks that each request passes before it is handled, in this order:
//!
//! 1. **Host**: the name is one under which the portal is reached. Else a page of another site,
//!    whose name resolves to this machine, could read everything.
//! 2. **Account**: `Authorization: Bearer TOKEN`, `Basic` with a token as its password, or the
//!    cookie of a session.
//! 3. **Origin**: a request with an effect comes from a page of the portal or from a program. A
//!    cookie alone does not show that, because ports do not count for cookies.
//!
//! Each answer has headers by which a browser runs no script but that of the portal.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::time::timeout;

use crate::accounts::{Account, Role};
use crate::html::error_page;
use crate::portal::Portal;
use crate::problem::Problem;
use crate::secrets::unix_ms;

/// A request is answered within this time, with its body.
const REQUEST_DEADLINE: Duration = Duration::from_secs(120);
/// Paths that need no account.
const OPEN_PATHS: [&str; 6] =
    ["/availability", "/capabilities", "/healthz", "/portal.js", "/signin", "/style.css"];
/// The first parts of paths for programs. All others are pages.
const PROGRAM_PARTS: [&str; 5] = ["async", "availability", "capabilities", "healthz", "links"];
/// The policy that browsers apply to pages of the portal: they load nothing from elsewhere.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";

/// The facts with which requests are checked.
pub struct Admission {
    pub portal: Arc<Portal>,
    pub own: SocketAddr,
    /// Names of hosts under which the portal is reached, in addition to those of loopback.
    pub names: Vec<String>,
}

/// By whom a request is, for handlers.
#[derive(Clone)]
pub struct Caller {
    pub account: Account,
    /// The rights of the request: at most those of the account.
    pub role: Role,
    /// The session, if it is a browser's.
    pub session: Option<String>,
}

impl Caller {
    /// Refuses a caller without a right.
    pub fn must_be(&self, role: Role) -> Result<(), Problem> {
        match self.role >= role {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "this needs the role {}, and the account or token has the role {}",
                role.name(),
                self.role.name()
            ))),
        }
    }
}

/// Where a request came to: the URL of the portal, as its reader sees it.
#[derive(Clone)]
pub struct PortalUrl {
    /// Scheme and host, such as `https://stack.example.org`.
    pub text: String,
    pub is_secure: bool,
    pub port: u16,
}

/// Lets a request in, or refuses it.
pub async fn admit(
    State(admission): State<Arc<Admission>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let is_page = is_page(&path);
    let checked = check(&admission, request.method(), request.uri(), request.headers());
    let mut account = None;
    let answered = match checked {
        Ok((url, caller)) => {
            account = caller.as_ref().map(|caller| caller.account.name.clone());
            request.extensions_mut().insert(url);
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            match timeout(REQUEST_DEADLINE, next.run(request)).await {
                Ok(response) => response,
                Err(_) => {
                    Problem::late("the request took too long: send less at once").into_response()
                }
            }
        }
        Err(why) if is_page && why.status == StatusCode::UNAUTHORIZED => {
            redirect("/signin").into_response()
        }
        Err(why) => why.into_response(),
    };
    let answered = if is_page { as_page(answered, account.as_deref()).await } else { answered };
    with_headers(answered, &path)
}

/// A redirection after which a browser or program asks with GET.
pub fn redirect(to: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn is_page(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    !PROGRAM_PARTS.contains(&first)
}

/// Errors of pages are pages.
async fn as_page(response: Response, account: Option<&str>) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text {
        return response;
    }
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap_or_default();
    let words = String::from_utf8_lossy(&bytes).trim().to_owned();
    let words = match (words.is_empty(), status) {
        (true, StatusCode::NOT_FOUND) => "There is no such page.".to_owned(),
        (true, _) => "The request cannot be understood.".to_owned(),
        _ => words,
    };
    let mut page = error_page(&words, account).into_response();
    *page.status_mut() = status;
    page
}

fn check(
    admission: &Admission,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(PortalUrl, Option<Caller>), Problem> {
    let host = text(headers, &header::HOST).unwrap_or_default();
    if !is_own_name(admission, host) {
        return Err(Problem::forbidden(
            "the portal is not reached under this name: use the URL that it has printed, or allow \
             the name with --allow-host",
        ));
    }
    // A client that lies about this harms nothing but its own links and cookie.
    let is_secure = text(headers, &HeaderName::from_static("x-forwarded-proto")) == Some("https");
    let scheme = if is_secure { "https" } else { "http" };
    let port = admission.own.port();
    let url = PortalUrl { text: format!("{scheme}://{host}"), is_secure, port };
    let caller = caller(&admission.portal, headers, port)?;
    let has_cookie = caller.as_ref().is_some_and(|caller| caller.session.is_some());
    check_origin(method, uri.path(), headers, host, has_cookie)?;
    if caller.is_none() && !OPEN_PATHS.contains(&uri.path()) {
        return Err(Problem::unknown_user(
            "the request shows no account: send Authorization: Bearer TOKEN, with a token that the \
             page of the account makes",
        ));
    }
    Ok((url, caller))
}

fn is_own_name(admission: &Admission, host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
        _ => (host, Some(80)),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if admission.names.contains(&name) {
        return true;
    }
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let is_loopback = ["localhost", "127.0.0.1", "[::1]"].contains(&&*name)
        || address == Some(admission.own.ip());
    admission.own.ip().is_loopback() && is_loopback && port == Some(admission.own.port())
}

/// Checks a name of `--allow-host`.
pub fn allowed_name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    match is_address || !name.is_empty() && name.chars().all(is_plain) {
        true => Ok(name.to_ascii_lowercase()),
        false => Err("write the name without a scheme and port, such as stack.example.org".into()),
    }
}

/// The name of the cookie. Browsers send the cookies of all ports of a host to each of them, so
/// each port has a name of its own.
pub fn cookie_name(port: u16) -> String {
    format!("astroportal-{port}")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The account of a request; `None` if it shows none.
fn caller(portal: &Portal, headers: &HeaderMap, port: u16) -> Result<Option<Caller>, Problem> {
    if let Some(given) = text(headers, &header::AUTHORIZATION) {
        let wrong = || {
            Problem::unknown_user(
                "the token is wrong, has expired or was revoked: make a new one on the page of the \
                 account",
            )
        };
        let token = token_in(given).ok_or_else(wrong)?;
        let (account, role) = portal.accounts.of_token(&token)?.ok_or_else(wrong)?;
        return Ok(Some(Caller { account, role, session: None }));
    }
    let name = cookie_name(port);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|c| c.split_once('='));
    for (_, session) in pairs.filter(|(key, _)| key.trim() == name) {
        let session = session.trim();
        let Some((account, mark)) = portal.sessions.account(session, unix_ms()) else { continue };
        let account = portal.accounts.account(&account)?;
        if let Some(account) = account.filter(|account| account.password_mark() == mark) {
            let role = account.role;
            return Ok(Some(Caller { account, role, session: Some(session.to_owned()) }));
        }
    }
    Ok(None)
}

/// The token of `Bearer`, or the password of `Basic`.
fn token_in(authorization: &str) -> Option<String> {
    let (scheme, value) = authorization.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().to_owned());
    }
    let decoded = STANDARD.decode(value.trim()).ok()?;
    let pair = String::from_utf8(decoded).ok()?;
    let (_, password) = pair.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| password.to_owned())
}

/// Refuses a request of another site's page.
fn check_origin(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    host: &str,
    has_cookie: bool,
) -> Result<(), Problem> {
    let foreign = || {
        Problem::forbidden(
            "the request comes from a page of another site: use the pages of the portal, or a \
             program that sends no Origin",
        )
    };
    let is_safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
    let is_own_site = site.map(|site| matches!(site, "same-origin" | "none"));
    if is_safe {
        // A link of another site may lead to a page, and to nothing else.
        let is_refused = is_own_site == Some(false) && !is_page(path);
        return if is_refused { Err(foreign()) } else { Ok(()) };
    }
    let origin = headers.get(header::ORIGIN).map(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
    });
    let is_shown = origin.is_some() || is_own_site.is_some();
    let is_hidden = !is_shown && (has_cookie || is_page(path));
    match origin == Some(false) || is_own_site == Some(false) || is_hidden {
        true => Err(foreign()),
        false => Ok(()),
    }
}

fn with_headers(mut response: Response<Body>, path: &str) -> Response {
    let is_file = ["/portal.js", "/style.css"].contains(&path);
    let cached = if is_file { "no-cache" } else { "no-store" };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_POLICY),
        ("x-content-type-options", "nosniff"),
        // With `no-referrer`, browsers would send the forms of the portal with `Origin: null`.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", cached),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn requests_with_an_effect_come_from_own_pages_or_from_programs() {
        let host = "127.0.0.1:1";
        let own = ("origin", "http://127.0.0.1:1");
        let allowed = |method: &Method, path: &str, pairs: &[(&'static str, &str)], cookie| {
            check_origin(method, path, &headers(pairs), host, cookie).is_ok()
        };
        for method in [Method::POST, Method::DELETE, Method::PUT] {
            let sent = |pairs: &[(&'static str, &str)], cookie| {
                allowed(&method, "/async/a", pairs, cookie)
            };
            assert!(sent(&[own], true) && sent(&[], false));
            assert!(!sent(&[], true), "a browser says where a request comes from");
            for origin in ["http://127.0.0.1:2", "null", "http://evil", "ftp://127.0.0.1:1"] {
                assert!(!sent(&[("origin", origin)], true), "{origin}");
                assert!(!sent(&[("origin", origin)], false), "{origin}");
            }
            assert!(!sent(&[own, ("sec-fetch-site", "cross-site")], true));
            assert!(!allowed(&method, "/signin", &[], false), "no one signs in for a browser");
        }
        let other = [("sec-fetch-site", "same-site")];
        assert!(!allowed(&Method::GET, "/async", &other, true));
        assert!(allowed(&Method::GET, "/jobs/a", &other, true));
    }

    #[test]
    fn tokens_come_as_bearer_and_as_password() {
        assert_eq!(token_in("Bearer x"), Some("x".into()));
        assert_eq!(token_in("bearer  x "), Some("x".into()));
        assert_eq!(token_in("Basic YWRhOng6eQ=="), Some("x:y".into()));
        for wrong in ["x", "Basic x", "Digest YWRhOng=", "Basic YWRh"] {
            assert_eq!(token_in(wrong), None, "{wrong}");
        }
    }
}
