//! The portal with a real cluster, `eyas web` and `stack`: lists become images, restarts lose no
//! job, accounts are apart, and attacks are refused.

mod site;

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, Method, StatusCode};
use site::{Answer, Site, value_of};

/// A table of positions, one on each line.
fn positions(site: &Site, survey: &str) -> String {
    let text = fs::read_to_string(site.path(survey).join("objects.csv")).unwrap();
    let column = |line: &str| line.split(',').take(2).collect::<Vec<_>>().join(",");
    text.lines().map(|line| column(line) + "\n").collect()
}

#[tokio::test]
async fn lists_become_the_images_that_stack_makes_at_each_locality() {
    let Some(mut site) = Site::new() else { return };
    for locality in ["1", "3", "30"] {
        site.survey(&format!("sky{locality}"), &["--objects", "60", "--locality", locality]);
    }
    site.start_portal();
    let token = site.account("ada", &["--quota", "1000"]);
    for locality in ["1", "3", "30"] {
        let survey = format!("sky{locality}");
        let list = positions(&site, &survey);
        let fields = [("SURVEY", &*survey), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
        let job = site.post(&token, "/async", &fields).await.location(303);
        let ended = site.wait(&token, &job).await;
        assert_eq!(value_of(&ended, "phase"), "COMPLETED", "{ended}");
        let image = site.get(&token, &format!("{job}/results/image")).await;
        assert_eq!(image.header("content-type"), "image/fits");
        // `stack` alone, with the same tasks.
        let alone = site.stack_alone(&survey, &list, "40");
        assert!(image.bytes == alone, "locality {locality}: the images differ");
        let picture = site.get(&token, &format!("{job}/results/picture")).await;
        assert!(picture.bytes.starts_with(b"\x89PNG"));
        let jpeg = site.get(&token, &format!("{job}/results/jpeg")).await;
        assert!(jpeg.bytes.starts_with(b"\xff\xd8\xff"));
        let report = site.get(&token, &format!("{job}/results/result")).await.text();
        assert!(report.contains("<TD>stacked</TD><TD>60</TD>"), "{report}");
    }
}

#[tokio::test]
async fn what_cannot_be_stacked_is_listed_with_its_reason() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "6", "--objects", "30"]);
    site.start_portal();
    let token = site.account("ada", &[]);
    let frames = site.path("sky/frames");
    let frame = |number: usize| frames.join(format!("frame-{number:06}.fits.gz"));
    // One frame is lost, another one is damaged.
    fs::remove_file(frame(1)).unwrap();
    let bytes = fs::read(frame(2)).unwrap();
    fs::write(frame(2), &bytes[..bytes.len() / 2]).unwrap();
    let list = positions(&site, "sky") + "10,80\nNaN,1\n400,1\n";
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let job = site.post(&token, "/async", &fields).await.location(303);
    let ended = site.wait(&token, &job).await;
    assert_eq!(value_of(&ended, "phase"), "COMPLETED", "{ended}");
    let bad = site.get(&token, &format!("{job}/results/not-readable")).await.text();
    let lines: Vec<&str> = bad.lines().collect();
    assert_eq!(lines.len(), 3, "{bad}");
    assert!(lines[1].contains("frame-000001") && lines[1].contains("does not exist"), "{bad}");
    assert!(lines[2].contains("frame-000002") && lines[2].contains("ends before"), "{bad}");
    let missing = site.get(&token, &format!("{job}/results/not-found")).await.text();
    for words in ["no frame of the survey", "no position", "right ascension is not from 0"] {
        assert!(missing.contains(words), "{missing}");
    }
    // A list of which nothing is covered is an error, and says so.
    let fields = [("SURVEY", "sky"), ("POSITIONS", "10 80\n"), ("PHASE", "RUN")];
    let job = site.post(&token, "/async", &fields).await.location(303);
    let ended = site.wait(&token, &job).await;
    assert_eq!(value_of(&ended, "phase"), "ERROR");
    let error = site.get(&token, &format!("{job}/error")).await.text();
    assert!(error.contains("no frame of the survey shows"), "{error}");
    let missing = site.get(&token, &format!("{job}/results/not-found")).await.text();
    assert!(missing.contains("no frame of the survey"), "{missing}");
}

