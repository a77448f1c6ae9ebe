//! Words and items of a command that name files, and what they become on the node.

use super::*;
use crate::draft::DraftTasks;

/// A file in the folder in which tests run.
const FILE: &str = "Cargo.toml";

fn absolute() -> String {
    std::env::current_dir().unwrap().join(FILE).to_str().unwrap().to_owned()
}

fn fields(command: &[&str], lines: &[&[&str]]) -> TaskFields {
    let line = |(number, columns): (usize, &&[&str])| ListLine {
        number,
        columns: columns.iter().map(|column| Name::from(*column)).collect(),
    };
    TaskFields {
        command: CommandWords(command.iter().map(|word| Name::from(*word)).collect()),
        items: (1..).zip(lines).map(line).collect(),
        append: Some(false),
        ..TaskFields::default()
    }
}

async fn drafted(fields: TaskFields) -> Result<Draft, TaskFieldsError> {
    let mut draft = Draft::new("test");
    fields.draft(&mut draft).await.map(|()| draft)
}

#[tokio::test]
async fn the_estimate_of_location_is_added_to_a_rank() {
    let rank_of = async |rank: Option<&str>, location_weight| {
        let rank = rank.map(str::to_owned);
        let fields = TaskFields { rank, location_weight, ..fields(&["true"], &[]) };
        drafted(fields).await.map(|draft| draft.templates[0].rank.clone())
    };
    for (rank, weight, whole) in [
        ("node.cpus", None, "(node.cpus\n) - 1.0 * transfer_seconds"),
        ("node.cpus // the most", Some(0.5), "(node.cpus // the most\n) - 0.5 * transfer_seconds"),
        ("node.cpus", Some(0.0), "node.cpus"),
        ("-transfer_seconds", None, "-transfer_seconds"),
    ] {
        assert_eq!(rank_of(Some(rank), weight).await.unwrap().unwrap(), whole);
    }
    assert_eq!(rank_of(None, None).await.unwrap(), None);
    for (rank, weight, says) in [
        (Some("node.cpus"), Some(-1.0), "cannot have the location weight -1"),
        (Some("node.cpus"), Some(f64::NAN), "cannot have the location weight NaN"),
        (None, Some(1.0), "the task has none: add a rank"),
        (Some("node.name"), None, "rank `node.name`, column 1: it has to be a number"),
    ] {
        let error = rank_of(rank, weight).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn words_that_name_a_declared_file_are_its_copy_on_the_node() {
    for input in [FILE, &format!("./{FILE}"), &absolute()] {
        for word in [FILE, &format!(".//./{FILE}"), &absolute()] {
            let mut fields = fields(&["wc", word, "other"], &[]);
            fields.inputs = vec![InputFields::Path(input.into())];
            let draft = drafted(fields).await.unwrap();
            let Program::Command(words) = &draft.templates[0].program else { panic!("a command") };
            let parts: Vec<_> = words.iter().map(|word| &word.0[0]).collect();
            assert!(
                matches!(
                    parts[..],
                    [TemplatePart::Literal(_), TemplatePart::Input(0), TemplatePart::Literal(_)]
                ),
                "{input} {word}: {parts:?}"
            );
        }
    }
}

#[tokio::test]
async fn items_that_name_a_declared_file_are_its_copy_on_the_node() {
    let path = absolute();
    let columns: &[&str] = &["x", &path, FILE, "missing"];
    let mut of_all = fields(&["grep", "{1}", "{2}", "{3}"], &[columns]);
    of_all.inputs = vec![InputFields::Path("src/lib.rs".into()), InputFields::Path(FILE.into())];
    let mut of_item = fields(&["grep", "{1}", "{2}", "{3}"], &[columns]);
    of_item.inputs = vec![InputFields::Path("{3}".into()), InputFields::Path("{2}".into())];
    let all = Some(TEMPLATE_INPUT | 1);
    for (fields, expected) in
        [(of_all, [None, all, all, None]), (of_item, [None, Some(1), Some(0), None])]
    {
        let draft = drafted(fields).await.unwrap();
        let [DraftTasks::Items(items)] = &draft.tasks[..] else { panic!("one list of items") };
        let inputs: Vec<_> = items[0].values.iter().map(|value| value.input).collect();
        assert_eq!(inputs, expected);
    }
}

#[tokio::test]
async fn numbers_that_name_a_declared_file_are_its_copy_on_the_node() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("4"), "four").unwrap();
    for (array, expected) in [("2-6:2", vec![None, Some(TEMPLATE_INPUT), None]), ("1-5:2", vec![])]
    {
        let mut draft = Draft::new("test");
        draft.set_folder(folder.path());
        let mut fields = fields(&["cat", "{}"], &[]);
        (fields.array, fields.inputs) =
            (OneOrMore(vec![array.into()]), vec![InputFields::Path("./4".into())]);
        fields.draft(&mut draft).await.unwrap();
        let inputs: Vec<_> = match &draft.tasks[..] {
            [DraftTasks::Items(items)] => items.iter().map(|item| item.values[0].input).collect(),
            [DraftTasks::Numbers { count: 3, .. }] => Vec::new(),
            _ => panic!("one list of three tasks"),
        };
        assert_eq!(inputs, expected, "{array}");
    }
}

