//! Values of correct expressions; positions and messages of mistakes in others.

use eyas_types::matching::{Fact, Facts, Labels};

use proptest::prelude::*;

use super::*;

struct Node(Labels);

impl Facts for Node {
    fn fact(&self, attribute: Attribute) -> Fact<'_> {
        match attribute {
            Attribute::NodeName | Attribute::NodeHost => Fact::Text("n1"),
            Attribute::NodeLabels => Fact::Labels(&self.0),
            Attribute::NodeCpus => Fact::Fraction(8.0),
            Attribute::NodeMemory => Fact::Whole(64 << 30),
            Attribute::TaskJob => Fact::Text("night-7"),
            Attribute::NodeDisk => Fact::Whole(u64::MAX),
            Attribute::LocalBytes => Fact::Whole(500),
            Attribute::TaskInputBytes => Fact::Whole(1000),
            Attribute::NodeLoad | Attribute::TransferSeconds => Fact::Fraction(0.5),
            _ => Fact::Whole(0),
        }
    }
}

fn node() -> Node {
    Node(
        [("site", "a"), ("gpu-kind", "a100"), ("rack", "r1")]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
    )
}

fn holds(text: &str) -> Result<bool, String> {
    let parts = accept(text).map_err(|error| error.to_string())?;
    parts.iter().try_fold(true, |all, part| {
        Ok(all && part.holds(&node()).map_err(|error| error.to_string())?)
    })
}

