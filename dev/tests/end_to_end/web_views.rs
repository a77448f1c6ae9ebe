//! What the page of `eyas web` shows beside lists: timelines of executors, all tasks as one table,
//! and pushes over HTTP.

use serde_json::{Value, json};

use crate::support::{Cluster, wait_for, wait_until};
use crate::web::{TOML, WebProcess};

/// Sum of the fields of the totals of a timeline that end in `_us`.
fn slot_time(totals: &Value) -> u64 {
    let fields = totals.as_object().expect("totals").iter();
    let times = fields.filter(|(name, _)| name.ends_with("_us"));
    times.map(|(_, value)| value.as_u64().expect("microseconds")).sum()
}

/// The content of an answer that came in chunks.
fn whole(mut chunks: &str) -> String {
    let mut content = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("the length of a chunk");
        content += &rest[..length];
        chunks = rest[length..].strip_prefix("\r\n").unwrap_or_default();
    }
    content
}

#[test]
fn a_timeline_has_each_task_on_a_slot_of_its_executor() {
    let cluster = Cluster::start(&[&["--slots", "2"], &["--slots", "1"]]);
    let web = WebProcess::start(&cluster);
    let script = "[ {} = 3 ] && exit 1; [ {} -gt 6 ] && until [ -e go ]; do sleep 0.02; done; true";
    let job = format!("[[task]]\narray = \"1-8\"\ncommand = [\"sh\", \"-c\", {script:?}]\n");
    web.submit(TOML, &job);
    wait_until("two tasks run, and six have ended", || {
        let tasks = web.api("/jobs/1")["jobs"][0]["tasks"].clone();
        tasks["assigned"] == 2 && tasks["succeeded"] == 5 && tasks["failed"] == 1
    });
    let states = |timeline: &Value| {
        let bars = timeline["bars"].as_array().expect("few tasks").clone();
        let mut states: Vec<_> =
            bars.iter().map(|bar| (bar["index"].as_u64(), bar["state"].clone())).collect();
        states.sort_by_key(|(index, _)| *index);
        states.into_iter().map(|(_, state)| state).collect::<Vec<_>>()
    };
    let of_job = |query: &str| web.api(&format!("/jobs/1/timeline?{query}"))["timeline"].clone();
    let good = "succeeded";
    let live = json!([good, good, "failed", good, good, good, "open", "open"]);
    wait_for("the timeline of a running job", || {
        (json!(states(&of_job(""))) == live).then_some(())
    });
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(1);
    let ended = json!([good, good, "failed", good, good, good, good, good]);
    wait_for("the timeline of the ended job", || {
        (json!(states(&of_job(""))) == ended).then_some(())
    });

    let timeline = of_job("");
    let rows = timeline["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| (row["executor"].clone(), &row["slot"])).collect();
    assert_eq!(json!(names), json!([["n1", 1], ["n1", 2], ["n2", 1]]));
    let end_us = timeline["end_us"].as_u64().expect("a time");
    assert_eq!(slot_time(&timeline["totals"]), 3 * end_us, "each slot has its whole time");
    let mut last = [0; 3];
    for bar in timeline["bars"].as_array().expect("few tasks") {
        let time = |name: &str| bar[name].as_u64().expect("a time");
        let times = ["staged_us", "started_us", "ended_us", "delivered_us"].map(time);
        assert!(times.is_sorted() && times[3] <= end_us, "{bar}");
        let row = bar["row"].as_u64().expect("a row") as usize;
        assert!(last[row] <= times[0], "tasks of a slot follow each other: {timeline}");
        last[row] = times[3];
        let task = &web.api(&format!("/jobs/1/tasks/{}", bar["index"]))["task"];
        assert_eq!(task["executor"], rows[row]["executor"]);
        assert_eq!(task["ran_us"], times[2] - times[1]);
        assert_eq!(bar["is_estimated"], bar["state"] == "failed");
    }
    let middle = end_us / 2;
    let part = of_job(&format!("executor=n1&from_us={middle}&idle=compressed"));
    assert_eq!(part["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(part["from_us"], middle);
    let wrong = web.get("/api/v1/jobs/1/timeline?executor=n9").is(404);
    assert!(wrong.code() == "not-found" && wrong.body.contains("n9"));
    web.get("/api/v1/jobs/1/timeline?idle=none").is(400);
    web.get("/api/v1/jobs/9/timeline").is(404);
}

#[test]
fn many_tasks_are_drawn_together_and_written_as_one_table() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    let web = WebProcess::start(&cluster);
    web.submit(TOML, "[[task]]\nnoop = true\narray = \"1-5000\"\n");
    cluster.run(&["job", "wait", "1"]).exits(0);
    let timeline = web.api("/jobs/1/timeline");
    let timeline = &timeline["timeline"];
    assert_eq!(timeline["bars"], Value::Null);
    let columns = timeline["columns"].as_u64().expect("a grid") as usize;
    for row in timeline["rows"].as_array().expect("rows") {
        assert_eq!(row["cells"]["computing"].as_array().map(Vec::len), Some(columns));
    }
    assert_eq!(timeline["totals"]["tasks"], 5000);

    let csv = web.get("/api/v1/jobs/1/tasks.csv").is(200);
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(csv.header("content-disposition"), Some("attachment; filename=\"job-1.csv\""));
    let table = whole(&csv.body);
    assert!(table.starts_with("task,id,state,"), "{}", &table[..80]);
    assert_eq!(table.lines().count(), 5001);
    assert!(table.lines().nth(5000).expect("a line").starts_with("1.4999,,succeeded,"));
    let json = whole(&web.get("/api/v1/jobs/1/tasks.json").is(200).body);
    let tasks: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(5000));
    let listed = web.api("/jobs/1/tasks?limit=1");
    assert_eq!(tasks["tasks"][0], listed["tasks"][0], "the same fields as in the list");
    web.get("/api/v1/jobs/9/tasks.csv").is(404);
}

#[test]
fn objects_are_pushed_over_http() {
    let cluster = Cluster::start(&[&[], &[]]);
    let web = WebProcess::start(&cluster);
    cluster.write("a.txt", "a");
    cluster.write("b.txt", "b");
    let push = |body: &Value| web.send("POST", "/api/v1/push", &[], &body.to_string());
    let pushed = push(&json!({ "objects": ["*.txt"], "to": ["n2"] })).is(200).json();
    assert_eq!(pushed["push"]["objects"], 2);
    wait_until("one executor has the files", || {
        let executors = web.api("/executors")["executors"].clone();
        let objects = |name: &str| {
            let all = executors.as_array().expect("executors").iter();
            all.filter(|view| view["name"] == name).map(|view| view["objects"].clone()).next()
        };
        json!([objects("n1"), objects("n2")]) == json!([0, 2])
    });
    for wrong in [
        json!({ "objects": [] }),
        json!({ "objects": ["none.txt"] }),
        json!({ "objects": ["a.txt"], "colour": 1 }),
        json!({ "objects": ["a.txt"], "distribution": "x" }),
        json!([]),
    ] {
        assert_eq!(push(&wrong).is(422).code(), "wrong-push", "{wrong}");
    }
    let reply = push(&json!({ "objects": ["a.txt"], "to": ["n9"] }));
    assert!(reply.body.contains("n9"), "{reply:?}");
}