#[tokio::test]
async fn accounts_are_apart_and_have_quotas_and_roles() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "4", "--objects", "20"]);
    site.start_portal();
    let ada = site.account("ada", &["--quota", "30"]);
    let bob = site.account("bob", &[]);
    let eve = site.account("eve", &["--role", "read"]);
    let root = site.account("root", &["--role", "admin"]);
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let job = site.post(&ada, "/async", &fields).await.location(303);
    assert_eq!(value_of(&site.wait(&ada, &job).await, "phase"), "COMPLETED");
    // Others see nothing of it, whatever they ask for.
    for path in ["", "/phase", "/results/image", "/positions.csv", "/owner"] {
        let answer = site.get(&bob, &format!("{job}{path}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    for path in ["/phase", ""] {
        let fields = [("PHASE", "ABORT"), ("ACTION", "DELETE")];
        let answer = site.post(&bob, &format!("{job}{path}"), &fields).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    let id = job.rsplit('/').next().unwrap();
    assert!(!site.get(&bob, "/async").await.text().contains(id));
    let links = site.get(&bob, &format!("/links?ID={id}")).await.text();
    assert!(links.contains("NotFoundFault") && !links.contains("results/image"), "{links}");
    let page = site.get(&bob, &format!("/jobs/{id}")).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(site.get(&root, "/async").await.text().contains(id), "an admin sees all jobs");
    let created = site.post(&eve, "/async", &fields).await;
    assert_eq!(created.status, StatusCode::FORBIDDEN);
    assert!(created.text().contains("needs the role submit"));
    // The second job would exceed the quota, also after the first was deleted.
    assert_eq!(site.send(Method::DELETE, &ada, &job).await.status, StatusCode::SEE_OTHER);
    assert_eq!(site.get(&ada, &job).await.status, StatusCode::NOT_FOUND);
    let job = site.post(&ada, "/async", &fields).await.location(303);
    let ended = site.wait(&ada, &job).await;
    let error = site.get(&ada, &format!("{job}/error")).await.text();
    assert_eq!(value_of(&ended, "phase"), "ERROR");
    assert!(error.contains("has 20 object-frames") && error.contains("10 of its 30"), "{error}");
    // A larger quota holds from the next job on.
    site.portal_command(&["account", "set", "ada", "--quota", "1000"], "");
    let job = site.post(&ada, "/async", &fields).await.location(303);
    assert_eq!(value_of(&site.wait(&ada, &job).await, "phase"), "COMPLETED");
    // As does a smaller role, also for tokens that were made before.
    site.portal_command(&["account", "set", "ada", "--role", "read"], "");
    let refused = site.post(&ada, "/async", &fields).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // Tokens that are revoked, and an account that is removed, are refused at once.
    site.portal_command(&["account", "revoke", "root"], "");
    assert_eq!(site.get(&root, "/async").await.status, StatusCode::UNAUTHORIZED);
    site.portal_command(&["account", "remove", "bob"], "");
    assert_eq!(site.get(&bob, "/async").await.status, StatusCode::UNAUTHORIZED);
    // The next one of the name would see the jobs of the first.
    site.portal_command(&["account", "remove", "ada"], "");
    let refused = site.refused_command(&["account", "add", "ada"], "password 2\n");
    assert!(refused.contains("has 2 jobs left"), "{refused}");
    site.portal_command(&["account", "add", "bob"], "password 2\n");
}

#[tokio::test]
async fn uws_drives_a_job_from_its_creation_to_its_destruction() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "3", "--objects", "9"]);
    site.start_portal();
    let token = site.account("ada", &[]);
    let job = site.post(&token, "/async", &[("RUNID", "<a&b>")]).await.location(303);
    let document = site.get(&token, &job).await.text();
    assert_eq!(
        (value_of(&document, "phase"), value_of(&document, "runId")),
        ("PENDING", "&lt;a&amp;b&gt;")
    );
    assert!(document.contains("<uws:startTime xsi:nil=\"true\"/>"), "{document}");
    // What is missing is said, and the job stays as it is.
    let refused = site.post(&token, &format!("{job}/phase"), &[("PHASE", "RUN")]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("set SURVEY before it runs"));
    let list = positions(&site, "sky");
    let set = [("survey", "sky"), ("size", "40"), ("positions", &*list)];
    let to = site.post(&token, &format!("{job}/parameters"), &set).await.location(303);
    assert_eq!(to, job);
    for (part, field, value, read) in [
        ("executionduration", "EXECUTIONDURATION", "500", "500"),
        ("destruction", "DESTRUCTION", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00.000Z"),
    ] {
        let path = format!("{job}/{part}");
        // A destruction in the past deletes at once, so the time has to come.
        let value = if part == "destruction" { &*site.in_a_day() } else { value };
        site.post(&token, &path, &[(field, value)]).await.location(303);
        let is = site.get(&token, &path).await.text();
        assert!(is == read || is.starts_with(&value[..16]), "{is}");
    }
    // Waiting ends with the time that is asked for, and -1 is bounded by the server; a phase that
    // the job does not have is not waited in.
    let waited = site.get(&token, &format!("{job}?WAIT=-1&PHASE=EXECUTING")).await.text();
    assert_eq!(value_of(&waited, "phase"), "PENDING");
    let waited = site.get(&token, &format!("{job}?WAIT=0")).await.text();
    assert_eq!(value_of(&waited, "phase"), "PENDING");
    site.post(&token, &format!("{job}/phase"), &[("PHASE", "RUN")]).await.location(303);
    assert_eq!(value_of(&site.wait(&token, &job).await, "phase"), "COMPLETED");
    let refused = site.post(&token, &format!("{job}/parameters"), &[("SIZE", "50")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    for (query, is_there) in [
        ("PHASE=COMPLETED", true),
        ("PHASE=EXECUTING", false),
        ("PHASE=EXECUTING&PHASE=COMPLETED", true),
        ("AFTER=2020-01-01T00:00:00", true),
        ("AFTER=2100-01-01T00:00:00Z", false),
        ("LAST=1", true),
    ] {
        let jobs = site.get(&token, &format!("/async?{query}")).await.text();
        assert_eq!(jobs.contains("<uws:jobref"), is_there, "{query}: {jobs}");
    }
    for wrong in ["PHASE=RUN", "AFTER=x", "LAST=0", "LAST=-1"] {
        let answer = site.get(&token, &format!("/async?{wrong}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    // Its time has come: it goes with its files.
    let past = [("DESTRUCTION", "2020-01-01T00:00:00")];
    site.post(&token, &format!("{job}/destruction"), &past).await;
    site.until("the job is deleted", async || {
        site.get(&token, &job).await.status == StatusCode::NOT_FOUND
    })
    .await;
    let id = job.rsplit('/').next().unwrap();
    site.until("its files are gone", async || !site.path("work").join(id).exists()).await;
}

#[tokio::test]
async fn restarts_lose_no_job_and_run_none_twice() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "5", "--objects", "25"]);
    site.hold_tasks();
    site.start_portal();
    let token = site.account("ada", &[]);
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let job = site.post(&token, "/async", &fields).await.location(303);
    site.until("two tasks run", async || site.held() == 2).await;
    // The portal is killed, and then the web and the dispatcher, one after the other.
    site.kill_portal();
    site.start_portal();
    let document = site.get(&token, &job).await.text();
    assert_eq!(value_of(&document, "phase"), "EXECUTING");
    site.kill_web();
    site.until("the job says that the cluster is away", async || {
        site.get(&token, &job).await.text().contains("waitsFor=\"the cluster does not answer")
    })
    .await;
    site.kill_portal();
    site.start_portal();
    site.restart_dispatcher();
    site.start_web();
    site.release_tasks();
    let ended = site.wait(&token, &job).await;
    assert_eq!(value_of(&ended, "phase"), "COMPLETED", "{ended}");
    let jobs = site.cluster_jobs();
    assert_eq!(jobs.len(), 2, "one job stacks, and one sums: {jobs:?}");
    let image = site.get(&token, &format!("{job}/results/image")).await;
    assert!(image.bytes == site.stack_alone("sky", &list, "40"));
}

#[tokio::test]
async fn a_disk_that_takes_no_writes_is_waited_for() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "3", "--objects", "9"]);
    site.hold_tasks();
    site.start_portal();
    let token = site.account("ada", &[]);
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let idle = site.post(&token, "/async", &fields[..3]).await.location(303);
    let job = site.post(&token, "/async", &fields).await.location(303);
    site.until("two tasks run", async || site.held() == 2).await;
    // No job can be written: a file stands where their folder was.
    let (jobs, away) = (site.path("state/jobs"), site.path("state/jobs.away"));
    fs::rename(&jobs, &away).unwrap();
    fs::write(&jobs, "").unwrap();
    site.release_tasks();
    site.until("the job says why it waits", async || {
        site.get(&token, &job).await.text().contains("waitsFor=\"the portal cannot write")
    })
    .await;
    let aborted = site.post(&token, &format!("{job}/phase"), &[("PHASE", "ABORT")]).await;
    assert_eq!(aborted.status, StatusCode::INTERNAL_SERVER_ERROR, "what is not kept is not said");
    fs::remove_file(&jobs).unwrap();
    fs::rename(&away, &jobs).unwrap();
    assert_eq!(value_of(&site.wait(&token, &job).await, "phase"), "COMPLETED");
    assert_eq!(site.send(Method::DELETE, &token, &idle).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn work_that_the_cluster_has_forgotten_is_submitted_again() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "3", "--objects", "9"]);
    site.hold_tasks();
    site.start_portal();
    let token = site.account("ada", &[]);
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let job = site.post(&token, "/async", &fields).await.location(303);
    site.until("two tasks run", async || site.held() == 2).await;
    // The portal does not see the end of the job.
    site.kill_web();
    site.forget("1");
    site.release_tasks();
    site.start_web();
    let ended = site.wait(&token, &job).await;
    assert_eq!(value_of(&ended, "phase"), "COMPLETED", "{ended}");
    let jobs = site.cluster_jobs();
    assert!(jobs[0].0.ends_with("-stack-1"), "the second submission: {jobs:?}");
}

