//! What the tasks of a job wait for: the outputs of other tasks that they read.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::task::MAX_INPUTS;
use eyas_types::{Input, InputFrom, TaskItem, Value};

use crate::spec::{JobSpec, TaskError};

/// What the tasks of a job wait for. To find it takes long for millions of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependencies {
    /// For each task that other tasks wait for: those tasks.
    dependents: BTreeMap<u32, Vec<u32>>,
    /// For each blocked task: the tasks that it waits for.
    unmet: BTreeMap<u32, BTreeSet<u32>>,
}

impl Dependencies {
    pub(crate) fn of(needs: &BTreeMap<u32, Arc<[u32]>>) -> Self {
        let mut found = Dependencies::default();
        for (task, producers) in needs {
            found.depend(*task, &**producers);
            found.unmet.insert(*task, producers.iter().copied().collect());
        }
        found
    }

    /// A task reads outputs of these.
    pub(crate) fn depend<'a>(&mut self, task: u32, producers: impl IntoIterator<Item = &'a u32>) {
        producers
            .into_iter()
            .for_each(|producer| self.dependents.entry(*producer).or_default().push(task));
    }

    /// Whether no task reads outputs of another.
    pub(crate) fn are_none(&self) -> bool {
        self.dependents.is_empty()
    }

    /// The tasks that read outputs of a task.
    pub(crate) fn dependents(&self, producer: u32) -> &[u32] {
        self.dependents.get(&producer).map_or(&[], |dependents| dependents)
    }

    /// A task waits for outputs of these, and of those that it waits for already.
    pub(crate) fn wait(&mut self, task: u32, producers: impl IntoIterator<Item = u32>) {
        let mut producers = producers.into_iter().peekable();
        if producers.peek().is_some() {
            self.unmet.entry(task).or_default().extend(producers);
        }
    }

    /// The tasks for whose outputs a task waits.
    pub(crate) fn waits_for(&self, task: u32) -> impl Iterator<Item = u32> {
        self.unmet.get(&task).into_iter().flatten().copied()
    }

    /// Whether a task waits for outputs of `producer`.
    pub(crate) fn waits_on(&self, task: u32, producer: u32) -> bool {
        self.unmet.get(&task).is_some_and(|unmet| unmet.contains(&producer))
    }

    /// Whether a task waits for outputs of any.
    pub(crate) fn is_waiting(&self, task: u32) -> bool {
        self.unmet.contains_key(&task)
    }

    /// The tasks that wait for outputs.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        self.unmet.keys().copied().collect()
    }

    /// A task has what it waited for of `producer`. Whether it waited for that, and now waits for
    /// no other.
    pub(crate) fn meet(&mut self, task: u32, producer: u32) -> bool {
        let Some(unmet) = self.unmet.get_mut(&task) else { return false };
        let is_last = unmet.remove(&producer) && unmet.is_empty();
        if is_last {
            self.unmet.remove(&task);
        }
        is_last
    }

    /// A task waits for nothing any more.
    pub(crate) fn stop_waiting(&mut self, task: u32) {
        self.unmet.remove(&task);
    }

    /// Tasks no longer wait for outputs of those that `have_delivered`. Returns the tasks that now
    /// wait for no other.
    pub(crate) fn meet_all(&mut self, have_delivered: impl Fn(u32) -> bool) -> Vec<u32> {
        self.unmet
            .values_mut()
            .for_each(|producers| producers.retain(|producer| !have_delivered(*producer)));
        self.unmet
            .extract_if(.., |_, producers| producers.is_empty())
            .map(|(task, _)| task)
            .collect()
    }
}

