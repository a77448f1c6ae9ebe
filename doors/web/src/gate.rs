//! The checks that each request passes before it is handled, in this order:
//!
//! 1. **Host**: the name is one under which this process is reached. Else a page of another site,
//!    whose name resolves to this machine, could read everything.
//! 2. **Token**: `Authorization: Bearer TOKEN`, or the cookie. A browser comes with the token in
//!    the URL once, gets the cookie, and is sent on to the URL without it, so that the token is in
//!    no history, no `Referer` and no log of this process; a proxy in front may log that URL. The
//!    token is that of this process, which permits everything, or one of `web_tokens`, with a
//!    scope. A Unix socket needs no token: only its user can open it.
//! 3. **Origin**: a request with an effect comes from a page of this process or from a program.
//!    Cookies alone do not show that: another server on this machine is of the same site, because
//!    ports do not count. So `Origin` and `Sec-Fetch-Site` are checked for every method but GET,
//!    HEAD and OPTIONS, and must be there if the request has a cookie.
//!
//! Each answer has headers by which a browser runs no script but those of this process, and shows
//! no page in a frame of another site. There is no CORS: no other origin is allowed anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::address::HostNames;
use crate::api_error::ApiError;
use crate::attempts::WrongTokens;
use crate::shared::Shared;
use crate::token::WebToken;
use crate::web_tokens::{WebScope, WebTokens};

/// A request is answered within this time, with its body; streams have begun by then.
const REQUEST_DEADLINE: Duration = Duration::from_secs(150);
/// Name of the parameter with the token.
const TOKEN_PARAMETER: &str = "token=";
/// Paths that need no token: they tell only whether the process works.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];
/// The policy that browsers apply to pages of this process: they load nothing from elsewhere.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The facts with which requests are checked.
pub(crate) struct Gate {
    /// The TCP address; `None` for a Unix socket.
    pub own: Option<SocketAddr>,
    pub names: HostNames,
    pub token: WebToken,
    pub tokens: WebTokens,
    pub wrong: WrongTokens,
    pub shared: Arc<Shared>,
}

/// What the token of a request permits. Handlers find it in the request's extensions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted(pub WebScope);

/// A request that is let in.
struct Admitted {
    scope: WebScope,
    /// The token, if it may be revoked while its answer is sent.
    token: Option<String>,
}

/// How a request has shown that it may come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Socket,
    Bearer,
    Cookie,
    /// The path needs none.
    Open,
}

/// Lets a request in, or refuses it.
pub(crate) async fn admit(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    gate.shared.requests.fetch_add(1, Ordering::Relaxed);
    let is_page = is_page(request.uri());
    let answered = match gate.check(request.method(), request.uri(), request.headers()) {
        Ok(Passage::In(Admitted { scope, token })) => {
            request.extensions_mut().insert(Granted(scope));
            match timeout(REQUEST_DEADLINE, next.run(request)).await {
                Ok(response) => while_accepted(gate, token, as_json(response)),
                Err(_) => late().into_response(),
            }
        }
        Ok(Passage::Exchanged(response)) => response,
        Err(why) if is_page => page_error(&why),
        Err(why) => why.into_response(),
    };
    with_headers(answered, is_page)
}

/// Where a request goes on.
enum Passage {
    In(Admitted),
    /// It had the token in the URL, and this is its answer.
    Exchanged(Response),
}

/// A stream that ends when its token is no longer accepted.
fn while_accepted(gate: Arc<Gate>, token: Option<String>, response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
    let Some(token) = token.filter(|_| is_stream) else { return response };
    let (head, body) = response.into_parts();
    let accepted = body
        .into_data_stream()
        .take_while(move |_| std::future::ready(gate.tokens.scope_of(&token).is_some()));
    Response::from_parts(head, Body::from_stream(accepted))
}

/// Whether a path is of the page, for people, and not of the API.
fn is_page(uri: &Uri) -> bool {
    !uri.path().starts_with("/api/")
        && uri.path() != "/metrics"
        && !OPEN_PATHS.contains(&uri.path())
}

fn late() -> ApiError {
    ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "late",
        format!("the request was not answered within {} s", REQUEST_DEADLINE.as_secs()),
        "send it again, or send less at once",
    )
}