#[tokio::test]
async fn a_placeholder_without_an_item_is_refused() {
    let with_input = |path: &str| TaskFields {
        inputs: vec![InputFields::Path(path.into())],
        ..fields(&["true"], &[])
    };
    let with_env = TaskFields { env: [("X".into(), "{}".into())].into(), ..fields(&["true"], &[]) };
    for wrong in
        [fields(&["echo", "{}"], &[]), fields(&["echo", "a{/.}"], &[]), with_input("{}"), with_env]
    {
        let error = drafted(wrong).await.err().expect("it has no item").to_string();
        assert!(error.contains("the task has none") && error.contains(r"`\{}`"), "{error}");
    }
    assert!(drafted(fields(&["find", "-exec", "rm", r"\{}", ";"], &[])).await.is_ok());
}

#[tokio::test]
async fn inputs_of_one_name_have_folders_of_their_own_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["a", "b", "c"] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(&format!("{name}/x.fits")), name).unwrap();
    }
    std::fs::write(path("y.fits"), "y").unwrap();
    let with = |command: &[&str], inputs: &[&str], columns: &[&[&str]]| TaskFields {
        inputs: inputs.iter().map(|input| InputFields::Path(input.to_string().into())).collect(),
        folder: Some("sandbox".into()),
        ..fields(command, columns)
    };
    let [a, b, c, y] = ["a/x.fits", "b/x.fits", "c/x.fits", "y.fits"].map(path);
    let names_of = |inputs: &[Input]| -> Vec<String> {
        inputs.iter().map(|input| input.name.as_ref().map_or("-".into(), Name::to_string)).collect()
    };
    let table: [(&[&str], &[&str]); 3] = [
        (&[&a, &y, &b], &["input-1/x.fits", "-", "input-3/x.fits"]),
        (&[&a, &a], &["-", "-"]),
        (
            &[&format!("{}/*/x.fits", path("")), &y],
            &["input-1/x.fits", "input-2/x.fits", "input-3/x.fits", "-"],
        ),
    ];
    for (inputs, expected) in table {
        let draft = drafted(with(&["true"], inputs, &[])).await.unwrap();
        assert_eq!(names_of(&draft.templates[0].inputs), expected, "{inputs:?}");
    }
    // Inputs of the item, after one of the template.
    let columns: &[&str] = &[&b, &c];
    let draft =
        drafted(with(&["cmp", "{1}", "{2}"], &[&y, "{1}", "{2}"], &[columns])).await.unwrap();
    let [DraftTasks::Items(items)] = &draft.tasks[..] else { panic!("one list of items") };
    assert_eq!(names_of(&items[0].inputs), ["input-2/x.fits", "input-3/x.fits"]);
    let glob = ["sh", "-c", "cat *.fits"];
    for (inputs, columns) in
        [(&[&a[..], &b][..], &[][..]), (&["{1}", "{2}"], &[columns]), (&[&a, "{1}"], &[columns])]
    {
        let error = drafted(with(&glob, inputs, columns))
            .await
            .err()
            .expect("it reads one of them")
            .to_string();
        assert!(error.contains("all named `x.fits`") && error.contains("{inputs}"), "{error}");
    }
    assert!(drafted(with(&glob, &[&a, &y], &[])).await.is_ok());
}

#[tokio::test]
async fn a_line_that_lacks_a_column_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    std::fs::write(&list, "a,1\n\nb\n").unwrap();
    let list = list.to_str().unwrap();
    let with = |command: &[&str], inputs: &[&str], separator: Option<&str>| TaskFields {
        each_line: Some(list.into()),
        separator: separator.map(str::to_owned),
        inputs: inputs.iter().map(|path| InputFields::Path((*path).into())).collect(),
        ..fields(command, &[])
    };
    for (fields, says) in [
        (
            with(&["echo", "{2}"], &[], Some(",")),
            "line 3: `{2}` asks for column 2, but the item has 1 column; columns are separated by \
             `,`: add what is missing",
        ),
        (
            with(&["cat"], &["x{2}"], Some(",")),
            "line 3: input `x{2}` asks for column 2, but the item has 1 column; columns are",
        ),
        (
            with(&["echo", "{2}"], &[], None),
            "line 1: `{2}` asks for column 2, but the item has 1 column; give the text between",
        ),
    ] {
        let mut draft = Draft::new("test");
        draft.set_folder(folder.path());
        std::fs::write(folder.path().join("x1"), "").unwrap();
        let said = fields.draft(&mut draft).await.expect_err("it lacks a column").to_string();
        assert!(said.starts_with(&format!("{list}, {says}")), "{said}");
    }
}

#[test]
fn a_path_in_a_word_is_found() {
    for (text, is_there) in [
        ("--db=a/b.fa", true),
        ("sh -c 'x <a/b.fa'", true),
        ("xa/b.fa", false),
        ("a/b.fai", false),
        ("a/b", false),
    ] {
        assert_eq!(paths::mentions(text.as_bytes(), b"a/b.fa"), is_there, "{text}");
    }
}