impl JobSpec {
    /// Checks that all that a task names exists. Returns the tasks whose outputs it reads, each
    /// once, in order. `of_templates` has those of templates that were checked: they are the same
    /// for all tasks of a template.
    pub(crate) fn check_item(
        &self,
        item: &TaskItem,
        of_templates: &mut BTreeMap<u16, Arc<[u32]>>,
    ) -> Result<Arc<[u32]>, TaskError> {
        let template = self
            .templates
            .get(usize::from(item.template))
            .ok_or(TaskError::NoTemplate(item.template))?;
        let inputs = template.inputs.len() + item.inputs.len();
        if inputs > MAX_INPUTS {
            return Err(TaskError::TooManyInputs(inputs));
        }
        let is_missing = |value: &&Value| {
            value.own_input().is_some_and(|input| input >= item.inputs.len())
                || value.template_input().is_some_and(|input| input >= template.inputs.len())
        };
        if let Some(value) = item.values.iter().find(is_missing) {
            return Err(TaskError::NoSuchInput(value.text.clone()));
        }
        let of_template = match of_templates.get(&item.template) {
            Some(producers) => producers.clone(),
            None => {
                let producers: Arc<[u32]> = self.check_inputs(&template.inputs, &[])?.into();
                of_templates.insert(item.template, producers.clone());
                producers
            }
        };
        Ok(if item.inputs.is_empty() {
            of_template
        } else {
            self.check_inputs(&item.inputs, &of_template)?.into()
        })
    }

    /// Checks inputs. Returns the tasks whose outputs they are, and `others`, each once, in order.
    fn check_inputs(&self, inputs: &[Input], others: &[u32]) -> Result<Vec<u32>, TaskError> {
        let mut producers = others.to_vec();
        for input in inputs {
            producers.extend(self.check_input(input)?);
        }
        producers.sort_unstable();
        producers.dedup();
        Ok(producers)
    }

    /// The task that an input waits for, if any.
    fn check_input(&self, input: &Input) -> Result<Option<u32>, TaskError> {
        match input.from {
            InputFrom::Object(object) | InputFrom::Part { object, .. }
                if (object as usize) < self.objects.len() =>
            {
                Ok(None)
            }
            InputFrom::Object(object) | InputFrom::Part { object, .. } => {
                Err(TaskError::NoSuchObject(object))
            }
            InputFrom::Output { task, .. } | InputFrom::OutputPart { task, .. }
                if task as usize >= self.items.len() =>
            {
                Err(TaskError::NoSuchTask(task))
            }
            InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                let template = self.templates.get(usize::from(self.items.template(task)));
                match template.and_then(|template| template.outputs.get(usize::from(output))) {
                    Some(spec) if !spec.when.is_after_success() => {
                        Err(TaskError::ReadsFailure { task, output })
                    }
                    Some(spec) if spec.pattern.is_glob() => {
                        Err(TaskError::ReadsPattern { task, output })
                    }
                    Some(_) => Ok(Some(task)),
                    None => Err(TaskError::NoSuchOutput { task, output }),
                }
            }
        }
    }
}

/// Tasks that wait for each other in a circle, and tasks that wait for them; none if there is no
/// circle. Up to ten are returned. For example, if task 1 reads from 2, 2 from 1 and 3 from 2, it
/// is all three.
pub(crate) fn circle(needs: BTreeMap<u32, Arc<[u32]>>, dependencies: &Dependencies) -> Vec<u32> {
    // Most jobs name tasks in an order in which they can run.
    if needs.iter().all(|(task, producers)| producers.last().is_none_or(|last| last < task)) {
        return Vec::new();
    }
    let mut unmet: BTreeMap<u32, usize> =
        needs.into_iter().map(|(task, producers)| (task, producers.len())).collect();
    let mut free: Vec<u32> =
        dependencies.dependents.keys().copied().filter(|task| !unmet.contains_key(task)).collect();
    while let Some(done) = free.pop() {
        for dependent in dependencies.dependents(done) {
            let left = unmet.get_mut(dependent).expect("a dependent needs something");
            *left -= 1;
            if *left == 0 {
                unmet.remove(dependent);
                free.push(*dependent);
            }
        }
    }
    unmet.into_keys().take(10).collect()
}