impl Gate {
    /// Checks a request.
    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Passage, ApiError> {
        let host = text(headers, &header::HOST).unwrap_or_default();
        if self.own.is_some_and(|own| !self.names.are_of(host, own)) {
            return Err(forbidden(
                "wrong-host",
                format!("this server is not reached under the name `{host}`"),
                "use the URL that `eyas web` has printed, or allow the name with --allow-host",
            ));
        }
        if let Some((given, rest)) = token_in(uri).filter(|_| self.own.is_some()) {
            let is_read = matches!(*method, Method::GET | Method::HEAD);
            return match self.admitted(given).filter(|_| is_read) {
                Some(_) => Ok(Passage::Exchanged(self.exchanged(given, &rest, headers))),
                None => Err(self.wrong_token()),
            };
        }
        let (proof, admitted) = self.proof(uri, headers)?;
        check_origin(method, uri, headers, host, proof)?;
        Ok(Passage::In(admitted))
    }

    /// What a token permits; `None` if it is wrong.
    fn admitted(&self, given: &str) -> Option<Admitted> {
        if self.token.is(given) {
            return Some(Admitted { scope: WebScope::Admin, token: None });
        }
        let scope = self.tokens.scope_of(given)?;
        Some(Admitted { scope, token: Some(given.to_owned()) })
    }

