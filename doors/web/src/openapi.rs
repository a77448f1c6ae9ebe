//! The OpenAPI document of the API. Its schemas are the generated JSON Schema of `--json`, which
//! OpenAPI 3.1 takes as it is.

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::web_tokens::WebScope;

/// The schemas of the answers, a copy of `docs/reference/json-schema.json` that `make generate`
/// writes.
const SCHEMAS: &str = include_str!("../json-schema.json");

/// Numbers above it are text in JSON, because readers would round them.
const MAX_EXACT: u64 = 1 << 53;

/// A path with a method.
#[derive(Clone)]
pub(crate) struct ApiRoute {
    pub method: Method,
    /// With parameters in braces.
    pub path: &'static str,
    pub summary: &'static str,
    pub query: &'static [ApiParameter],
    pub answer: RouteAnswer,
    /// The scope that a token must have.
    pub scope: WebScope,
}

/// A parameter behind the `?`.
#[derive(Clone, Copy)]
pub(crate) struct ApiParameter {
    pub name: &'static str,
    /// See [`schema`].
    pub schema: &'static str,
    pub description: &'static str,
}

/// Kind of the answer of a path.
#[derive(Clone, Copy)]
pub(crate) enum RouteAnswer {
    /// An object with a `schema_version` and these fields, each with its schema.
    Json(&'static [(&'static str, &'static str)]),
    /// The id of a job that was submitted.
    Created,
    /// Text.
    Text,
    /// A table as CSV.
    Csv,
    /// Server-sent events.
    Stream,
}

/// The whole document.
pub(crate) struct ApiDocument<'a> {
    /// The beginning of all paths.
    pub base: &'a str,
    pub routes: &'a [ApiRoute],
}

/// The schema of a type: `[T]` is a list, `T?` may be null, `a|b` are words, and what begins with a
/// capital letter is defined in the document. `job` is the number of a job, `index` that of a task,
/// `count` a number of entries, `time` a time of a job, and `object` names an object.
fn schema(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return json!({ "anyOf": [schema(kind), { "type": "null" }] });
    }
    if let Some(kind) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({ "type": "array", "items": schema(kind) });
    }
    if kind.contains('|') {
        return json!({ "enum": kind.split('|').collect::<Vec<_>>() });
    }
    match kind {
        "job" => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        "index" | "count" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        "time" => json!({ "type": "integer", "minimum": 0, "maximum": MAX_EXACT }),
        "object" => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{32}$|://" }),
        _ if kind.starts_with(char::is_uppercase) => {
            json!({ "$ref": format!("#/components/schemas/{kind}") })
        }
        _ => json!({ "type": kind }),
    }
}