#[tokio::test]
async fn lists_have_bands_and_weights_and_may_be_compressed() {
    let Some(mut site) = Site::new() else { return };
    site.survey_in_band("sky", &["--frames", "4", "--objects", "16"], Some("r"));
    site.start_portal();
    let token = site.account("ada", &[]);
    let plain = positions(&site, "sky");
    let rows = plain.lines().skip(1).enumerate();
    let row = |(number, place)| {
        let band = if number == 3 { "g" } else { "r" };
        format!("o{number},{place},{band},{}\n", number + 1)
    };
    let list: String = rows.map(row).collect();
    let list = format!("name,ra,dec,band,weight\n{list}");
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(list.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let mut images = Vec::new();
    for weights in ["none", "list", "variance"] {
        // As a browser sends a file.
        let mut body = Vec::new();
        for (name, value) in [
            ("SURVEY", b"sky".as_slice()),
            ("SIZE", b"40"),
            ("WEIGHTS", weights.as_bytes()),
            ("POSITIONS", b""),
            ("PHASE", b"RUN"),
            ("POSITIONS_FILE\"; filename=\"../list.csv.gz", &packed),
        ] {
            let head = format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend_from_slice(&[head.as_bytes(), value, b"\r\n"].concat());
        }
        body.extend_from_slice(b"--xx--\r\n");
        let request = site.request(Method::POST, "/async").bearer_auth(&token);
        let request = request.header("content-type", "multipart/form-data; boundary=xx");
        let job = Answer::of(request.body(body)).await.unwrap().location(303);
        let ended = site.wait(&token, &job).await;
        assert_eq!(value_of(&ended, "phase"), "COMPLETED", "{ended}");
        let missing = site.get(&token, &format!("{job}/results/not-found")).await.text();
        assert!(missing.contains("4,o3,") && missing.contains("no such band"), "{missing}");
        images.push(site.get(&token, &format!("{job}/results/image")).await.bytes);
    }
    assert!(images[0] != images[1] && images[1] != images[2], "weights make a difference");
    let fields = [("SURVEY", "sky"), ("BAND", "g"), ("POSITIONS", &*plain), ("PHASE", "RUN")];
    let refused = site.post(&token, "/async", &fields).await;
    assert!(refused.text().contains("has no band `g`: its bands are r"), "{}", refused.text());
}

#[tokio::test]
async fn aborted_and_late_jobs_are_cancelled_in_the_cluster() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "4", "--objects", "8"]);
    site.hold_tasks();
    site.start_portal();
    let token = site.account("ada", &[]);
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list)];
    let run = [("PHASE", "RUN")];
    let abort = [("PHASE", "ABORT")];
    let first = site.post(&token, "/async", &fields).await.location(303);
    site.post(&token, &format!("{first}/phase"), &run).await.location(303);
    site.until("tasks run", async || site.held() > 0).await;
    site.post(&token, &format!("{first}/phase"), &abort).await.location(303);
    assert_eq!(site.get(&token, &format!("{first}/phase")).await.text(), "ABORTED");
    let is_cancelled =
        |jobs: &[(String, String)]| jobs.iter().all(|(_, state)| state == "cancelled");
    site.until("the first job is cancelled", async || is_cancelled(&site.cluster_jobs())).await;
    // One second is not enough for tasks that wait.
    let with_bound = [&fields[..], &[("EXECUTIONDURATION", "1")], &run].concat();
    let second = site.post(&token, "/async", &with_bound).await.location(303);
    let ended = site.wait(&token, &second).await;
    assert_eq!(value_of(&ended, "phase"), "ABORTED");
    let error = site.get(&token, &format!("{second}/error")).await.text();
    assert!(error.contains("EXECUTIONDURATION, 1 s"), "{error}");
    // A job that is deleted while it runs leaves nothing behind.
    let third = site.post(&token, "/async", &fields).await.location(303);
    site.post(&token, &format!("{third}/phase"), &run).await.location(303);
    site.until("the third job is in the cluster", async || site.cluster_jobs().len() == 3).await;
    let to = site.post(&token, &third, &[("ACTION", "DELETE")]).await.location(303);
    assert_eq!(to, format!("{}/async", site.url()));
    site.until("all are cancelled", async || is_cancelled(&site.cluster_jobs())).await;
    let folder = site.path("work").join(third.rsplit('/').next().unwrap());
    site.until("its files are gone", async || !folder.exists()).await;
}

