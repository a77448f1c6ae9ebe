//! Who may do what over HTTP: tokens with scopes, which expire and are revoked; a server behind a
//! reverse proxy; and the page of a local cluster.

use crate::support::{Cluster, Home, finish, signal, wait_until};
use crate::web::{TOML, WebProcess};
use rustix::process::Signal;

/// A new token. `words` are options.
fn token(cluster: &Cluster, words: &[&str]) -> String {
    let made = cluster.run(&[&["web", "token", "create"], words].concat()).exits(0);
    made.stdout.trim().to_owned()
}

#[test]
fn tokens_permit_what_their_scope_has_until_they_expire_or_are_revoked() {
    let cluster = Cluster::start(&[&["--slots", "1"]]);
    let web = WebProcess::start(&cluster);
    let read = token(&cluster, &["ci"]);
    let submit = token(&cluster, &["--scope", "submit", "--expires", "1h", "robot"]);
    let admin = token(&cluster, &["--scope", "admin"]);
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let kind = format!("Content-Type: {TOML}");
        web.raw(method, &format!("/api/v1{path}"), &[&bearer, &kind], body)
    };
    let job = "[[task]]\ncommand = [\"true\"]\n";
    ask(&read, "GET", "/jobs", "").is(200);
    let refused = ask(&read, "POST", "/jobs", job).is(403);
    assert!(refused.code() == "scope" && refused.body.contains("submit"), "{refused:?}");
    assert_eq!(ask(&submit, "POST", "/jobs", job).is(201).json()["job"], 1);
    cluster.run(&["job", "wait", "1"]).exits(0);
    for path in ["/jobs/1/cancel", "/jobs/1/retry", "/jobs/1/tasks/0/cancel", "/push"] {
        assert_eq!(ask(&read, "POST", path, "").is(403).code(), "scope", "{path}");
    }
    for (method, path) in [
        ("DELETE", "/jobs/1"),
        ("POST", "/jobs/1/release"),
        ("POST", "/executors/n1/stop"),
        ("POST", "/pools/p/pause"),
        ("POST", "/pools/p/resume"),
    ] {
        assert_eq!(ask(&submit, method, path, "").is(403).code(), "scope", "{path}");
    }
    ask(&admin, "DELETE", "/jobs/1", "").is(200);

    // A browser exchanges a token of this kind, too.
    let page = web.raw("GET", &format!("/?token={read}"), &[], "").is(303);
    let cookie = page.header("set-cookie").and_then(|cookie| cookie.split(';').next());
    let cookie = format!("Cookie: {}", cookie.expect("a cookie"));
    let with_cookie = || web.raw("GET", "/api/v1/jobs", &[&cookie], "");
    with_cookie().is(200);
    // The list has no secret, and neither has the file.
    let list = cluster.run(&["web", "token", "list"]).exits(0).says(&[]);
    for text in ["ci", "robot", "read", "submit", "admin"] {
        assert!(list.stdout.contains(text), "{list:?}");
    }
    let shown = cluster.run(&["--json", "web", "token", "list"]).exits(0).json("tokens");
    let file = cluster.path("home/clusters/test/web-tokens.json");
    let stored = std::fs::read_to_string(file).expect("a file of tokens");
    for secret in [&read, &submit, &admin] {
        let digits = secret.strip_prefix("eyas_web_").expect("a prefix");
        assert!(!stored.contains(digits) && !list.stdout.contains(digits));
    }
    let mut stream = web.stream_with("/events?include=state", &read);
    stream.until("dispatcher");
    let id = shown[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(shown[0]["name"], "ci");
    cluster.run(&["web", "token", "revoke", &id]).exits(0);
    assert_eq!(with_cookie().is(401).code(), "wrong-token");
    assert_eq!(ask(&read, "GET", "/jobs", "").is(401).code(), "wrong-token");
    // A stream that was opened with the token ends with its next event.
    ask(&submit, "POST", "/jobs", job).is(201);
    while stream.next().is_some() {}
    cluster.run(&["web", "token", "revoke", &id]).exits(1).says(&["web token list"]);
    let brief = token(&cluster, &["--expires", "0s"]);
    assert_eq!(ask(&brief, "GET", "/jobs", "").is(401).code(), "wrong-token");
    cluster.run(&["web", "token", "create", "--scope", "all"]).exits(2).says(&["read, submit or"]);
    // Wrong tokens are limited; the right ones are accepted meanwhile.
    wait_until("wrong tokens are limited", || ask(&brief, "GET", "/jobs", "").status == 429);
    ask(&submit, "GET", "/jobs", "").is(200);
}

