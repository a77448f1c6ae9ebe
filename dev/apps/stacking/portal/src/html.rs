//! HTML of the pages: escaped by default. Every text goes through `Html::text`.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use quick_xml::escape::escape;

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub struct Html(String);

impl Html {
    /// Nothing yet.
    pub fn new() -> Self {
        Html::default()
    }

    /// Adds markup of the portal's own: a constant.
    pub fn raw(mut self, markup: &'static str) -> Self {
        self.0 += markup;
        self
    }

    /// Adds a text, which may be anybody's.
    pub fn text(mut self, text: impl std::fmt::Display) -> Self {
        let text = text.to_string();
        self.0 += &escape(&text);
        self
    }

    /// Adds a part.
    pub fn part(mut self, part: Html) -> Self {
        self.0 += &part.0;
        self
    }

    /// Adds parts.
    pub fn parts(self, parts: impl IntoIterator<Item = Html>) -> Self {
        parts.into_iter().fold(self, Html::part)
    }
}

/// A whole page. `account` is the name of the account that is signed in.
pub fn page(title: &str, account: Option<&str>, content: Html) -> Response {
    let head = Html::new()
        .raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>")
        .text(title)
        .raw(" · AstroPortal</title><link rel=\"stylesheet\" href=\"/style.css\">")
        .raw("<script src=\"/portal.js\" defer></script></head><body>")
        .raw("<a class=\"skip\" href=\"#content\">To the content</a><header>")
        .raw("<a class=\"brand\" href=\"/\">AstroPortal</a>");
    let navigation = match account {
        None => Html::new(),
        Some(name) => Html::new()
            .raw("<nav aria-label=\"Pages\"><a href=\"/stack\">New stack</a>")
            .raw("<a href=\"/\">Stacks</a><a href=\"/account\">Account ")
            .text(name)
            .raw("</a></nav><form method=\"post\" action=\"/signout\">")
            .raw("<button>Sign out</button></form>"),
    };
    let whole = head
        .part(navigation)
        .raw("</header><main id=\"content\">")
        .part(content)
        .raw("</main></body></html>\n");
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], whole.0).into_response()
}

/// The page of a request that failed. `account` is that of the request, if it has one.
pub fn error_page(words: &str, account: Option<&str>) -> Response {
    let link = match account {
        Some(_) => "<p><a href=\"/\">To the stacks</a></p>",
        None => SIGN_IN,
    };
    let content = Html::new()
        .raw("<h1>That did not work</h1><p class=\"warning\" role=\"alert\">")
        .text(words)
        .raw("</p>")
        .raw(link);
    page("Error", account, content)
}

const SIGN_IN: &str = "<p><a href=\"/signin\">Sign in</a></p>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let html = Html::new().raw("<p title=\"").text("\"><script>'&").raw("\">");
        assert_eq!(html.0, "<p title=\"&quot;&gt;&lt;script&gt;&apos;&amp;\">");
    }
}
