//! `{input:*}` in a command: one word for each input of the task. The tasks of an array may have
//! different numbers of inputs, as where the last group is shorter, and a template has one list of
//! words: there is a template for each of these numbers.

use std::collections::HashMap;

use eyas_types::{Program, TaskTemplate, Template, TemplatePart};

use super::error::TaskFieldsError;
use crate::draft::{Draft, DraftError};

/// What stands for all inputs in a word of a command.
const ALL_INPUTS: &str = "{input:*}";

/// The templates of an array of tasks.
pub(super) struct ArrayTemplates {
    /// The template with `{input:*}` in its command, if it has that.
    written: Option<TaskTemplate>,
    /// The numbers of the templates, by the numbers of inputs; one for all without `{input:*}`.
    by_inputs: HashMap<usize, u16>,
    first: Option<u16>,
}

impl ArrayTemplates {
    pub fn of(draft: &mut Draft, mut template: TaskTemplate) -> Result<Self, TaskFieldsError> {
        if let Some((name, _)) = template.env.iter().find(|(_, value)| names_all(value)) {
            return Err(TaskFieldsError::WordsInVariable(name.clone()));
        }
        if let Some(word) = words_of_outputs(&template).find(|word| names_all(word)) {
            return Err(TaskFieldsError::WordsInOutput(word.clone()));
        }
        let Program::Command(words) = &mut template.program else {
            return Self::one(draft, template);
        };
        if let Some(script) = words.iter().find(|word| names_all(word) && has_blank(word)) {
            return Err(TaskFieldsError::WordsInScript(script.clone()));
        }
        if words.iter().any(names_all) {
            return Ok(ArrayTemplates {
                written: Some(template),
                by_inputs: HashMap::new(),
                first: None,
            });
        }
        for word in words {
            *word = pieces(word).remove(0);
        }
        Self::one(draft, template)
    }

    fn one(draft: &mut Draft, template: TaskTemplate) -> Result<Self, TaskFieldsError> {
        let first = Some(draft.template(template)?);
        Ok(ArrayTemplates { written: None, by_inputs: HashMap::new(), first })
    }

    /// The template of a task with this number of inputs.
    pub fn with_inputs(&mut self, draft: &mut Draft, inputs: usize) -> Result<u16, DraftError> {
        let known = match (&self.written, self.by_inputs.get(&inputs)) {
            (Some(_), known) => known.copied(),
            (None, _) => self.first,
        };
        if let Some(known) = known {
            return Ok(known);
        }
        if inputs == 0 {
            return Err(DraftError::Input { word: Template::parse(ALL_INPUTS), input: 1, inputs });
        }
        let mut template = self.written.clone().expect("a template without it is known");
        if let Program::Command(words) = &mut template.program {
            *words = words.iter().flat_map(|word| words_of(word, inputs)).collect();
        }
        let number = draft.template(template)?;
        self.by_inputs.insert(inputs, number);
        self.first.get_or_insert(number);
        Ok(number)
    }

    /// The template of the first task.
    pub fn first(&self) -> Option<u16> {
        self.first
    }
}

fn words_of_outputs(template: &TaskTemplate) -> impl Iterator<Item = &Template> {
    let outputs = template.outputs.iter();
    outputs.flat_map(|output| [Some(&output.pattern), output.destination.as_ref()]).flatten()
}

/// Whether the text of a word has a blank in it.
fn has_blank(word: &Template) -> bool {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    word.0
        .iter()
        .any(|part| matches!(part, TemplatePart::Literal(text) if text.iter().any(is_blank)))
}

/// Whether a word has the placeholder.
pub(super) fn names_all(word: &Template) -> bool {
    pieces(word).len() > 1
}

