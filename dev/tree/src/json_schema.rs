//! A JSON Schema of the answers of `--json`, made from the types in `wire` and `types`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::reference::{TypeText, types};

/// Names of answers, each with the Rust type of its value, or of each of its values.
const ANSWERS: &[(&str, &[&str])] = &[
    ("events", &["Vec<EventView>"]),
    ("executors", &["Vec<ExecutorView>", "u64"]),
    ("explanation", &["Explanation"]),
    ("file", &["FileView"]),
    ("graph", &["JobGraph"]),
    ("io", &["IoView"]),
    ("job", &["JobId"]),
    ("jobs", &["Vec<JobView>", "u64"]),
    ("keys", &["Vec<KeyView>"]),
    ("done", &["bool"]),
    ("names", &["Vec<NamedFileView>", "u64"]),
    ("next", &["Option<u64>"]),
    ("objects", &["Vec<ObjectView>", "u64"]),
    ("pools", &["Vec<PoolView>"]),
    ("push", &["PushView"]),
    ("report", &["JobReport"]),
    ("task", &["TaskView"]),
    ("tasks", &["Vec<TaskView>", "u64"]),
    ("text", &["String"]),
    ("url", &["String"]),
    ("usage", &["FilesUsageView"]),
];

/// The schema of a type whose text in the code does not tell it; `None` for types that are defined
/// in the sources.
fn leaf(kind: &str) -> Option<Value> {
    Some(match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" | "JobId" | "KeyId" => {
            json!({ "type": "integer", "minimum": 0 })
        }
        "i32" | "i64" => json!({ "type": "integer" }),
        "f32" | "f64" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        "String" | "FileName" | "TaskId" | "ObjectId" | "ExecutorId" | "SocketAddr" | "Format"
        | "Sha256" => {
            json!({ "type": "string" })
        }
        "Labels" => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        "Name" => json!({ "anyOf": [
            { "type": "string" },
            { "type": "object", "required": ["bytes_b64"],
              "properties": { "bytes_b64": { "type": "string" } }, "additionalProperties": false },
        ] }),
        _ => return None,
    })
}

fn inside<'a>(kind: &'a str, outer: &str) -> Option<&'a str> {
    kind.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

/// The schema of a type, by its text. Types that it refers to are added to `used`.
fn schema_of(kind: &str, used: &mut BTreeSet<String>) -> Value {
    if let Some(kind) = inside(kind, "Option") {
        return json!({ "anyOf": [schema_of(kind, used), { "type": "null" }] });
    }
    if let Some(kind) = inside(kind, "Vec") {
        return json!({ "type": "array", "items": schema_of(kind, used) });
    }
    if let Some((_, kind)) = inside(kind, "BTreeMap").and_then(|kinds| kinds.split_once(", ")) {
        return json!({ "type": "object", "additionalProperties": schema_of(kind, used) });
    }
    if let Some(kinds) = kind.strip_prefix('(').and_then(|kinds| kinds.strip_suffix(')')) {
        let items: Vec<_> = kinds.split(", ").map(|kind| schema_of(kind, used)).collect();
        return json!({ "type": "array", "prefixItems": items });
    }
    // Types have one meaning in all modules.
    let kind = kind.rsplit("::").next().unwrap_or(kind);
    leaf(kind).unwrap_or_else(|| {
        used.insert(kind.to_owned());
        json!({ "$ref": format!("#/$defs/{kind}") })
    })
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// The schema of a type that is defined in the sources.
fn definition(of: &TypeText, used: &mut BTreeSet<String>) -> Value {
    if of.is_enum {
        let names: Vec<_> = of.fields.iter().map(|variant| snake_case(&variant.name)).collect();
        return json!({ "description": of.doc, "enum": names });
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in &of.fields {
        let mut schema = schema_of(&field.kind, used);
        schema["description"] = field.doc.clone().into();
        properties.insert(field.name.clone(), schema);
        if !field.may_be_left_out {
            required.push(field.name.clone());
        }
    }
    json!({
        "description": of.doc,
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

/// The schema of all answers that have types, from these files.
///
/// # Panics
///
/// If a field has a type that neither the files nor this module define.
pub fn json_schema(version: &str, sources: &[&str]) -> String {
    let known: BTreeMap<String, TypeText> =
        sources.iter().flat_map(|code| types(code)).map(|of| (of.name.clone(), of)).collect();
    let mut used = BTreeSet::new();
    let version: u64 = version.parse().expect("a number");
    let mut properties =
        Map::from_iter([("schema_version".to_owned(), json!({ "const": version }))]);
    for (name, kinds) in ANSWERS {
        let kinds: Vec<_> = kinds.iter().map(|kind| schema_of(kind, &mut used)).collect();
        properties.insert((*name).to_owned(), json!({ "anyOf": kinds }));
    }
    let mut definitions = Map::new();
    while let Some(name) = used.pop_first() {
        if !definitions.contains_key(&name) {
            let of = known.get(&name).unwrap_or_else(|| panic!("no source defines {name}"));
            let schema = definition(of, &mut used);
            definitions.insert(name, schema);
        }
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of eyas with --json",
        "$comment":
            "Made by `make generate`. Other answers have the types in docs/reference/json.md.",
        "type": "object",
        "required": ["schema_version"],
        "properties": properties,
        "$defs": definitions,
    });
    serde_json::to_string_pretty(&schema).expect("values can be written") + "\n"
}