fn object(fields: &[(&str, &str)]) -> Value {
    let properties: Map<_, _> =
        fields.iter().map(|(name, kind)| ((*name).to_owned(), schema(kind))).collect();
    let required: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn answer_object(fields: &[(&str, &str)]) -> Value {
    let mut object = object(fields);
    object["properties"]["schema_version"] = json!({ "const": 1 });
    object
}

impl ApiRoute {
    fn operation(&self) -> Value {
        let in_path = self.path.split('{').skip(1).filter_map(|part| part.split('}').next());
        let of_path = |name: &str| {
            let kind = if name == "job" || name == "index" { name } else { "string" };
            let mut parameter =
                json!({ "name": name, "in": "path", "required": true, "schema": schema(kind) });
            if kind != "string" {
                parameter["example"] = json!(1);
            }
            parameter
        };
        let of_query = |parameter: &ApiParameter| {
            json!({
                "name": parameter.name,
                "in": "query",
                "required": parameter.name == "object",
                "description": parameter.description,
                "schema": schema(parameter.schema),
            })
        };
        let parameters: Vec<_> =
            in_path.map(of_path).chain(self.query.iter().map(of_query)).collect();
        let (status, kind, content) = match self.answer {
            RouteAnswer::Json(fields) => ("200", "application/json", answer_object(fields)),
            RouteAnswer::Created => {
                ("201", "application/json", answer_object(&[("job", "integer")]))
            }
            RouteAnswer::Text => ("200", "text/plain", json!({ "type": "string" })),
            RouteAnswer::Csv => ("200", "text/csv", json!({ "type": "string" })),
            RouteAnswer::Stream => ("200", "text/event-stream", json!({ "type": "string" })),
        };
        let error = json!({
            "description": "An error.",
            "content": { "application/json": { "schema": schema("ApiError") } },
        });
        let mut operation = json!({
            "operationId": self.id(),
            "summary": self.summary,
            "description": format!("Needs a token of the scope {}.", self.scope.name()),
            "parameters": parameters,
            "responses": {
                status: {
                    "description": self.summary,
                    "content": { kind: { "schema": content } },
                },
                "4XX": error.clone(),
                "5XX": error,
            },
        });
        match self.path {
            _ if matches!(self.answer, RouteAnswer::Created) => {
                operation["requestBody"] = job_body();
            }
            "/push" => operation["requestBody"] = push_body(),
            _ => {}
        }
        operation
    }

    /// A name of the operation: the method and the fixed parts of the path.
    fn id(&self) -> String {
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(|part| part.trim_matches(['{', '}']));
        let method = self.method.as_str().to_ascii_lowercase();
        std::iter::once(&*method).chain(parts).collect::<Vec<_>>().join("_")
    }
}

fn job_body() -> Value {
    json!({
        "required": true,
        "description": "A job file.",
        "content": {
            "application/toml": { "schema": { "type": "string" } },
            "application/json": { "schema": {
                "type": "object",
                "description": "The tables and keys of a job file.",
                "properties": {
                    "task": { "type": "array", "items": { "type": "object" } },
                    "map": { "type": "array", "items": { "type": "object" } },
                },
            } },
            "application/x-ndjson": { "schema": { "type": "string" } },
        },
    })
}

fn push_body() -> Value {
    let mut fields = object(&[("objects", "[string]")]);
    fields["properties"]["objects"]["minItems"] = json!(1);
    fields["properties"]["to"] = schema("[string]");
    fields["properties"]["distribution"] = schema("chain|spanning-tree");
    json!({
        "required": true,
        "description": "Objects, and names, ids or labels of executors.",
        "content": { "application/json": { "schema": fields } },
    })
}

/// Types that only the API has.
fn own_schemas() -> [(&'static str, Value); 4] {
    let counts = [("running", "integer"), ("succeeded", "integer"), ("failed", "integer")];
    let counts = [&counts[..], &[("cancelled", "integer"), ("stuck", "integer")]].concat();
    let mut summary = object(&[
        ("cluster", "string"),
        ("eyas_version", "string"),
        ("tasks", "TaskCounts"),
        ("executors", "integer"),
        ("executors_set_aside", "integer"),
        ("capacity_milli", "integer"),
        ("assigned_milli", "integer"),
        ("held_bytes", "integer"),
        ("store_bytes", "integer"),
    ]);
    summary["properties"]["jobs"] = object(&counts);
    let mut error = object(&[]);
    error["required"] = json!(["error"]);
    error["properties"]["error"] =
        object(&[("code", "string"), ("message", "string"), ("hint", "string")]);
    let mut log = object(&[
        ("status", "string"),
        ("stdout", "string"),
        ("stderr", "string"),
        ("cut_bytes", "integer"),
    ]);
    log["properties"]["command"] = json!({ "type": "array" });
    let mut picture = object(&[
        ("from_us", "integer"),
        ("to_us", "integer"),
        ("end_us", "integer"),
        ("axis", "[array]"),
        ("rows", "[object]"),
        ("columns", "integer?"),
        ("totals", "object"),
    ]);
    picture["properties"]["bars"] = schema("[object]?");
    picture["description"] = json!(
        "Slots of executors over a part of the job's time. `bars` are tasks on rows; with many \
         tasks, rows have `cells` instead: thousandths of the time of each column."
    );
    [
        ("ClusterSummary", summary),
        ("ApiError", error),
        ("TaskLogView", log),
        ("TimelinePicture", picture),
    ]
}

impl ApiDocument<'_> {
    /// The document as JSON.
    pub fn text(&self) -> String {
        let mut paths = Map::new();
        for route in self.routes {
            let path = paths.entry(format!("{}{}", self.base, route.path));
            let methods = path.or_insert_with(|| json!({}));
            methods[route.method.as_str().to_ascii_lowercase()] = route.operation();
        }
        // The file is a part of this program, and a test reads it.
        let moved = SCHEMAS.replace("#/$defs/", "#/components/schemas/");
        let mut schemas: Value = serde_json::from_str(&moved).unwrap_or_default();
        let mut schemas = schemas["$defs"].take();
        for (name, schema) in own_schemas() {
            schemas[name] = schema;
        }
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "eyas",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "A cluster over HTTP. Answers have the JSON of `eyas --json`. \
                                Whole numbers above 2^53 are text.",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "security": [{ "token": [] }],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
        })
        .to_string()
    }
}
