//! Words with placeholders, as GNU parallel has them.
//!
//! | placeholder | stands for |
//! | --- | --- |
//! | `{}` | the item; the staged path if it names an input |
//! | `{.}` | the item without its last extension |
//! | `{/}` `{//}` `{/.}` | its last component, its folder, its last component without extension |
//! | `{1}` `{2}` …, `{1.}` `{2/}` … | the same for one column |
//! | `{input:1}` … | the staged path of the first, second … input, the template's inputs first |
//! | `{inputs}` | a file with the staged paths of all inputs, one on each line |
//! | `{inputs0}` | the same with each path before a NUL byte |
//! | `{#}` `{%}` | the task's number in its job, and the number of its slot, both from 1 |
//!
//! Any other text in braces stays as it is, so that `awk '{print $1}'` needs no quoting. A
//! backslash before a placeholder makes it text: `\{}` is `{}`, and `\\{}` is a backslash and the
//! item. Other backslashes stay. A word is parsed once, where the job is submitted, and expanded on
//! the node that runs the task.

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::deliver_when::DeliverWhen;
use crate::name::Name;
use crate::value::Value;

/// One word: literal text and placeholders in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template(pub Vec<TemplatePart>);

/// One part of a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TemplatePart {
    /// Text without placeholders.
    Literal(Name),
    /// The item, or one column of it.
    Value {
        /// Number of the column, from 1; 0 for the whole item.
        column: u16,
        /// The part of the value that is used.
        part: PathPart,
    },
    /// The staged path of the input with this index, from 0.
    Input(u32),
    /// The task's number, from 1.
    Number,
    /// The slot's number, from 1.
    Slot,
    /// The path of a file with the staged paths of all inputs.
    InputList(InputListEnd),
    /// Stands for nothing: the mark of an output that is not delivered after success alone. It is
    /// there only while the output is [written or read](crate::task::OutputSpec).
    When(DeliverWhen),
}

/// The byte after each path in a list of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputListEnd {
    /// A line feed: `{inputs}`
    Line,
    /// A NUL byte, for paths with line feeds in them: `{inputs0}`
    Nul,
}

impl InputListEnd {
    /// The byte itself.
    pub fn byte(self) -> u8 {
        match self {
            InputListEnd::Line => b'\n',
            InputListEnd::Nul => 0,
        }
    }

    /// The path of the list, where `base` is that of both lists of the task.
    pub fn list_at(self, base: &[u8]) -> Name {
        let suffix: &[u8] = match self {
            InputListEnd::Line => b".inputs",
            InputListEnd::Nul => b".inputs0",
        };
        Name::concat(&[base, suffix])
    }

    fn written(self) -> &'static str {
        match self {
            InputListEnd::Line => "{inputs}",
            InputListEnd::Nul => "{inputs0}",
        }
    }
}

/// The part of a value that a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathPart {
    /// `{}`
    Whole,
    /// `{.}`
    WithoutExtension,
    /// `{/}`
    Base,
    /// `{//}`
    Folder,
    /// `{/.}`
    BaseWithoutExtension,
}

/// Values of the placeholders, for expanding the words of one task.
pub struct Expansion<'a> {
    /// The item's columns.
    pub values: &'a [Value],
    /// Staged paths of all inputs, the template's first. Empty where inputs are not staged: a
    /// value that names an input then stands for its own text.
    pub staged: &'a [Name],
    /// Number of inputs of the template, at the front of `staged`.
    pub template_inputs: usize,
    /// The task's number, from 1.
    pub number: u32,
    /// The slot's number, from 1.
    pub slot: u32,
    /// The path of the lists of inputs, without its end. Empty where inputs are not staged: the
    /// placeholder of a list then stands for itself.
    pub input_list: &'a [u8],
}

impl Template {
    /// Whether the word has the placeholder `{#}`.
    pub fn has_number(&self) -> bool {
        self.0.contains(&TemplatePart::Number)
    }

    /// A word without placeholders.
    pub fn literal(text: impl Into<Name>) -> Self {
        Template(alloc::vec![TemplatePart::Literal(text.into())])
    }

    /// Whether it is known before a task with these values runs what it stands for: it has neither
    /// a slot nor a staged path in it, which a value that names an input becomes as a whole.
    pub fn is_known(&self, values: &[Value]) -> bool {
        let is_staged = |column: u16| match usize::from(column) {
            0 => values.iter().any(|value| value.own_input().is_some()),
            column => values.get(column - 1).is_some_and(|value| value.own_input().is_some()),
        };
        !self.0.iter().any(|piece| match piece {
            TemplatePart::Slot | TemplatePart::Input(_) | TemplatePart::InputList(_) => true,
            TemplatePart::Value { column, part: PathPart::Whole } => is_staged(*column),
            TemplatePart::Literal(_)
            | TemplatePart::Value { .. }
            | TemplatePart::Number
            | TemplatePart::When(_) => false,
        })
    }