    fn proof(&self, uri: &Uri, headers: &HeaderMap) -> Result<(Proof, Admitted), ApiError> {
        let Some(own) = self.own else {
            return Ok((Proof::Socket, Admitted { scope: WebScope::Admin, token: None }));
        };
        if OPEN_PATHS.contains(&uri.path()) {
            return Ok((Proof::Open, Admitted { scope: WebScope::Read, token: None }));
        }
        let authorization = text(headers, &header::AUTHORIZATION);
        if let Some((scheme, token)) = authorization.and_then(|words| words.split_once(' ')) {
            let is_bearer = scheme.eq_ignore_ascii_case("bearer");
            let admitted = self.admitted(token.trim()).filter(|_| is_bearer);
            let admitted = admitted.ok_or_else(|| self.wrong_token())?;
            return Ok((Proof::Bearer, admitted));
        }
        let name = cookie_name(own);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|c| c.split_once('='));
        let own_cookies: Vec<_> = pairs.filter(|(key, _)| key.trim() == name).collect();
        let admitted = own_cookies.iter().find_map(|(_, value)| self.admitted(value.trim()));
        if let Some(admitted) = admitted {
            return Ok((Proof::Cookie, admitted));
        }
        if !own_cookies.is_empty() {
            return Err(self.wrong_token());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "no-token",
            "the request has no token",
            "open the URL that `eyas web` has printed, or send Authorization: Bearer TOKEN",
        ))
    }

    /// Notes a wrong token.
    fn wrong_token(&self) -> ApiError {
        let hint = "`eyas web` has a new token each time it starts: use the URL that it has \
                    printed, or make a token that lasts with `eyas web token create`";
        match self.wrong.note(Instant::now()) {
            true => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-wrong-tokens",
                "there were too many requests with a wrong token",
                hint,
            ),
            false => {
                ApiError::new(StatusCode::UNAUTHORIZED, "wrong-token", "the token is wrong", hint)
            }
        }
    }

    /// Gives a browser the cookie, and sends it on to the URL without the token.
    fn exchanged(&self, token: &str, rest: &str, headers: &HeaderMap) -> Response {
        let name = self.own.map(cookie_name).unwrap_or_default();
        let base = self.shared.base.text();
        // A client that lies about this harms nothing but its own cookie.
        let forwarded = text(headers, &HeaderName::from_static("x-forwarded-proto"));
        let secure = if forwarded == Some("https") { "; Secure" } else { "" };
        let cookie = format!("{name}={token}; HttpOnly; SameSite=Strict; Path={base}/{secure}");
        let rest = format!("{base}{rest}");
        let mut response = StatusCode::SEE_OTHER.into_response();
        for (name, value) in [(header::SET_COOKIE, &*cookie), (header::LOCATION, &*rest)] {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Browsers send the cookies of all ports of a host to each of them, so each port has a name of its
/// own.
fn cookie_name(own: SocketAddr) -> String {
    format!("eyas-web-{}", own.port())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The token in a URL, and the path and parameters without it.
fn token_in(uri: &Uri) -> Option<(&str, String)> {
    let mut found = None;
    let mut others = Vec::new();
    for part in uri.query()?.split('&') {
        match part.strip_prefix(TOKEN_PARAMETER) {
            Some(token) => found = Some(token),
            None => others.push(part),
        }
    }
    // A path with two slashes at its beginning would be a URL of another host.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let rest = if others.is_empty() { path } else { format!("{path}?{}", others.join("&")) };
    Some((found?, rest))
}

/// Refuses a request of another site's page.
fn check_origin(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    host: &str,
    proof: Proof,
) -> Result<(), ApiError> {
    let is_safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
    let is_own_site = site.map(|site| matches!(site, "same-origin" | "none"));
    let foreign = || {
        forbidden(
            "foreign-origin",
            "the request comes from a page of another site".to_owned(),
            "use the page of this server, or a program that sends no Origin",
        )
    };
    if is_safe {
        // A link of another site may lead to the page, and to nothing else.
        return match is_own_site == Some(false) && !is_page(uri) {
            true => Err(foreign()),
            false => Ok(()),
        };
    }
    let origin = headers.get(header::ORIGIN).map(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
    });
    let is_shown = origin.is_some() || is_own_site.is_some();
    match origin == Some(false) || is_own_site == Some(false) || proof == Proof::Cookie && !is_shown
    {
        true => Err(foreign()),
        false => Ok(()),
    }
}

fn forbidden(code: &'static str, message: String, hint: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, code, message, hint)
}

/// The error of a page, for a person.
fn page_error(why: &ApiError) -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    let words = format!("eyas web: {}\n\n{}\n", why.message, why.hint);
    (why.status, [(header::CONTENT_TYPE, kind)], words).into_response()
}

/// Errors of the router have no JSON: a wrong method, a path that is not UTF-8.
fn as_json(response: Response) -> Response {
    let status = response.status();
    let has_kind = response.headers().contains_key(header::CONTENT_TYPE);
    let is_plain = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || has_kind && !is_plain {
        return response;
    }
    let (code, message) = match status {
        StatusCode::METHOD_NOT_ALLOWED => ("wrong-method", "the path has no such method"),
        _ => ("wrong-request", "the request cannot be understood"),
    };
    let mut error = ApiError::wrong_request(message);
    (error.status, error.code) = (status, code);
    let mut replaced = error.into_response();
    if let Some(allow) = response.headers().get(header::ALLOW) {
        replaced.headers_mut().insert(header::ALLOW, allow.clone());
    }
    replaced
}

fn with_headers(mut response: Response, is_page: bool) -> Response {
    let cached = if is_page { "no-cache" } else { "no-store" };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
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
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_token_in_a_url_is_taken_out_of_it() {
        let taken = |uri: &str| {
            let uri: Uri = uri.parse().unwrap();
            token_in(&uri).map(|(token, rest)| (token.to_owned(), rest))
        };
        let of = |token: &str, rest: &str| Some((token.to_owned(), rest.to_owned()));
        assert_eq!(taken("/?token=a"), of("a", "/"));
        assert_eq!(taken("/jobs/7?x=1&token=a&y=2"), of("a", "/jobs/7?x=1&y=2"));
        assert_eq!(taken("//evil.example/?token=a"), of("a", "/evil.example/"));
        assert_eq!(taken("/?tokens=a"), None);
        assert_eq!(taken("/"), None);
    }

    #[test]
    fn requests_with_an_effect_come_from_own_pages_or_from_programs() {
        let host = "127.0.0.1:1";
        let own = ("origin", "http://127.0.0.1:1");
        let allowed = |method: &Method, path: &str, pairs: &[(&'static str, &str)], proof| {
            let uri: Uri = path.parse().unwrap();
            check_origin(method, &uri, &headers(pairs), host, proof).is_ok()
        };
        let api = "/api/v1/jobs";
        for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
            let sent = |pairs: &[(&'static str, &str)], proof| allowed(&method, api, pairs, proof);
            assert!(sent(&[own], Proof::Cookie) && sent(&[], Proof::Bearer));
            assert!(sent(&[("sec-fetch-site", "same-origin")], Proof::Cookie));
            assert!(!sent(&[], Proof::Cookie), "a browser says where a request comes from");
            for proof in [Proof::Cookie, Proof::Bearer, Proof::Socket] {
                for origin in ["http://127.0.0.1:2", "null", "http://evil", "ftp://127.0.0.1:1"] {
                    assert!(!sent(&[("origin", origin)], proof), "{origin}");
                }
                for site in ["same-site", "cross-site"] {
                    assert!(!sent(&[own, ("sec-fetch-site", site)], proof), "{site}");
                }
            }
        }
        let other = [("sec-fetch-site", "same-site")];
        assert!(!allowed(&Method::GET, api, &other, Proof::Cookie));
        assert!(allowed(&Method::GET, "/jobs/1", &other, Proof::Cookie));
        assert!(allowed(&Method::GET, api, &[], Proof::Cookie));
    }
}
