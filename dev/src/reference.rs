//! Pages of the book that are made from the code: limits, the types of JSON answers.
//!
//! `make generate` writes them; `dev/tests/reference.rs` fails when they are not current. The parser knows the style
//! of this repository, which rustfmt keeps, and no more of Rust.

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
            let value = value.split_once(" = ").map_or("", |(_, value)| value).trim_end_matches(';');
            found.push(Constant { name: name.to_owned(), value: value.to_owned(), doc: doc.join(" ") });
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
        "# Limits\n\n<!-- made by `make generate` from the code and from limits.toml -->\n\nEvery queue, cache, buffer \
         and retry has a bound. The value is the expression in the code; names end in their unit.\n",
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
            let _ = write!(page, "\n## {room}\n\n| limit | value | what it bounds | when it is reached |\n");
            page.push_str("| --- | --- | --- | --- |\n");
        }
        let constants = constants(code);
        for (name, effect) in names {
            let Some(constant) = constants.iter().find(|constant| constant.name == *name) else {
                wrong.push(format!("docs/reference/limits.toml: {file} has no constant {name}"));
                continue;
            };
            let doc = cell(&constant.doc);
            let _ = writeln!(page, "| `{name}` | `{}` | {doc} | {} |", cell(&constant.value), cell(effect));
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
        "# JSON answers\n\n<!-- made by `make generate` from the types in wire/src/view.rs -->\n\nWith `--json`, a \
         command prints one object: `schema_version`, now {version}, and the answer under its name, as in \
         `{{\"schema_version\":{version},\"jobs\":[…]}}`. A field that changes its meaning gets a new version; new \
         fields do not. `Option` means that the value may be `null`, `Vec` a list, `BTreeMap` an object; numbers have \
         their unit at the end of the name.\n"
    );
    for (file, code) in sources {
        let _ = write!(page, "\n## From `{file}`\n");
        let mut doc: Vec<&str> = Vec::new();
        let mut open: Option<Block> = None;
        for line in without_tests(code).lines() {
            let text = line.trim();
            if let Some(block) = &mut open {
                if line == "}" {
                    block.write(&mut page);
                    open = None;
                } else if let Some(text) = text.strip_prefix("///") {
                    doc.push(text.trim());
                } else if let Some(attribute) = text.strip_prefix("#[serde(") {
                    block.is_flat |= attribute.starts_with("flatten");
                } else if line.starts_with("    ") && !line.starts_with("     ") && !text.starts_with(['#', '}', '/']) {
                    block.field(text, &doc.join(" "));
                    doc.clear();
                }
            } else if let Some(text) = text.strip_prefix("///") {
                doc.push(text.trim());
            } else if let Some(head) = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum ")) {
                if let Some(name) = head.strip_suffix(" {") {
                    open = Some(Block::new(name, &doc.join(" "), line.starts_with("pub enum")));
                }
                doc.clear();
            } else if !text.starts_with("#[") {
                doc.clear();
            }
        }
    }
    page
}

/// A struct or an enum that is being read.
struct Block {
    name: String,
    doc: String,
    is_enum: bool,
    is_flat: bool,
    rows: Vec<String>,
}

impl Block {
    fn new(name: &str, doc: &str, is_enum: bool) -> Self {
        Block { name: name.to_owned(), doc: doc.to_owned(), is_enum, is_flat: false, rows: Vec::new() }
    }

    fn field(&mut self, text: &str, doc: &str) {
        let text = text.trim_end_matches([',', '{', ' ']);
        let row = match text.strip_prefix("pub ").and_then(|text| text.split_once(": ")) {
            Some((name, kind)) if !self.is_enum => {
                let kind = if self.is_flat { format!("fields of `{kind}`") } else { format!("`{kind}`") };
                format!("| `{name}` | {kind} | {} |", cell(doc))
            }
            _ => format!("| `{text}` | | {} |", cell(doc)),
        };
        self.is_flat = false;
        self.rows.push(row);
    }

    fn write(&self, page: &mut String) {
        let kind = if self.is_enum { "one of" } else { "field" };
        let _ =
            write!(page, "\n### {}\n\n{}\n\n| {kind} | type | meaning |\n| --- | --- | --- |\n", self.name, self.doc);
        for row in &self.rows {
            let _ = writeln!(page, "{row}");
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
        let code = "/// Most of them,\n/// at once.\npub(crate) const MAX_THEM: usize = 64 << 10;\nconst A: u8 = 1;\n";
        let max = Constant { name: "MAX_THEM".into(), value: "64 << 10".into(), doc: "Most of them, at once.".into() };
        let a = Constant { name: "A".into(), value: "1".into(), doc: String::new() };
        assert_eq!(constants(code), [max, a]);
    }
}
