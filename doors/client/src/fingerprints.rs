//! Which tasks of a draft an earlier run has done: each task has a fingerprint that is the same in
//! both runs, and tasks that are done become tasks without a command.

use std::fmt;

use blake3::Hasher;
use eyas_types::{TaskItem, TaskTemplate};

use crate::draft::{Draft, DraftError, DraftTasks};

/// What identifies a task from run to run: its command, variables, folder and outputs, its item,
/// and the versions of the inputs that it has for itself. Inputs that all tasks of an array read do
/// not count: a mended program leaves a task the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskFingerprint([u8; TaskFingerprint::BYTES]);

impl TaskFingerprint {
    /// Length of a fingerprint, bytes.
    pub const BYTES: usize = 16;

    /// The fingerprint with these bytes.
    pub fn from_bytes(bytes: [u8; TaskFingerprint::BYTES]) -> Self {
        TaskFingerprint(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; TaskFingerprint::BYTES] {
        &self.0
    }
}

impl fmt::Debug for TaskFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Draft {
    /// The fingerprints of all tasks, by their indices.
    pub fn fingerprints(&self) -> Vec<TaskFingerprint> {
        let bases: Vec<_> = self.templates.iter().map(of_template).collect();
        let numbered: Vec<_> = self.templates.iter().map(TaskTemplate::is_numbered).collect();
        let mut fingerprints = Vec::with_capacity(self.len());
        for tasks in &self.tasks {
            for item in tasks.items() {
                let mut hasher = bases[usize::from(item.template)].clone();
                for value in &item.values {
                    feed(&mut hasher, &value.text);
                }
                self.feed_inputs(&mut hasher, &item);
                if numbered[usize::from(item.template)] {
                    hasher.update(&(fingerprints.len() as u64).to_le_bytes());
                }
                let mut bytes = [0; TaskFingerprint::BYTES];
                hasher.finalize_xof().fill(&mut bytes);
                fingerprints.push(TaskFingerprint(bytes));
            }
        }
        fingerprints
    }

    fn feed_inputs(&self, hasher: &mut Hasher, item: &TaskItem) {
        for input in &item.inputs {
            if let Some(object) = input.from.object() {
                feed(hasher, &self.objects[object as usize].id().0);
            }
            feed(hasher, input.name.as_deref().unwrap_or_default());
            if let Some(part) = input.from.part() {
                feed(hasher, format!("{part:?}").as_bytes());
            }
        }
    }

    /// Puts a task without a command, which ends at once, in the place of each task that is `done`,
    /// by its index. So all other tasks keep their indices.
    ///
    /// # Errors
    /// If the job has too many templates.
    pub fn leave_out(&mut self, done: &[bool]) -> Result<(), DraftError> {
        let template = self.template(TaskTemplate::done_earlier())?;
        let nothing = TaskItem { template, values: Vec::new(), inputs: Vec::new() };
        let mut done = done.iter();
        for tasks in &mut self.tasks {
            let left = tasks.items().map(|item| match done.next() {
                Some(true) => nothing.clone(),
                _ => item.into_owned(),
            });
            let left = left.collect();
            *tasks = DraftTasks::Items(left);
        }
        Ok(())
    }
}

/// Hashes what the tasks of a template have in common. Outputs of failed tasks alone are no part of
/// a result: a user may ask for them after the first failure.
fn of_template(template: &TaskTemplate) -> Hasher {
    let TaskTemplate { program, env, folder, base, .. } = template;
    let outputs: Vec<_> = template.outputs_of_success().map(|(_, output)| output).collect();
    let common = serde_json::to_vec(&(program, env, folder, base, outputs));
    let mut hasher = Hasher::new();
    feed(&mut hasher, &common.expect("a template can be written as JSON"));
    template.preparations.iter().for_each(|command| feed(&mut hasher, command));
    hasher
}

/// Adds bytes, and where they end.
fn feed(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

#[cfg(test)]
mod tests {
    use eyas_types::Program;

    use super::*;
    use crate::{CommandWords, InputFields, OneOrMore, OutputFields, TaskFields};
    use eyas_types::DeliverWhen;

    async fn draft(fields: TaskFields) -> Draft {
        let mut draft = Draft::new("test");
        fields.draft(&mut draft).await.unwrap();
        draft
    }

    fn over_files(folder: &std::path::Path, command: &[&str]) -> TaskFields {
        TaskFields {
            command: CommandWords(command.iter().map(|word| (*word).into()).collect()),
            each: OneOrMore(vec![folder.join("*.txt").to_str().unwrap().into()]),
            inputs: vec![InputFields::Path(folder.join("program").to_str().unwrap().into())],
            ..TaskFields::default()
        }
    }

    #[tokio::test]
    async fn a_task_is_the_same_until_its_command_or_its_own_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        for (name, text) in [("a.txt", "a"), ("b.txt", "b"), ("program", "1")] {
            write(name, text).unwrap();
        }
        let prints =
            async |command: &[&str]| draft(over_files(folder.path(), command)).await.fingerprints();
        let before = prints(&["cat", "{}"]).await;
        assert_eq!(before.len(), 2);
        assert_ne!(before[0], before[1]);
        assert_ne!(prints(&["wc", "{}"]).await, before);
        write("program", "mended").unwrap();
        assert_eq!(prints(&["cat", "{}"]).await, before, "all tasks read the program");
        write("b.txt", "another b").unwrap();
        let after = prints(&["cat", "{}"]).await;
        assert_eq!((after[0], after[1] == before[1]), (before[0], false));
        let with = async |when| {
            let output = OutputFields { file: "log".into(), when, ..OutputFields::default() };
            let outputs = vec![output];
            draft(TaskFields { outputs, ..over_files(folder.path(), &["cat", "{}"]) }).await
        };
        let [success, always, failure] =
            [DeliverWhen::Success, DeliverWhen::Always, DeliverWhen::Failure].map(with);
        let (success, always, failure) =
            (success.await.fingerprints(), always.await.fingerprints(), failure.await);
        assert!(success == always && success != after);
        let without = TaskFields {
            folder: Some("sandbox".into()),
            ..over_files(folder.path(), &["cat", "{}"])
        };
        assert_eq!(failure.fingerprints(), draft(without).await.fingerprints());
        // A file before the others changes the numbers of tasks, which count only if they are used.
        let numbered = prints(&["cat", "{}", "{#}"]).await;
        write("a0.txt", "").unwrap();
        assert_eq!(prints(&["cat", "{}"]).await[2], after[1]);
        assert_ne!(prints(&["cat", "{}", "{#}"]).await[2], numbered[1]);
    }

    #[tokio::test]
    async fn tasks_that_are_done_have_no_command_and_the_others_keep_their_indices() {
        let fields = TaskFields {
            command: CommandWords(vec!["echo".into(), "{}".into()]),
            array: OneOrMore(vec!["5-8".into()]),
            ..TaskFields::default()
        };
        let (mut draft, whole) = (draft(fields).await, 4);
        assert_eq!(draft.fingerprints().len(), whole);
        draft.leave_out(&[true, false, true, false]).unwrap();
        assert_eq!(draft.len(), whole);
        let DraftTasks::Items(items) = &draft.tasks[0] else { panic!("items") };
        let programs =
            items.iter().map(|item| &draft.templates[usize::from(item.template)].program);
        assert_eq!(
            programs.map(|program| matches!(program, Program::Noop)).collect::<Vec<_>>(),
            [true, false, true, false]
        );
        assert_eq!(items[3].values[0].text, "8");
    }
}
