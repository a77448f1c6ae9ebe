//! `eyas job graph`: the picture of a job is well-formed, and has its templates, states and arrows.

use eyas_tree::{generated, root};

use crate::support::Cluster;

/// An element of a picture: its name, attributes, and the text directly in it.
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
}

impl Element {
    fn has(&self, name: &str, value: &str) -> bool {
        self.attributes.iter().any(|(other, of)| other == name && of == value)
    }
}

/// Text of XML without its five escapes.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let (escape, after) = after.split_once(';').expect("an escape is closed");
        plain.push_str(before);
        plain.push(match escape {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "#39" => '\'',
            other => panic!("&{other}; is no escape of XML"),
        });
        rest = after;
    }
    plain + rest
}

/// The attributes in a tag, after its name.
fn attributes(mut tag: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Some((name, after)) = tag.trim_start().split_once("=\"") {
        let (value, after) = after.split_once('"').expect("a value is closed");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)), "{name:?}");
        assert!(!value.contains('<'), "{value:?}");
        found.push((name.to_owned(), unescaped(value)));
        tag = after;
    }
    assert!(["", "/"].contains(&tag.trim()), "{tag:?}");
    found
}

/// The elements of well-formed XML, in the order of their ends.
fn elements(xml: &str) -> Vec<Element> {
    let allowed =
        |c: char| matches!(c, '\t' | '\n' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(allowed), "a character that XML does not allow");
    let (mut found, mut open): (Vec<Element>, Vec<Element>) = (Vec::new(), Vec::new());
    let mut rest = xml;
    while let Some((text, after)) = rest.split_once('<') {
        match open.last_mut() {
            Some(element) => element.text += &unescaped(text),
            None => assert!(text.trim().is_empty(), "text outside of the picture: {text:?}"),
        }
        let (tag, after) = after.split_once('>').expect("a tag is closed");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let element = open.pop().expect("an element is open");
            assert_eq!(element.name, name);
            found.push(element);
            continue;
        }
        let (name, words) = tag.split_once([' ', '\n']).unwrap_or((tag.trim_end_matches('/'), ""));
        let element =
            Element { name: name.into(), attributes: attributes(words), text: String::new() };
        if tag.ends_with('/') { found.push(element) } else { open.push(element) }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "an element is not closed");
    found
}

/// The texts of a picture.
fn texts(found: &[Element]) -> Vec<&str> {
    found.iter().filter(|of| of.name == "text").map(|of| of.text.as_str()).collect()
}

const WORKFLOW: &str = r#"
name = "a <b> & \"c\""

[[task]]
id = "split"
array = "1-3"
command = ["sh", "-c", "echo '<x>' {} >part"]
outputs = [{ file = "part", keep = true }]

[[task]]
id = "merge"
inputs = [{ task = "split", into = "{index}" }]
command = ["sh", "-c", "cat 0 1 2 >all"]
outputs = [{ file = "all", keep = true }]

[[task]]
inputs = [{ task = "split", index = 0 }, { task = "merge" }]
command = ["false"]
"#;

#[test]
fn a_graph_has_templates_with_their_states_and_arrows() {
    let cluster = Cluster::start(&[&["--cache", "1GB"]]);
    cluster.write("job.toml", WORKFLOW);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    let svg = cluster.run(&["job", "graph", "last"]).exits(0).stdout;
    let found = elements(&svg);
    let root = found.last().expect("a picture");
    assert_eq!(root.name, "svg");
    assert!(root.has("xmlns", "http://www.w3.org/2000/svg"));
    let templates = found.iter().filter(|of| of.has("class", "template")).count();
    let arrows = found.iter().filter(|of| of.has("class", "arrow")).count();
    assert_eq!((templates, arrows), (3, 3));
    let texts = texts(&found);
    let count = |text: &str| texts.iter().filter(|of| **of == text).count();
    assert_eq!(count("Job 1: a <b> & \"c\""), 1, "{texts:?}");
    assert_eq!((count("split"), count("merge"), count("false")), (1, 1, 2), "{texts:?}");
    assert_eq!((count("3 succeeded"), count("1 succeeded"), count("1 failed")), (1, 1, 1));
    assert_eq!((count("all"), count("1 read")), (1, 1), "merge reads all, the last one of them");
    assert!(texts.iter().any(|text| text.starts_with("sh -c 'echo '\\''<x>'")), "{texts:?}");

    cluster.run(&["job", "graph", "1", "-o", "graph.svg"]).exits(0).says(&["graph.svg"]);
    assert_eq!(cluster.read("graph.svg"), svg);
    let dot = cluster.run(&["job", "graph", "1", "--format", "dot"]).exits(0).stdout;
    assert!(dot.contains("t0 -> t1 [label=\"all\"];") && dot.contains("t1 -> t2;"), "{dot}");
    let graph = cluster.ask(&["job", "graph", "1"], "graph");
    assert_eq!(graph["templates"][0]["tasks"]["succeeded"], 3);
    assert_eq!(graph["reads"][0]["pairs"], 3);
    cluster.run(&["job", "graph", "7"]).exits(1).says(&["there is no job 7"]);
}

#[test]
fn a_graph_of_many_templates_is_bounded() {
    let cluster = Cluster::start(&[&["--cache", "1GB"]]);
    let first = "{\"id\":\"t0\",\"command\":[\"true\",\"0\"],\
                 \"outputs\":[{\"file\":\"o\",\"keep\":true}]}\n";
    let further = (1..700).map(|number| {
        format!(
            "{{\"id\":\"t{number}\",\"command\":[\"true\",\"{number}\"],\
             \"inputs\":[{{\"task\":\"t{}\"}}],\"outputs\":[{{\"file\":\"o\",\"keep\":true}}]}}\n",
            number - 1
        )
    });
    cluster.write("job.jsonl", first.to_owned() + &further.collect::<String>());
    cluster.submit("job.jsonl");
    let svg = cluster.run(&["job", "graph", "1"]).exits(0).stdout;
    let found = elements(&svg);
    assert_eq!(found.iter().filter(|of| of.has("class", "template")).count(), 300);
    let left_out = "400 templates left out: the picture has 300 of 700.";
    assert!(texts(&found).contains(&left_out), "{:?}", texts(&found).last());
}

#[test]
fn the_picture_in_the_guide_is_current() {
    let guide = std::fs::read_to_string(root().join("docs/guides/workflows.md")).expect("a page");
    let (_, job) = guide.split_once("```toml\n# graph.toml\n").expect("a job file");
    let (job, _) = job.split_once("```").expect("the end of the job file");
    let cluster = Cluster::start(&[&["--cache", "1GB"]]);
    cluster.write("graph.toml", job);
    cluster.run(&["submit", "--wait", "graph.toml"]).exits(0);
    let svg = cluster.run(&["job", "graph", "last"]).exits(0).stdout;
    let found = elements(&svg);
    let texts = texts(&found);
    let count = |text: &str| texts.iter().filter(|of| **of == text).count();
    assert_eq!((count("each of its own"), count("all")), (1, 1), "{texts:?}");
    generated("docs/images/graph.svg", &svg);
}