    /// Whether the word is a pattern of file names. Only literal text is considered, so an item
    /// whose name has a bracket in it does not make the word a pattern.
    pub fn is_glob(&self) -> bool {
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[');
        self.0.iter().any(
            |piece| matches!(piece, TemplatePart::Literal(text) if text.iter().any(is_special)),
        )
    }

    /// Finds the placeholders in `text`.
    pub fn parse(text: impl AsRef<[u8]>) -> Self {
        let mut pieces = Vec::new();
        let mut literal = Name::default();
        let mut rest = text.as_ref();
        while let Some(open) = position(rest, b'{') {
            literal.push(&rest[..open]);
            rest = &rest[open..];
            match placeholder_at(rest) {
                Some((_, end)) if unescape(&mut literal) => {
                    literal.push(&rest[..end]);
                    rest = &rest[end..];
                }
                Some((piece, end)) => {
                    if !literal.is_empty() {
                        pieces.push(TemplatePart::Literal(core::mem::take(&mut literal)));
                    }
                    pieces.push(piece);
                    rest = &rest[end..];
                }
                None => {
                    literal.push(b"{");
                    rest = &rest[1..];
                }
            }
        }
        literal.push(rest);
        if !literal.is_empty() {
            pieces.push(TemplatePart::Literal(literal));
        }
        Template(pieces)
    }

    /// The word as the user would write it.
    pub fn written(&self) -> Name {
        let mut word = Name::default();
        for (index, piece) in self.0.iter().enumerate() {
            match piece {
                TemplatePart::Literal(text) => {
                    push_escaped(&mut word, text);
                    if self
                        .0
                        .get(index + 1)
                        .is_some_and(|next| !matches!(next, TemplatePart::Literal(_)))
                    {
                        word.push(backslashes_before_end(text));
                    }
                }
                TemplatePart::Value { column, part } => {
                    let column = if *column == 0 { "".into() } else { column.to_string() };
                    word.push(alloc::format!("{{{column}{}}}", part.written()));
                }
                TemplatePart::Input(input) => word.push(alloc::format!("{{input:{}}}", input + 1)),
                TemplatePart::Number => word.push("{#}"),
                TemplatePart::Slot => word.push("{%}"),
                TemplatePart::InputList(end) => word.push(end.written()),
                TemplatePart::When(_) => {}
            }
        }
        word
    }

    /// Whether the word has a placeholder for the item or one of its columns.
    pub fn has_value(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, TemplatePart::Value { .. }))
    }

    /// The highest number of a column in a placeholder; 0 if there is none.
    pub fn highest_column(&self) -> u16 {
        self.0
            .iter()
            .map(|piece| if let TemplatePart::Value { column, .. } = piece { *column } else { 0 })
            .max()
            .unwrap_or(0)
    }

    /// The highest number of an input in a placeholder `{input:N}`; 0 if there is none.
    pub fn highest_input(&self) -> u32 {
        self.0
            .iter()
            .map(|piece| if let TemplatePart::Input(input) = piece { input + 1 } else { 0 })
            .max()
            .unwrap_or(0)
    }

    /// Replaces all placeholders. A column or input that the task does not have becomes empty;
    /// submission has refused such jobs.
    pub fn expand(&self, with: &Expansion<'_>) -> Name {
        let mut word = Name::default();
        for piece in &self.0 {
            match piece {
                TemplatePart::Literal(text) => word.push(text),
                TemplatePart::Value { column, part } => word.push(with.value(*column, *part)),
                TemplatePart::Input(input) => {
                    word.push(with.staged.get(*input as usize).map_or(&b""[..], Name::as_bytes))
                }
                TemplatePart::Number => word.push(with.number.to_string()),
                TemplatePart::Slot => word.push(with.slot.to_string()),
                TemplatePart::InputList(end) if with.input_list.is_empty() => {
                    word.push(end.written())
                }
                TemplatePart::InputList(end) => word.push(end.list_at(with.input_list)),
                TemplatePart::When(_) => {}
            }
        }
        word
    }
}