/// The words of a task with this number of inputs: `-i{input:*}` is `-i{input:1}`, `-i{input:2}` …
fn words_of(word: &Template, inputs: usize) -> Vec<Template> {
    let pieces = pieces(word);
    let filled = |input: usize| {
        let mut parts = Vec::new();
        for (place, piece) in pieces.iter().enumerate() {
            if place > 0 {
                parts.push(TemplatePart::Input(input as u32));
            }
            parts.extend(piece.0.iter().cloned());
        }
        Template(parts)
    };
    match &pieces[..] {
        [only] => vec![only.clone()],
        _ => (0..inputs).map(filled).collect(),
    }
}

/// The pieces of a word between its `{input:*}`; the word itself without that. As with all
/// placeholders, a backslash before it makes it text, and two are one.
fn pieces(word: &Template) -> Vec<Template> {
    let mut pieces = vec![Template::default()];
    for part in &word.0 {
        let TemplatePart::Literal(text) = part else {
            pieces.last_mut().expect("there is one").0.push(part.clone());
            continue;
        };
        let (mut rest, mut literal) = (&text[..], Vec::new());
        while let Some(at) = position(rest) {
            let backslashes = rest[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
            literal.extend_from_slice(&rest[..at - backslashes.div_ceil(2)]);
            rest = &rest[at + ALL_INPUTS.len()..];
            if backslashes % 2 == 1 {
                literal.extend_from_slice(ALL_INPUTS.as_bytes());
                continue;
            }
            push_literal(&mut pieces, std::mem::take(&mut literal));
            pieces.push(Template::default());
        }
        literal.extend_from_slice(rest);
        push_literal(&mut pieces, literal);
    }
    pieces
}

fn push_literal(pieces: &mut [Template], text: Vec<u8>) {
    if let Some(last) = pieces.last_mut().filter(|_| !text.is_empty()) {
        last.0.push(TemplatePart::Literal(text.into()));
    }
}

fn position(text: &[u8]) -> Option<usize> {
    text.windows(ALL_INPUTS.len()).position(|window| window == ALL_INPUTS.as_bytes())
}

#[cfg(test)]
mod tests {
    use eyas_types::{DeliverWhen, OutputSpec};

    use super::*;

    #[test]
    fn a_word_with_the_placeholder_is_one_for_each_input() {
        let table: [(&str, &[&str]); 7] = [
            ("{input:*}", &["{input:1}", "{input:2}"]),
            ("--in={input:*}", &["--in={input:1}", "--in={input:2}"]),
            ("{/.}:{input:*}:{input:*}", &["{/.}:{input:1}:{input:1}", "{/.}:{input:2}:{input:2}"]),
            (r"\\{input:*}", &[r"\\{input:1}", r"\\{input:2}"]),
            (r"\{input:*}", &["{input:*}"]),
            (r"x\{}{input:0}", &[r"x\{}{input:0}"]),
            ("", &[""]),
        ];
        for (word, expected) in table {
            let parsed = Template::parse(word);
            let words: Vec<_> =
                words_of(&parsed, 2).iter().map(|word| word.written().to_string()).collect();
            assert_eq!(words, expected, "{word}");
            assert_eq!(names_all(&parsed), expected.len() > 1, "{word}");
        }
    }

    #[test]
    fn scripts_and_outputs_with_the_placeholder_are_refused() {
        let refused = |command: &[&str], output: &str| {
            let words = command.iter().map(Template::parse).collect();
            let mut template = TaskTemplate::new(Program::Command(words));
            template.outputs = vec![OutputSpec {
                pattern: Template::parse("x"),
                destination: Some(Template::parse(output)),
                replicas: 0,
                until_read: false,
                optional: false,
                when: DeliverWhen::Success,
            }];
            ArrayTemplates::of(&mut Draft::new("test"), template).err().map(|why| why.to_string())
        };
        let script = refused(&["sh", "-c", "cat {input:*} >all"], "y").unwrap();
        assert!(script.starts_with("the word `cat {input:*} >all` of the command"), "{script}");
        let output = refused(&["cat", "{}"], "{input:*}.out").unwrap();
        assert!(output.starts_with("the output `{input:*}.out` has"), "{output}");
        assert_eq!(refused(&["cat", "a b", "{input:*}"], "y"), None);
    }
}
