//! Pages of accounts: sign in and out, tokens.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::sync::Semaphore;

use crate::accounts::Role;
use crate::admission::{Caller, PortalUrl, cookie_name, redirect};
use crate::clock::{iso, monotonic_ms};
use crate::html::{Html, page};
use crate::portal::Portal;
use crate::problem::Problem;
use crate::secrets::{PasswordHash, unix_ms};
use crate::upload::Form;

/// Passwords that are checked at the same time: each takes 19 MiB and 50 ms of a core.
const PASSWORD_CHECKS: usize = 2;
static CHECKS: Semaphore = Semaphore::const_new(PASSWORD_CHECKS);
/// Tokens are made for up to this number of days.
const MAX_TOKEN_DAYS: u64 = 366;
const DAY_MS: u64 = 24 * 3600 * 1000;

type Answered = Result<Response, Problem>;
type At = State<Arc<Portal>>;

fn sign_in_page(trouble: Option<&str>) -> Response {
    let mut content = Html::new().raw("<h1>Sign in</h1>");
    if let Some(trouble) = trouble {
        content = content.raw("<p class=\"warning\" role=\"alert\">").text(trouble).raw("</p>");
    }
    let content = content.raw(
        "<form method=\"post\" action=\"/signin\" class=\"form\"><p><label for=\"name\">Account\
         </label><input id=\"name\" name=\"NAME\" autocomplete=\"username\" required></p>\
         <p><label for=\"password\">Password</label><input id=\"password\" name=\"PASSWORD\" \
         type=\"password\" autocomplete=\"current-password\" required></p>\
         <p><button class=\"main\">Sign in</button></p></form>",
    );
    page("Sign in", None, content)
}

/// `GET /signin`.
pub async fn sign_in_form() -> Response {
    sign_in_page(None)
}

/// `POST /signin`.
pub async fn sign_in(
    State(portal): At,
    Extension(url): Extension<PortalUrl>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let form = Form::read_small(&headers, body).await?;
    let name = form.text("NAME").unwrap_or_default().to_owned();
    let password = form.untrimmed("PASSWORD").unwrap_or_default().to_owned();
    let account = portal.accounts.account(&name)?;
    if let Some(seconds) = portal.attempts.begin(&name, account.is_some(), monotonic_ms()) {
        let words = format!("too many failed sign-ins: try again in {seconds} s");
        let mut page = sign_in_page(Some(&words));
        *page.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        page.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Ok(page);
    }
    let checked = in_turn(&CHECKS, move || match account {
        Some(account) => account.has_password(&password).then_some(account),
        None => {
            // An account that does not exist takes as long as one that does.
            let _ = PasswordHash::of(&password);
            None
        }
    });
    let Some(account) = checked.await.flatten() else {
        let mut page = sign_in_page(Some("the account or the password is wrong"));
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(page);
    };
    portal.attempts.succeeded(&name);
    let session = portal.sessions.begin(&account.name, account.password_mark(), unix_ms());
    let session = session.map_err(of_disk)?;
    Ok(with_cookie(redirect("/"), &url, &session, ""))
}

/// Does a piece of work when it is its turn. The work holds its turn until it ends, also if the
/// client has gone away meanwhile.
async fn in_turn<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // The semaphore is never closed.
    let permit = turns.acquire().await.ok()?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    done.await.ok()
}

fn of_disk(why: std::io::Error) -> Problem {
    tracing::error!("a session cannot be kept: {why}");
    Problem::of_portal("the portal cannot keep the session: tell its administrator")
}