impl Expansion<'_> {
    fn value(&self, column: u16, part: PathPart) -> Cow<'_, [u8]> {
        let whole = |value| match part {
            PathPart::Whole => self.staged_path(value),
            _ => part.of(&value.text),
        };
        match (column, self.values) {
            (0, []) => Cow::Borrowed(b""),
            (0, [only]) => Cow::Borrowed(whole(only)),
            (0, several) => Cow::Owned(several.iter().map(whole).collect::<Vec<_>>().join(&b' ')),
            (column, values) => {
                Cow::Borrowed(values.get(usize::from(column) - 1).map_or(&b""[..], whole))
            }
        }
    }

    fn staged_path<'a>(&'a self, value: &'a Value) -> &'a [u8] {
        let own = value.own_input().map(|input| self.template_inputs + input);
        let place = own.or(value.template_input().filter(|input| *input < self.template_inputs));
        place.and_then(|place| self.staged.get(place)).unwrap_or(&value.text)
    }
}

impl PathPart {
    fn of(self, text: &[u8]) -> &[u8] {
        let (folder, base) = match text.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&text[..slash.max(1)], &text[slash + 1..]),
            None => (&b"."[..], text),
        };
        let extension_bytes = match base.iter().rposition(|byte| *byte == b'.') {
            Some(dot) if dot > 0 => base.len() - dot,
            _ => 0,
        };
        match self {
            PathPart::Whole => text,
            PathPart::WithoutExtension => &text[..text.len() - extension_bytes],
            PathPart::Base => base,
            PathPart::Folder => folder,
            PathPart::BaseWithoutExtension => &base[..base.len() - extension_bytes],
        }
    }

    fn written(self) -> &'static str {
        match self {
            PathPart::Whole => "",
            PathPart::WithoutExtension => ".",
            PathPart::Base => "/",
            PathPart::Folder => "//",
            PathPart::BaseWithoutExtension => "/.",
        }
    }
}

fn position(text: &[u8], wanted: u8) -> Option<usize> {
    text.iter().position(|byte| *byte == wanted)
}

/// The placeholder at the beginning of `text`, which is a brace, and its length.
fn placeholder_at(text: &[u8]) -> Option<(TemplatePart, usize)> {
    let close = position(text, b'}')?;
    Some((placeholder(&text[1..close])?, close + 1))
}

/// The backslashes at the end of `text`.
fn backslashes_before_end(text: &[u8]) -> &[u8] {
    &text[text.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1)..]
}

/// Replaces each two backslashes before a placeholder by one. Returns whether another one is left,
/// which is removed and makes the placeholder text.
fn unescape(literal: &mut Name) -> bool {
    let backslashes = backslashes_before_end(literal).len();
    let kept = literal.len() - backslashes.div_ceil(2);
    *literal = Name::from(&literal[..kept]);
    backslashes % 2 == 1
}

/// Adds text, so that no placeholder is found in it.
fn push_escaped(word: &mut Name, text: &[u8]) {
    let mut rest = text;
    while let Some(open) = position(rest, b'{') {
        word.push(&rest[..open]);
        if placeholder_at(&rest[open..]).is_some() {
            word.push(backslashes_before_end(&rest[..open]));
            word.push(b"\\");
        }
        word.push(b"{");
        rest = &rest[open + 1..];
    }
    word.push(rest);
}

/// The placeholder between two braces, if it is one.
fn placeholder(inside: &[u8]) -> Option<TemplatePart> {
    let inside = core::str::from_utf8(inside).ok()?;
    if let Some(number) = inside.strip_prefix("input:") {
        return number.parse::<u32>().ok()?.checked_sub(1).map(TemplatePart::Input);
    }
    match inside {
        "#" => return Some(TemplatePart::Number),
        "%" => return Some(TemplatePart::Slot),
        "inputs" => return Some(TemplatePart::InputList(InputListEnd::Line)),
        "inputs0" => return Some(TemplatePart::InputList(InputListEnd::Nul)),
        _ => {}
    }
    let digits = inside.bytes().take_while(u8::is_ascii_digit).count();
    let column = match &inside[..digits] {
        "" => 0,
        number => number.parse::<u16>().ok().filter(|n| *n > 0)?,
    };
    let part = match &inside[digits..] {
        "" => PathPart::Whole,
        "." => PathPart::WithoutExtension,
        "/" => PathPart::Base,
        "//" => PathPart::Folder,
        "/." => PathPart::BaseWithoutExtension,
        _ => return None,
    };
    Some(TemplatePart::Value { column, part })
}