#[test]
fn a_server_behind_a_proxy_has_its_paths_below_a_base() {
    let cluster = Cluster::start(&[&[]]);
    let mut web = WebProcess::of(cluster.spawn_on(&["web", "--base-path", "/site/eyas/"]));
    let address = web.address.strip_suffix("/site/eyas").expect("the base").to_owned();
    web.address = address;
    let exchanged = web.raw("GET", &format!("/site/eyas/jobs/1?token={}", web.token), &[], "");
    let exchanged = exchanged.is(303);
    assert_eq!(exchanged.header("location"), Some("/site/eyas/jobs/1"));
    let cookie = exchanged.header("set-cookie").expect("a cookie");
    assert!(cookie.ends_with("; Path=/site/eyas/"), "{cookie}");
    let path = format!("/site/eyas/?token={}", web.token);
    let secure = web.raw("GET", &path, &["X-Forwarded-Proto: https"], "").is(303);
    assert!(secure.header("set-cookie").is_some_and(|cookie| cookie.ends_with("; Secure")));
    // A proxy passes the base on, or takes it away.
    for path in ["/site/eyas", "/site/eyas/", "/site/eyas/jobs/1", "/", "/jobs/1"] {
        let page = web.get(path).is(200);
        assert!(page.body.contains("src=\"/site/eyas/page/app.js\""), "{path}: {page:?}");
    }
    web.get("/site/eyas/page/app.js").is(200);
    web.get("/site/eyasx/page/app.js").is(404);
    let kind = format!("Content-Type: {TOML}");
    let job = "[[task]]\ncommand = [\"true\"]\n";
    let created = web.send("POST", "/site/eyas/api/v1/jobs", &[&kind], job).is(201);
    assert_eq!(created.header("location"), Some("/site/eyas/api/v1/jobs/1"));
    web.get("/site/eyas/api/v1/jobs/1").is(200);
    web.get("/api/v1/jobs/1").is(200);
    assert_eq!(web.raw("GET", "/site/eyas/api/v1/jobs", &[], "").is(401).code(), "no-token");
    // An executor is stopped, and one that does not exist is told.
    let stop = |name: &str| web.send("POST", &format!("/api/v1/executors/{name}/stop"), &[], "");
    assert_eq!(stop("n9").is(404).code(), "not-found");
    assert_eq!(stop("n1").is(200).json()["executors"], 1);
    wait_until("it has left", || web.api("/executors")["executors"] == serde_json::json!([]));
    cluster.run(&["web", "--base-path", "//evil"]).exits(2).says(&["/eyas"]);
}

#[test]
fn a_local_cluster_serves_its_page() {
    let home = Home::new();
    let start = ["--cluster", "test", "start", "local", "--nodes", "1", "--slots", "1", "--web"];
    let mut child = home.spawn(&start);
    let web = WebProcess::line_of(&mut child);
    web.get("/").is(200);
    wait_until("the executor is there", || {
        web.api("/executors")["executors"].as_array().is_some_and(|all| all.len() == 1)
    });
    signal(child.id(), Signal::TERM);
    finish(child).exits(0);
    // In the background, the URL is what the command prints.
    let detached = home.eyas(&[&start[..], &["--detach"]].concat()).exits(0);
    let web = WebProcess::at(&detached.stdout);
    web.get("/").is(200);
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
}