#[test]
fn conditions_hold_or_do_not() {
    let table = [
        ("node.cpus >= 4", true),
        ("node.cpus == 8", true),
        ("node.cpus * 2 > 15.5 && node.memory > 1024 * 1024", true),
        ("node.labels.site == 'a'", true),
        ("node.labels.site in ['b', 'c']", false),
        (r#"node.labels["gpu-kind"] == "a100""#, true),
        ("has(node.labels.tape)", false),
        ("'rack' in node.labels && !('tape' in node.labels)", true),
        ("node.labels.tape == 'x' || node.name == 'n1'", true),
        ("local_bytes * 2 >= task.input_bytes", true),
        ("double(local_bytes) / task.input_bytes > 0.4", true),
        ("local_bytes / 2.0 == 250", true),
        ("task.job.startsWith('night-')", true),
        ("(node.load < 0.9 ? node.cpus : 0) == 8", true),
        ("node.disk > 0", true),
        ("size(node.labels) == 3 && size('é') == 1", true),
        ("task.attempt % 2 == 0", true),
        ("string(node.cpus) != ''", true),
    ];
    for (text, expected) in table {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_rank_is_a_number() {
    let number =
        |text| terms(None, Some(text)).unwrap().unwrap().rank.as_ref().unwrap().number(&node());
    assert_eq!(number("local_bytes"), Ok(500.0));
    assert_eq!(number("-transfer_seconds"), Ok(-0.5));
    assert_eq!(number("has(node.labels.ssd) ? 1 : 0.5"), Ok(0.5));
    assert!(
        number("1 / (local_bytes - 500)").unwrap_err().to_string().contains("Division by zero")
    );
    assert!(number("0.0 / 0.0").is_err(), "not a number");
}

#[test]
fn an_expression_without_a_value_says_why() {
    let why = holds("node.labels.tape == 'x'").unwrap_err();
    assert!(why.contains("tape"), "{why}");
}

#[test]
fn wrong_expressions_are_refused_before_they_run() {
    let table = [
        ("node.cpus >", 12, "yntax"),
        ("node.cpus > 4)", 14, "yntax"),
        ("node.cpu > 4", 5, "no attribute `node.cpu`; there are node.name, "),
        ("4 < cpus", 5, "no attribute `cpus`"),
        ("node.labels.site.x == 'a'", 17, "only node.labels has named parts"),
        ("node.name > 4", 11, "`>` needs two numbers or two texts, not a text and a whole number"),
        ("node.name == 4", 11, "`==` needs two values of one type, not a text and a whole number"),
        ("node.cpus", 1, "it has to be true or false, and is a fraction"),
        ("node.cpus && true", 11, "`&&` needs two truth values"),
        ("!node.name", 1, "`!` needs a truth value"),
        ("node.labels.exists(l, l == 'x')", 19, "cannot loop"),
        ("node.name.matches('x.*')", 18, "no function `matches`; there are size()"),
        ("node.name in []", 14, "the list is empty"),
        ("node.name in ['a', 1]", 20, "a list of a text cannot have a whole number"),
        ("node.name == null", 14, "test with has()"),
        ("  ", 1, "it is empty"),
        ("node.name + 1 == 'a'", 11, "`+` needs two numbers or two texts"),
    ];
    for (text, column, why) in table {
        let error = accept(text).unwrap_err();
        assert!(error.why.contains(why), "{error}");
        assert_eq!(error.column, column, "{error}");
    }
    let error = terms(None, Some("node.name")).unwrap_err().to_string();
    assert!(
        error.starts_with("rank `node.name`, column 1: it has to be a number, and is a text"),
        "{error}"
    );
    let error = terms(Some("true &&\n node.x"), None).unwrap_err();
    assert_eq!((error.what, error.column), ("requirements", 14));
}

#[test]
fn a_condition_is_cut_at_its_ands_at_any_depth() {
    let table: [(&str, &[&str]); 14] = [
        ("a && b", &["a", "b"]),
        ("(a && b) && f(c && d)", &["a", "b", "f(c && d)"]),
        ("(a) && ((b && (c)) && d)", &["(a)", "b", "(c)", "d"]),
        ("((a && b))", &["a", "b"]),
        ("(a && b) == (c && d)", &["(a && b) == (c && d)"]),
        ("(a || b) && c", &["(a || b)", "c"]),
        ("(a && b || c) && d", &["(a && b || c)", "d"]),
        ("!(a && b) && c", &["!(a && b)", "c"]),
        ("a && b || c", &["a && b || c"]),
        ("a ? b && c : d", &["a ? b && c : d"]),
        (r#"x == "&& \" &&" && y == '&&"'"#, &[r#"x == "&& \" &&""#, r#"y == '&&"'"#]),
        ("a && b // && c", &["a", "b // && c"]),
        ("(a // ) && x\n) && (b && c)", &["(a // ) && x\n)", "b", "c"]),
        ("a)) && b", &["a)) && b"]),
    ];
    for (text, expected) in table {
        assert_eq!(parts::of(text), expected);
    }
    let terms = terms(Some("(has(node.labels.x)) && (node.cpus > 1 && local_bytes > 5)"), None)
        .unwrap()
        .unwrap();
    let fixed: Vec<_> = terms.requirements.iter().map(|part| part.is_fixed()).collect();
    assert_eq!(fixed, [true, true, false]);
}

#[test]
fn equal_texts_are_equal_terms() {
    let of = |requirements, rank| terms(requirements, rank).unwrap();
    assert_eq!(of(None, None), None);
    assert_eq!(of(Some("true"), Some("1")), of(Some(" true "), Some("1")));
    assert_ne!(of(Some("true"), Some("1")), of(Some("true"), None));
    assert_ne!(of(Some("true && false"), None), of(Some("true"), None));
}

#[test]
fn numbers_at_their_ends_are_no_accident() {
    let least = "(-9223372036854775807 - 1)";
    for text in [
        format!("-{least} > 0"),
        format!("{least} / -1 > 0"),
        format!("{least} % -1 > 0"),
        "9223372036854775807 + 1 > 0".into(),
        "node.disk * 2 > 0".into(),
        "1 % 0 > 0".into(),
        "int('x') > 0".into(),
        "int(1e300) > 0".into(),
        "int(0.0 / 0.0) > 0".into(),
        "0.0 / 0.0 < 1.0".into(),
    ] {
        let parts = accept(&text).unwrap();
        assert_ne!(parts[0].holds(&node()), Ok(true), "{text}");
    }
}

/// Words of which expressions are made, and others.
const WORDS: &[&str] = &[
    "node",
    ".",
    "name",
    "labels",
    "cpus",
    "task",
    "job",
    "local_bytes",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'a'",
    "\"b\"",
    "'",
    "\"",
    "1",
    "2.5",
    "-",
    "+",
    "*",
    "/",
    "%",
    "&&",
    "||",
    "!",
    "==",
    "!=",
    "<",
    ">=",
    "in",
    "?",
    ":",
    ",",
    " ",
    "\n",
    "true",
    "false",
    "null",
    "has",
    "size",
    "int",
    "double",
    "string",
    "startsWith",
    "exists",
    "x",
    "é",
    "\u{1F980}",
    "\\",
    "//",
    "0x",
    "1e999",
    "u",
    "b",
    "r",
    "`",
    "$",
    "@",
    "#",
    "9223372036854775808",
    "'\\u00e9'",
    "'\\xff'",
    "duration",
    "type",
    "dyn",
    "matches",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expression_panics(words in prop::collection::vec(0..WORDS.len(), 0..14)) {
        let text: String = words.iter().map(|word| WORDS[*word]).collect();
        if let Ok(parts) = accept(&text) {
            parts.iter().for_each(|part| drop(part.holds(&node())));
        }
        if let Ok(terms) = terms(None, Some(&text)) {
            drop(terms.unwrap().rank.as_ref().unwrap().number(&node()));
        }
    }
}

#[test]
fn no_expression_is_too_much_for_a_small_stack() {
    let deep = |open: &str, inner: &str, close: &str| {
        let fits = (MAX_BYTES - inner.len()) / (open.len() + close.len());
        format!("{}{inner}{}", open.repeat(fits), close.repeat(fits))
    };
    let table = [
        deep("(", "true", ")"),
        deep("!", "true", ""),
        deep("-", "1", ""),
        deep("1+", "1", ""),
        deep("", "true", "&&true"),
        deep("", "true", "||true"),
        deep("true?true:", "true", ""),
        deep("", "node", ".a"),
        deep("", "node.labels", "['']"),
        deep("[", "1", "]"),
        deep("size(", "''", ")"),
        deep("", "'a'", "+'a'"),
        "x".repeat(MAX_BYTES + 1),
        "(".repeat(MAX_BYTES),
        "\u{1F980}".repeat(MAX_BYTES / 4),
    ];
    // As small as the stacks of the dispatcher's threads.
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in table {
            let _ = accept(&text)
                .map(|parts| parts.iter().map(|part| part.holds(&node())).collect::<Vec<_>>());
            let _ = terms(None, Some(&text))
                .map(|terms| terms.unwrap().rank.as_ref().unwrap().number(&node()));
        }
    });
    thread.unwrap().join().unwrap();
}
