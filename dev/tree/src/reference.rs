//! Pages of the book that are made from the code: limits, the types of JSON answers.
//!
//! `make generate` writes them; `dev/tree/tests/reference.rs` fails when they are not current. The
//! parser knows the style of this repository, which rustfmt keeps, and no more of Rust.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A constant of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name of the constant.
    pub name: String,
    /// The expression in the code.
    pub value: String,
    /// Its doc comment, in one line.
    pub doc: String,
}

/// The constants of a file with a value on one line.
pub fn constants(code: &str) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut doc = Vec::new();
    for line in code.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
            continue;
        }
        let start = line.find("const ").filter(|at| *at == 0 || line.starts_with("pub"));
        if let Some((name, value)) = start.and_then(|at| line[at + 6..].split_once(": ")) {
            let value =
                value.split_once(" = ").map_or("", |(_, value)| value).trim_end_matches(';');
            found.push(Constant {
                name: name.to_owned(),
                value: value.to_owned(),
                doc: doc.join(" "),
            });
        }
        if !line.starts_with("#[") {
            doc.clear();
        }
    }
    found
}

/// The effect of reaching each limit, by file and constant: `docs/reference/limits.toml`.
pub type Effects = BTreeMap<String, BTreeMap<String, String>>;

/// The page of limits, and what is wrong with the list of effects.
pub fn limits(effects: &Effects, files: &[(String, String)]) -> (String, Vec<String>) {
    let mut page = String::from(
        "# Limits\n\n<!-- made by `make generate` from the code and from limits.toml -->\n\nEvery \
         queue, cache, buffer and retry has a bound. The value is the expression in the code; \
         names end in their unit. The Python modules have bounds of their own: \
         [Python](../guides/python.md#limits).\n",
    );
    let mut wrong = Vec::new();
    let mut room = "";
    for (file, names) in effects {
        let Some((_, code)) = files.iter().find(|(path, _)| path == file) else {
            wrong.push(format!("docs/reference/limits.toml names {file}, which does not exist"));
            continue;
        };
        let folder = file.split("/src/").next().unwrap_or_default();
        if folder != room {
            room = folder;
            let _ = write!(
                page,
                "\n## {room}\n\n| limit | value | what it bounds | when it is reached |\n"
            );
            page.push_str("| --- | --- | --- | --- |\n");
        }
        let constants = constants(code);
        for (name, effect) in names {
            let Some(constant) = constants.iter().find(|constant| constant.name == *name) else {
                wrong.push(format!("docs/reference/limits.toml: {file} has no constant {name}"));
                continue;
            };
            let doc = cell(&constant.doc);
            let _ = writeln!(
                page,
                "| `{name}` | `{}` | {doc} | {} |",
                cell(&constant.value),
                cell(effect)
            );
        }
    }
    (page, wrong)
}

/// Text in a cell of a table: links of rustdoc become code.
fn cell(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// The page of the types of JSON answers, from these files.
pub fn json(version: &str, sources: &[(&str, &str)]) -> String {
    let mut page = format!(
        "# JSON answers\n\n<!-- made by `make generate` from the types in base/wire/src/view.rs \
         -->\n\nWith `--json`, a command prints one object: `schema_version`, now {version}, and \
         the answer under its name, as in `{{\"schema_version\":{version},\"jobs\":[…]}}`. A \
         field that changes its meaning gets a new version; new fields do not. `Option` means \
         that the value may be `null`, `Vec` a list, `BTreeMap` an object; numbers have their \
         unit at the end of the name. [json-schema.json](json-schema.json) is a JSON Schema of \
         the answers of most commands.\n"
    );
    for (file, code) in sources {
        let _ = write!(page, "\n## From `{file}`\n");
        types(code).iter().for_each(|of| of.write(&mut page));
    }
    page
}

/// The text of a struct or an enum.
#[derive(Default)]
pub struct TypeText {
    /// Name of the type.
    pub name: String,
    /// Its doc comment, in one line.
    pub doc: String,
    /// Whether it is an enum; its fields are variants then.
    pub is_enum: bool,
    /// Its fields.
    pub fields: Vec<FieldText>,
}

/// The text of a field or of a variant.
pub struct FieldText {
    /// Name of the field.
    pub name: String,
    /// Its type; empty for a variant.
    pub kind: String,
    /// Its doc comment, in one line.
    pub doc: String,
    /// Whether it is left out where it has no value.
    pub may_be_left_out: bool,
}

/// The public structs and enums of a file.
pub fn types(code: &str) -> Vec<TypeText> {
    let mut found = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut attributes = String::new();
    let mut open: Option<TypeText> = None;
    for line in without_tests(code).lines() {
        let text = line.trim();
        if let Some(text) = text.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some(of) = &mut open {
            if line == "}" {
                found.extend(open.take());
            } else if text.starts_with("#[serde(") {
                attributes.push_str(text);
            } else if line.starts_with("    ")
                && !line.starts_with("     ")
                && !text.starts_with(['#', '}', '/'])
            {
                of.field(text, &doc.join(" "), &attributes);
                doc.clear();
                attributes.clear();
            }
        } else if let Some(head) =
            line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "))
        {
            if let Some(name) = head.strip_suffix(" {") {
                let is_enum = line.starts_with("pub enum");
                open = Some(TypeText {
                    name: name.to_owned(),
                    doc: doc.join(" "),
                    is_enum,
                    fields: Vec::new(),
                });
            }
            doc.clear();
        } else if !text.starts_with("#[") {
            doc.clear();
        }
    }
    found
}

impl TypeText {
    fn field(&mut self, text: &str, doc: &str, attributes: &str) {
        let text = text.trim_end_matches([',', '{', ' ']);
        let field = text
            .strip_prefix("pub ")
            .and_then(|text| text.split_once(": "))
            .filter(|_| !self.is_enum);
        let (name, kind) = field.unwrap_or((text, ""));
        self.fields.push(FieldText {
            name: name.to_owned(),
            kind: kind.to_owned(),
            doc: doc.to_owned(),
            may_be_left_out: attributes.contains("skip_serializing_if"),
        });
    }

    fn write(&self, page: &mut String) {
        let kind = if self.is_enum { "one of" } else { "field" };
        let _ = write!(
            page,
            "\n### {}\n\n{}\n\n| {kind} | type | meaning |\n| --- | --- | --- |\n",
            self.name, self.doc
        );
        for FieldText { name, kind, doc, .. } in &self.fields {
            let kind = match &**kind {
                "" => String::new(),
                kind => format!("`{kind}` "),
            };
            let _ = writeln!(page, "| `{name}` | {kind}| {} |", cell(doc));
        }
    }
}

fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]\nmod tests {").map_or(code, |end| &code[..end])
}

#[cfg(test)]
mod tests {
    use super::{Constant, constants};

    #[test]
    fn constants_have_values_and_documentation() {
        let code = "/// Most of them,\n/// at once.\npub(crate) const MAX_THEM: usize = 64 << \
                    10;\nconst A: u8 = 1;\n";
        let max = Constant {
            name: "MAX_THEM".into(),
            value: "64 << 10".into(),
            doc: "Most of them, at once.".into(),
        };
        let a = Constant { name: "A".into(), value: "1".into(), doc: String::new() };
        assert_eq!(constants(code), [max, a]);
    }
}
