//! What a job file says of a task's outputs: where each goes, and whether executors keep it.

use std::fmt;

use eyas_types::object::is_kept_name;
use eyas_types::task::MAX_REPLICAS;
use eyas_types::{DeliverWhen, Name, OutputSpec, Template};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::error::TaskFieldsError;
use super::placeholders::no_placeholder;
use super::values::some_number;

/// An output in a job file: a table, or the name of the file alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct OutputFields {
    /// File or glob in the sandbox.
    pub file: Name,
    /// Destination; if missing, the folder of submission, or none for an output that is kept.
    pub to: Option<Name>,
    /// Whether executors keep the output in their stores, and for how long.
    #[serde(default)]
    pub keep: Keep,
    /// Number of executors that keep it; 1 if missing.
    #[serde(default, deserialize_with = "some_number")]
    pub replicas: Option<u8>,
    /// Whether the task may leave it out.
    #[serde(default)]
    pub optional: bool,
    /// After which ends of the task it is delivered.
    #[serde(default, deserialize_with = "when")]
    pub when: DeliverWhen,
}

impl<'de> Deserialize<'de> for OutputFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Output;
        impl<'de> Visitor<'de> for Output {
            type Value = OutputFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an output")
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<OutputFields, E> {
                Ok(OutputFields { file: file.into(), ..OutputFields::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<OutputFields, A::Error> {
                // The derived function, which reads a table.
                OutputFields::deserialize(MapAccessDeserializer::new(table))
            }
        }
        deserializer.deserialize_any(Output)
    }
}

impl OutputFields {
    /// The output of a task. If the task runs in the folder of submission (`is_in_place`), the file
    /// goes where its name says.
    pub(super) fn spec(&self, is_in_place: bool) -> Result<OutputSpec, TaskFieldsError> {
        let file = &self.file;
        let replicas = match (self.keep, self.replicas) {
            (Keep::No, Some(_)) => {
                return Err(TaskFieldsError::ReplicasWithoutKeep(file.clone()));
            }
            (Keep::UntilReleased | Keep::UntilRead, Some(replicas))
                if !(1..=MAX_REPLICAS).contains(&replicas) =>
            {
                return Err(TaskFieldsError::Replicas { file: file.clone(), replicas });
            }
            (keep, replicas) => replicas.unwrap_or(u8::from(keep != Keep::No)),
        };
        let own = if is_in_place && !Template::parse(file).is_glob() { &file[..] } else { b"./" };
        let to = self.to.as_deref().or((self.keep == Keep::No).then_some(own));
        if let Some(to) = to.filter(|to| is_kept_name(to)) {
            return Err(TaskFieldsError::KeptDestination { file: file.clone(), to: to.into() });
        }
        let (pattern, destination) = (Template::parse(file), to.map(Template::parse));
        if let Some(why) =
            [Some(&pattern), destination.as_ref()].into_iter().flatten().find_map(no_placeholder)
        {
            return Err(TaskFieldsError::NoPlaceholder { file: file.clone(), why });
        }
        if self.keep != Keep::No && self.when.is_after_failure() {
            return Err(TaskFieldsError::KeptAfterFailure(file.clone()));
        }
        let (until_read, optional, when) = (self.keep == Keep::UntilRead, self.optional, self.when);
        Ok(OutputSpec { pattern, destination, replicas, until_read, optional, when })
    }
}

/// Reads when an output is delivered.
pub(super) fn when<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeliverWhen, D::Error> {
    let word = String::deserialize(deserializer)?;
    DeliverWhen::of_word(word.as_bytes()).ok_or_else(|| {
        de::Error::custom(format_args!(
            "`when` cannot be \"{word}\": write \"success\", \"failure\" or \"always\""
        ))
    })
}

/// Whether executors keep an output, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "YesNoOrWord")]
pub enum Keep {
    /// The output is not kept: `false`.
    #[default]
    No,
    /// Until the job is released or forgotten: `true`.
    UntilReleased,
    /// Until all tasks that read it have succeeded: `"until-read"`.
    UntilRead,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum YesNoOrWord {
    YesNo(bool),
    Word(String),
}

impl TryFrom<YesNoOrWord> for Keep {
    type Error = String;

    fn try_from(keep: YesNoOrWord) -> Result<Self, Self::Error> {
        match keep {
            YesNoOrWord::YesNo(false) => Ok(Keep::No),
            YesNoOrWord::YesNo(true) => Ok(Keep::UntilReleased),
            YesNoOrWord::Word(word) if word == "until-read" => Ok(Keep::UntilRead),
            YesNoOrWord::Word(word) => {
                Err(format!("`keep` cannot be \"{word}\": write true, false or \"until-read\""))
            }
        }
    }
}
