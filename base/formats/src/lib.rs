//! Formats of messages and records, for tests. postcard writes no names: a field that is added, or
//! a variant that moves, makes old bytes mean something else, and no test of one build can see it.
//! So the formats of each protocol and of each database stand in a file beside it, a line for each
//! struct and for each variant of an enum, and a test holds the code against this file.
//!
//! A format has a version, `major.minor`. With the same major version, all that stood in the file
//! stands there still: only types and, at the end of an enum, variants are added, and the minor
//! version grows. Everything else needs the next major version. Rooms name this crate as a
//! development dependency only.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_reflection::{
    ContainerFormat, Format, Registry, Samples, Tracer, TracerConfig, VariantFormat,
};

/// A version of formats: major and minor.
pub type FormatVersion = (u16, u16);

/// The formats of types, found by reading values of them.
#[derive(Debug)]
pub struct Formats {
    tracer: Tracer,
    samples: Samples,
}

impl Default for Formats {
    fn default() -> Self {
        // A text that is a name of a file and a format of records, which are checked when they are
        // read.
        let config = TracerConfig::default()
            .is_human_readable(false)
            .default_string_value("lines".to_owned());
        Formats { tracer: Tracer::new(config), samples: Samples::new() }
    }
}

impl Formats {
    /// Remembers a value of a type that checks what it reads, such as a name that must not be
    /// empty.
    ///
    /// # Panics
    /// If serde cannot describe the value.
    pub fn sample<T: Serialize>(mut self, value: &T) -> Self {
        self.tracer.trace_value(&mut self.samples, value).expect("a value with a format");
        self
    }

    /// Adds a type, and those inside it. Each enum inside it has to be added, too, because a value
    /// of the type has only one of its variants.
    ///
    /// # Panics
    /// If serde cannot describe the type, or if another one of that name has another format.
    pub fn with<T: DeserializeOwned>(mut self) -> Self {
        let name = std::any::type_name::<T>();
        self.tracer
            .trace_type::<T>(&self.samples)
            .unwrap_or_else(|why| panic!("{name}: {why}: {}", why.explanation()));
        self
    }

    /// Asserts that the formats are those of a file, which were recorded at a version, or follow
    /// from them as `version` permits. With `EYAS_GENERATE=1`, writes the file.
    ///
    /// # Panics
    /// If they do not, with what has changed.
    pub fn assert_recorded(self, file: &Path, version: FormatVersion) {
        let registry =
            self.tracer.registry().unwrap_or_else(|why| panic!("add these enums: {why}"));
        let now = RecordedFormats { version, lines: lines(&registry) };
        let recorded = fs::read_to_string(file).ok().map(|text| RecordedFormats::parse(&text));
        if let Some(recorded) = &recorded {
            recorded.permits(&now).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        }
        if recorded.as_ref() == Some(&now) {
            return;
        }
        assert!(
            std::env::var_os("EYAS_GENERATE").is_some(),
            "{} is not of version {}.{}: EYAS_GENERATE=1 writes it",
            file.display(),
            version.0,
            version.1
        );
        fs::write(file, now.text()).expect("the file can be written");
    }
}

/// The content of a file of formats.
#[derive(Debug, PartialEq, Eq)]
struct RecordedFormats {
    version: FormatVersion,
    /// Structs by their names, and variants by the names of their enums and their numbers.
    lines: BTreeMap<(String, Option<u32>), String>,
}

impl RecordedFormats {
    fn parse(text: &str) -> RecordedFormats {
        let mut lines = text.lines();
        let version = lines
            .next()
            .and_then(|line| line.strip_prefix("version ")?.split_once('.'))
            .expect("a version");
        let number = |word: &str| word.parse().expect("a number");
        let lines = lines.map(|line| {
            let (key, format) = line.split_once(" = ").expect("a format");
            let (name, variant) = match key.split_once(' ') {
                Some((name, variant)) => {
                    (name, Some(variant.parse().expect("the number of a variant")))
                }
                None => (key, None),
            };
            ((name.to_owned(), variant), format.to_owned())
        });
        RecordedFormats { version: (number(version.0), number(version.1)), lines: lines.collect() }
    }

    fn text(&self) -> String {
        let mut text = format!("version {}.{}\n", self.version.0, self.version.1);
        for ((name, variant), format) in &self.lines {
            let variant = variant.map_or(String::new(), |number| format!(" {number}"));
            text += &format!("{name}{variant} = {format}\n");
        }
        text
    }

    /// Whether the formats of a later version may follow these ones; else why not.
    fn permits(&self, now: &RecordedFormats) -> Result<(), String> {
        let ((major, minor), (later, _)) = (self.version, now.version);
        let added: Vec<_> =
            now.lines.iter().filter(|(key, _)| !self.lines.contains_key(key)).collect();
        if now.version < self.version {
            return Err(format!("it is of the later version {major}.{minor}"));
        }
        if later > major {
            return Ok(());
        }
        for (key @ (name, variant), format) in &self.lines {
            let is_now = now.lines.get(key).map_or("nothing", String::as_str);
            if is_now != format {
                let variant = variant.map_or(String::new(), |number| format!(", variant {number}"));
                return Err(format!(
                    "{name}{variant} was `{format}` and is now `{is_now}`, which old bytes do not \
                     have: that needs the major version {}; or add a variant at the end of an enum",
                    major + 1
                ));
            }
        }
        if !added.is_empty() && now.version == self.version {
            let names: BTreeSet<&str> = added.iter().map(|((name, _), _)| name.as_str()).collect();
            let names = Vec::from_iter(names).join(", ");
            return Err(format!(
                "{names} has more than before: that needs the version {major}.{}",
                minor + 1
            ));
        }
        Ok(())
    }
}

