//! What the tasks of a draft are made from and run, as text: for a list of commands before the job
//! runs, and for what a program writes beside results.

use std::borrow::Cow;
use std::sync::Arc;

use eyas_types::template::Expansion;
use eyas_types::{Name, Program, TaskItem, TaskTemplate, Template, TemplatePart, Value};

use crate::draft::{Draft, DraftTasks};

/// The items and commands of a draft's tasks, by their indices. It shares nothing with the draft,
/// and takes some 100 bytes for each task.
#[derive(Clone)]
pub struct TaskTexts(Arc<Texts>);

struct Texts {
    templates: Vec<TaskTemplate>,
    /// Paths and URLs of the objects that inputs name.
    sources: Vec<Name>,
    items: Vec<TaskItem>,
}

impl TaskTexts {
    /// The texts of a draft's tasks.
    pub fn of(draft: &Draft) -> Self {
        let mut items = Vec::with_capacity(draft.len());
        items.extend(draft.tasks.iter().flat_map(DraftTasks::items).map(Cow::into_owned));
        let path = |source: &Name| source.strip_prefix(b"file://").unwrap_or(source).into();
        TaskTexts(Arc::new(Texts {
            templates: draft.templates.clone(),
            sources: draft.objects.iter().map(|object| path(&object.source)).collect(),
            items,
        }))
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }

    /// The item of a task as the user wrote it, its columns joined by blanks; empty for a task
    /// without an item.
    pub fn item(&self, index: u32) -> Name {
        let columns = self.0.items[index as usize].values.iter();
        columns.map(|value| value.text.as_bytes()).collect::<Vec<_>>().join(&b' ').into()
    }

    /// The words of a task's command. An input stands there by its path or URL, and not by the path
    /// of its copy; the number of the slot stays a placeholder.
    pub fn command(&self, index: u32) -> Vec<Name> {
        match &self.0.templates[usize::from(self.0.items[index as usize].template)].program {
            Program::Command(words) => words.iter().map(|word| self.expand(word, index)).collect(),
            Program::Call(_) | Program::Noop => Vec::new(),
        }
    }

    /// A word with the placeholders replaced as in the command of a task.
    pub fn expand(&self, word: &Template, index: u32) -> Name {
        let Texts { templates, sources, items } = &*self.0;
        let item = &items[index as usize];
        let values: Vec<_> =
            item.values.iter().map(|value| Value { input: None, ..value.clone() }).collect();
        let inputs = templates[usize::from(item.template)].inputs.iter().chain(&item.inputs);
        let source = |object: Option<u32>| {
            object.map_or_else(Name::default, |object| sources[object as usize].clone())
        };
        let staged: Vec<_> = inputs.map(|input| source(input.from.object())).collect();
        let known = Template(
            word.0
                .iter()
                .map(|part| match part {
                    TemplatePart::Slot => TemplatePart::Literal("{%}".into()),
                    part => part.clone(),
                })
                .collect(),
        );
        known.expand(&Expansion {
            values: &values,
            staged: &staged,
            template_inputs: 0,
            number: index + 1,
            slot: 0,
            input_list: b"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandWords, InputFields, OneOrMore, TaskFields};

    #[tokio::test]
    async fn commands_have_the_paths_of_their_inputs() {
        let mut draft = Draft::new("test");
        let words = ["cat", "Cargo.toml", "{input:1}", "{}", "{#}-{%}"];
        let fields = TaskFields {
            command: CommandWords(words.map(Name::from).to_vec()),
            array: OneOrMore(vec!["3-9:3".into()]),
            inputs: vec![InputFields::Path("Cargo.toml".into())],
            ..TaskFields::default()
        };
        fields.draft(&mut draft).await.unwrap();
        let texts = TaskTexts::of(&draft);
        assert_eq!((texts.len(), texts.item(1)), (3, "6".into()));
        let path = std::env::current_dir().unwrap().join("Cargo.toml").display().to_string();
        let expected = ["cat", &path, &path, "6", "2-{%}"].map(Name::from);
        assert_eq!(texts.command(1), expected);
        assert_eq!(texts.expand(&Template::parse("out/{}"), 0), "out/3");
    }
}