impl core::fmt::Display for Template {
    /// As the user would write it, for people.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.written().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::TEMPLATE_INPUT;
    use alloc::vec;

    fn expand(text: &str, values: &[&str]) -> Name {
        let values: Vec<_> =
            values.iter().map(|v| Value { text: (*v).into(), input: None }).collect();
        Template::parse(text).expand(&Expansion {
            values: &values,
            staged: &[],
            template_inputs: 0,
            number: 7,
            slot: 2,
            input_list: b"/s/7",
        })
    }

    #[test]
    fn placeholders_mean_what_gnu_parallel_means() {
        for (text, expected) in [
            ("{}", "sky/a b.fits.gz"),
            ("x{/}y", "xa b.fits.gzy"),
            ("{//}", "sky"),
            ("{.}", "sky/a b.fits"),
            ("{/.}", "a b.fits"),
            ("{1} {1/.} {#} {%}", "sky/a b.fits.gz a b.fits 7 2"),
            ("awk {print $1} {} {", "awk {print $1} sky/a b.fits.gz {"),
            ("{{}}", "{sky/a b.fits.gz}"),
            ("{0} {é}", "{0} {é}"),
            (r"\{} \{1/} x\{#}", "{} {1/} x{#}"),
            (r"\\{#} \\\{#} \\\\{#}", r"\7 \{#} \\7"),
            (r"a\{2\} \{x} \n{#}\", r"a\{2\} \{x} \n7\"),
            ("@{inputs} {inputs0} {inputs1}", "@/s/7.inputs /s/7.inputs0 {inputs1}"),
        ] {
            assert_eq!(expand(text, &["sky/a b.fits.gz"]), expected, "{text}");
        }
        assert_eq!(expand("{2}-{1/}|{}", &["a/b", "c"]), "c-b|a/b c");
        assert_eq!(expand("{//} {.}", &["/x"]), "/ /x");
        assert_eq!(expand("{.} {/.}", &[".hidden"]), ".hidden .hidden");
        assert_eq!(expand("{.}", &["a.b/c"]), "a.b/c");
    }

    #[test]
    fn a_value_that_names_an_input_becomes_its_staged_path() {
        let values = [
            Value { text: "sky/a.fits".into(), input: Some(0) },
            Value { text: "3".into(), input: None },
        ];
        let staged = vec!["/s/objects.csv".into(), "/s/a.fits".into()];
        let with = Expansion {
            values: &values,
            staged: &staged,
            template_inputs: 1,
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let expand = |text| Template::parse(text).expand(&with);
        assert_eq!(expand("{1}"), "/s/a.fits");
        assert_eq!(expand("{}"), "/s/a.fits 3");
        assert_eq!(expand("{1/.}.out"), "a.out");
        assert_eq!(expand("{input:1}"), "/s/objects.csv");
        let shared = [Value { text: "objects.csv".into(), input: Some(TEMPLATE_INPUT) }];
        let with = Expansion { values: &shared, ..with };
        assert_eq!(Template::parse("{1} {/}").expand(&with), "/s/objects.csv objects.csv");
        assert!(Template::parse("{1}").is_known(&shared));
        for (text, is_known) in [
            ("{1}", false),
            ("{2}-{#}", true),
            ("{}", false),
            ("{1/.}", true),
            ("{%}", false),
            ("{inputs}", false),
        ] {
            assert_eq!(Template::parse(text).is_known(&values), is_known, "{text}");
        }
    }

    #[test]
    fn a_template_prints_as_it_was_written() {
        for text in [
            "a{}b{1/.}{#}{%}{input:3}{2//}{x}",
            "{inputs}{inputs0}{input:70000}",
            "",
            r"\{} \\\{1} \\{#}\ \{x}\\",
        ] {
            assert_eq!(Template::parse(text).written(), text);
        }
        assert_eq!(Template::literal(r"rm {} \;").written(), r"rm \{} \;");
    }

    #[test]
    fn words_and_items_are_any_bytes() {
        let values = [Value { text: Name::from(&b"sky/\xff.a.fits"[..]), input: None }];
        let with = Expansion {
            values: &values,
            staged: &[],
            template_inputs: 0,
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let template = Template::parse(b"\xfe{/.}-{//}{\xfd}");
        assert_eq!(template.expand(&with), Name::from(&b"\xfe\xff.a-sky{\xfd}"[..]));
        assert_eq!(template.written(), Name::from(&b"\xfe{/.}-{//}{\xfd}"[..]));
        assert_eq!(template.to_string(), "\\xfe{/.}-{//}{\\xfd}");
    }
}