#[tokio::test]
async fn wrong_lists_and_values_are_refused_with_what_to_do() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "2", "--objects", "4"]);
    site.start_portal();
    let token = site.account("ada", &[]);
    let entity = "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><VOTABLE>&x;</VOTABLE>";
    for (name, value, words) in [
        ("SURVEY", "none", "write one of sky"),
        ("SIZE", "0", "1 to 2048 pixels"),
        ("SIZE", "1e3", "1 to 2048 pixels"),
        ("BAND", "r; rm -rf /", "cannot be the name of a band"),
        ("BAND", "--out=x", "cannot be the name of a band"),
        ("WEIGHTS", "x", "WEIGHTS=none"),
        ("COMMAND", "rm", "there is no parameter `COMMAND`"),
        ("POSITIONS", "ra,dec\n1,x\n", "line 2 of the list: `x` is not a number"),
        ("POSITIONS", entity, "remove DOCTYPE"),
        ("PHASE", "ABORT", "PHASE=RUN"),
        ("ACTION", "DELETE", "create the job without it"),
        ("EXECUTIONDURATION", "x", "in seconds"),
        ("DESTRUCTION", "x", "a time such as"),
    ] {
        let answer = site.post(&token, "/async", &[("PHASE", "RUN"), (name, value)]).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}={value}");
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    let answer = site.post(&token, "/async", &[("SURVEY", "sky"), ("PHASE", "RUN")]).await;
    assert!(answer.text().contains("set POSITIONS"), "{}", answer.text());
    assert!(!site.get(&token, "/async").await.text().contains("jobref"), "nothing is left behind");
    // 100 MB are refused by their length, before they are read.
    let huge = site
        .request(Method::POST, "/async")
        .bearer_auth(&token)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(vec![b'x'; 100 << 20]);
    match Answer::of(huge).await {
        Some(answer) => assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE),
        None => { /* The portal has closed the connection before all was sent. */ }
    }
    let compressed = site
        .request(Method::POST, "/async")
        .bearer_auth(&token)
        .header("content-encoding", "gzip")
        .body("x");
    let answer = Answer::of(compressed).await.unwrap();
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn requests_of_other_sites_come_in_nowhere() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "1", "--objects", "1"]);
    site.start_portal();
    let token = site.account("ada", &[]);
    site.portal_command(&["account", "passwd", "ada"], "a long password\n");
    let own = site.url();
    let ask = |method: Method, path: &str| site.request(method, path);
    let status = async |request| Answer::of(request).await.unwrap().status;
    // DNS rebinding.
    let rebound = ask(Method::GET, "/signin").header("host", "evil.example");
    assert_eq!(status(rebound).await, StatusCode::FORBIDDEN);
    assert_eq!(status(ask(Method::GET, "/async")).await, StatusCode::UNAUTHORIZED);
    let wrong = ask(Method::GET, "/async").bearer_auth("astroportal_00");
    assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED);
    let forged =
        ask(Method::DELETE, "/async/x").bearer_auth(&token).header("origin", "http://evil");
    assert_eq!(status(forged).await, StatusCode::FORBIDDEN);
    let basic = ask(Method::GET, "/async").basic_auth("ada", Some(&token));
    assert_eq!(status(basic).await, StatusCode::OK);
    let basic = ask(Method::GET, "/async").basic_auth("ada", Some("a long password"));
    assert_eq!(status(basic).await, StatusCode::UNAUTHORIZED, "passwords are for the page alone");
    // A browser signs in, and only from the portal's own page.
    let form = "NAME=ada&PASSWORD=a+long+password";
    let sign_in = |origin: &str| {
        ask(Method::POST, "/signin")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin)
            .body(form)
    };
    assert_eq!(status(sign_in("http://evil")).await, StatusCode::FORBIDDEN);
    let answer = Answer::of(sign_in(&own)).await.unwrap();
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Lax; Path=/"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let with_cookie = |method: Method, path: &str| ask(method, path).header("cookie", cookie);
    assert_eq!(status(with_cookie(Method::GET, "/")).await, StatusCode::OK);
    let session = cookie.split_once('=').unwrap().1;
    let other = ask(Method::GET, "/").header("cookie", format!("astroportal-1={session}"));
    assert_eq!(status(other).await, StatusCode::SEE_OTHER, "a cookie of another port");
    let hidden = with_cookie(Method::POST, "/async");
    assert_eq!(status(hidden).await, StatusCode::FORBIDDEN, "a browser says where it comes from");
    let page = Answer::of(with_cookie(Method::GET, "/account")).await.unwrap();
    assert!(page.header("content-security-policy").contains("script-src 'self'"));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    // A new password ends the session.
    site.portal_command(&["account", "passwd", "ada"], "another password\n");
    assert_eq!(status(with_cookie(Method::GET, "/")).await, StatusCode::SEE_OTHER);
    // Guesses become slow.
    let guess = async || status(sign_in(&own)).await;
    let mut last = StatusCode::OK;
    for _ in 0..8 {
        last = guess().await;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_token_of_the_cluster_that_has_ended_is_waited_for() {
    let Some(mut site) = Site::new() else { return };
    site.survey("sky", &["--frames", "2", "--objects", "4"]);
    site.start_portal();
    let token = site.account("ada", &[]);
    let good = fs::read_to_string(site.path("cluster.token")).unwrap();
    fs::write(site.path("cluster.token"), "eyas_web_wrong\n").unwrap();
    let list = positions(&site, "sky");
    let fields = [("SURVEY", "sky"), ("SIZE", "40"), ("POSITIONS", &list), ("PHASE", "RUN")];
    let job = site.post(&token, "/async", &fields).await.location(303);
    site.until("the job says why it waits", async || {
        site.get(&token, &job).await.text().contains("refuses the portal&apos;s token")
    })
    .await;
    let availability = Client::new().get(format!("{}/availability", site.url()));
    let words = Answer::of(availability).await.unwrap().text();
    assert!(words.contains("refuses the portal"), "{words}");
    fs::write(site.path("cluster.token"), good).unwrap();
    assert_eq!(value_of(&site.wait(&token, &job).await, "phase"), "COMPLETED");
}