fn lines(registry: &Registry) -> BTreeMap<(String, Option<u32>), String> {
    let mut lines = BTreeMap::new();
    for (name, format) in registry {
        let format = match format {
            ContainerFormat::Enum(variants) => {
                lines.extend(variants.iter().map(|(number, variant)| {
                    (
                        (name.clone(), Some(*number)),
                        format!("{}{}", variant.name, shown_variant(&variant.value)),
                    )
                }));
                continue;
            }
            ContainerFormat::UnitStruct => "()".to_owned(),
            ContainerFormat::NewTypeStruct(inner) => format!("({})", shown(inner)),
            ContainerFormat::TupleStruct(fields) => format!("({})", list(fields.iter().map(shown))),
            ContainerFormat::Struct(fields) => {
                format!(
                    "{{ {} }}",
                    list(fields.iter().map(|field| format!(
                        "{}: {}",
                        field.name,
                        shown(&field.value)
                    )))
                )
            }
        };
        lines.insert((name.clone(), None), format);
    }
    lines
}

fn shown_variant(format: &VariantFormat) -> String {
    match format {
        VariantFormat::Variable(_) | VariantFormat::Unit => String::new(),
        VariantFormat::NewType(inner) => format!("({})", shown(inner)),
        VariantFormat::Tuple(fields) => format!("({})", list(fields.iter().map(shown))),
        VariantFormat::Struct(fields) => {
            format!(
                " {{ {} }}",
                list(fields.iter().map(|field| format!("{}: {}", field.name, shown(&field.value))))
            )
        }
    }
}

fn shown(format: &Format) -> String {
    match format {
        Format::TypeName(name) => name.clone(),
        Format::Option(inner) => format!("{}?", shown(inner)),
        Format::Seq(inner) => format!("[{}]", shown(inner)),
        Format::Map { key, value } => format!("{{{}: {}}}", shown(key), shown(value)),
        Format::Tuple(fields) => format!("({})", list(fields.iter().map(shown))),
        Format::TupleArray { content, size } => format!("[{}; {size}]", shown(content)),
        simple => format!("{simple:?}").to_lowercase(),
    }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    Vec::from_iter(parts).join(", ")
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    mod before {
        use super::*;

        #[derive(Serialize, Deserialize)]
        pub enum Message {
            Ask(Option<u32>),
            Tell { who: String, what: Vec<Part> },
        }

        #[derive(Serialize, Deserialize)]
        pub struct Part([u8; 2], bool);
    }

    fn recorded<T: DeserializeOwned>(version: FormatVersion) -> RecordedFormats {
        let formats = Formats::default().with::<T>();
        RecordedFormats { version, lines: lines(&formats.tracer.registry().unwrap()) }
    }

    #[test]
    fn each_struct_and_each_variant_has_a_line() {
        let recorded = recorded::<before::Message>((3, 1));
        let text = "version 3.1\nMessage 0 = Ask(u32?)\n\
                    Message 1 = Tell { who: str, what: [Part] }\nPart = ([u8; 2], bool)\n";
        assert_eq!(recorded.text(), text);
        assert_eq!(RecordedFormats::parse(text), recorded);
    }

    #[test]
    fn a_minor_version_adds_variants_and_a_major_one_may_change_all() {
        #[derive(Serialize, Deserialize)]
        enum Message {
            Ask(Option<u32>),
            Tell { who: String, what: Vec<before::Part> },
            Stop,
        }
        let (before, more) =
            (recorded::<before::Message>((3, 1)), |version| recorded::<Message>(version));
        assert_eq!(before.permits(&recorded::<before::Message>((3, 1))), Ok(()));
        assert_eq!(before.permits(&more((3, 2))), Ok(()));
        assert_eq!(before.permits(&more((4, 0))), Ok(()));
        assert!(
            before.permits(&more((3, 1))).unwrap_err().contains("Message has more than before")
        );
        assert!(before.permits(&more((3, 0))).unwrap_err().contains("later version 3.1"));
        let less = more((3, 2)).permits(&recorded::<before::Message>((3, 3))).unwrap_err();
        assert!(less.contains("Message, variant 2 was `Stop` and is now `nothing`"), "{less}");
    }

    #[test]
    fn a_changed_field_needs_a_major_version() {
        #[derive(Serialize, Deserialize)]
        enum Message {
            Ask(Option<u64>),
            Tell { who: String, what: Vec<before::Part> },
        }
        let before = recorded::<before::Message>((3, 1));
        let changed = before.permits(&recorded::<Message>((3, 2))).unwrap_err();
        assert!(
            changed.contains("was `Ask(u32?)` and is now `Ask(u64?)`")
                && changed.contains("version 4"),
            "{changed}"
        );
        assert_eq!(before.permits(&recorded::<Message>((4, 0))), Ok(()));
    }
}