fn with_cookie(mut response: Response, url: &PortalUrl, value: &str, more: &str) -> Response {
    let secure = if url.is_secure { "; Secure" } else { "" };
    let name = cookie_name(url.port);
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Lax; Path=/{secure}{more}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// `POST /signout`.
pub async fn sign_out(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
) -> Answered {
    if let Some(session) = &caller.session {
        portal.sessions.end(session).map_err(of_disk)?;
    }
    Ok(with_cookie(redirect("/signin"), &url, "", "; Max-Age=0"))
}

/// `GET /account`.
pub async fn show(Extension(caller): Extension<Caller>) -> Answered {
    Ok(account_page(&caller, None))
}

fn account_page(caller: &Caller, made: Option<&str>) -> Response {
    let account = &caller.account;
    let mut content =
        Html::new().raw("<h1>Account ").text(&account.name).raw("</h1><p class=\"lead\">");
    content = content.text(format!(
        "Role {}; quota {} object-frames in 24 hours.",
        account.role.name(),
        account.quota
    ));
    content = content.raw("</p><section><h2>Tokens for programs</h2>");
    if let Some(text) = made {
        content = content
            .raw(
                "<p class=\"note\" role=\"status\">The new token, which is not shown again: <code>",
            )
            .text(text)
            .raw("</code></p>");
    }
    let rows = account.tokens().iter().map(|token| {
        Html::new()
            .raw("<tr><td class=\"name\">")
            .text(&token.name)
            .raw("</td><td>")
            .text(token.role.name())
            .raw("</td><td>")
            .text(iso(token.expires_ms))
            .raw(
                "</td><td><form method=\"post\" action=\"/account/revoke\">\
                  <input type=\"hidden\" name=\"ID\" value=\"",
            )
            .text(token.id())
            .raw("\"><button>Revoke</button></form></td></tr>")
    });
    if !account.tokens().is_empty() {
        content = content
            .raw("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Tokens\"><table>\
                  <thead><tr><th>Name</th><th>Role</th><th>Ends</th><th>Action</th></tr></thead><tbody>")
            .parts(rows)
            .raw("</tbody></table></div>");
    }
    content = content.raw(
        "<form method=\"post\" action=\"/account/token\" class=\"form\"><p><label for=\"name\">Name\
         </label><input id=\"name\" name=\"NAME\" required maxlength=\"64\"></p><p>\
         <label for=\"role\">Role</label><select id=\"role\" name=\"ROLE\"><option>submit</option>\
         <option>read</option></select></p><p><label for=\"days\">Days until it ends</label>\
         <input id=\"days\" name=\"DAYS\" type=\"number\" min=\"1\" max=\"366\" value=\"30\"></p>\
         <p><button>Make a token</button></p></form></section>",
    );
    page("Account", Some(&account.name), content)
}

/// Tokens are made and revoked by a person: a token that leaks makes no others.
fn must_be_signed_in(caller: &Caller) -> Result<(), Problem> {
    match caller.session.is_some() {
        true => Ok(()),
        false => Err(Problem::forbidden("tokens are made and revoked in a browser: sign in")),
    }
}

/// `POST /account/token`.
pub async fn make_token(
    State(portal): At,
    Extension(mut caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    must_be_signed_in(&caller)?;
    let form = Form::read(&headers, body).await?;
    let days: Option<u64> = form.text("DAYS").and_then(|days| days.parse().ok());
    let days = days.filter(|days| (1..=MAX_TOKEN_DAYS).contains(days));
    let days = days
        .ok_or_else(|| Problem::wrong(format!("a token ends after 1 to {MAX_TOKEN_DAYS} days")))?;
    let role: Role = form.text("ROLE").unwrap_or_default().parse()?;
    let name = form.text("NAME").unwrap_or_default();
    let account = caller.account.name.clone();
    let expires_ms = unix_ms() + days * DAY_MS;
    let text = portal.accounts.add_token(&account, name, role, expires_ms)?;
    if let Some(changed) = portal.accounts.account(&account)? {
        caller.account = changed;
    }
    Ok(account_page(&caller, Some(&text)))
}

/// `POST /account/revoke`.
pub async fn revoke_token(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    must_be_signed_in(&caller)?;
    let form = Form::read(&headers, body).await?;
    portal.accounts.revoke_token(&caller.account.name, form.text("ID").unwrap_or_default())?;
    Ok(redirect("/account"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn a_check_holds_its_turn_after_its_client_has_gone() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (go, may_end) = channel::<()>();
        let client = tokio::spawn(in_turn(&TURNS, move || {
            begun.send(()).unwrap();
            may_end.recv()
        }));
        begins.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(TURNS.available_permits(), 0, "the check still runs");
        go.send(()).unwrap();
        assert_eq!(in_turn(&TURNS, || 7).await, Some(7));
    }
}
