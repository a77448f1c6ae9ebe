//! Descriptions of tasks, one field after the other.

use std::ffi::c_char;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_client::types::Name;
use eyas_client::{Bytes, Duration, InputFields, Keep, ListLine, OutputFields, TaskFields};

use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// The description of a task, or of an array of tasks with one command. It has the fields of a task
/// in a job file, with placeholders such as `{}`.
pub struct EyasTask {
    _private: [u8; 0],
}

impl Handle for EyasTask {
    type State = Mutex<TaskFields>;
    const NAME: &'static str = "eyas_task";
}

/// The fields of a description. Each change of them is whole.
pub(crate) fn locked(fields: &Mutex<TaskFields>) -> MutexGuard<'_, TaskFields> {
    fields.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the fields.
fn change(
    task: *mut EyasTask,
    change: impl FnOnce(&mut TaskFields) -> Result<(), CallError>,
) -> EyasStatus {
    call(|| change(&mut locked(&*handles::get(task)?)))
}

/// Makes the description of a task that runs a command: `count` words, program first. On success,
/// `*task` is a handle to be closed with `eyas_task_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_open(
    words: *const *const c_char,
    count: usize,
    task: *mut *mut EyasTask,
) -> EyasStatus {
    call(|| {
        pointers::check(task)?;
        let mut fields = TaskFields::default();
        // SAFETY: the caller passes an array of texts that end with NUL, with its length.
        fields.command.0 = unsafe { pointers::texts(words, count, "a word of the command") }?
            .into_iter()
            .map(Name::from)
            .collect();
        let opened = handles::open::<EyasTask>(Mutex::new(fields));
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(task, opened) }
    })
}

/// Sets the `id` by which later tasks of the job read outputs of this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_id(task: *mut EyasTask, id: *const c_char) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.id = Some(unsafe { pointers::text(id, "the id") }?.into());
        Ok(())
    })
}

/// Makes an array: one task for each call of this function, whose item has `count` columns, `{1}`,
/// `{2}` … in the command; `{}` is the whole item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_item(
    task: *mut EyasTask,
    columns: *const *const c_char,
    count: usize,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes an array of texts that end with NUL, with its length.
        let columns: Vec<_> = unsafe { pointers::texts(columns, count, "a column of the item") }?
            .into_iter()
            .map(Name::from)
            .collect();
        if columns.is_empty() {
            return Err(CallError::invalid("an item has at least one column"));
        }
        fields.items.push(ListLine { number: fields.items.len() + 1, columns });
        Ok(())
    })
}

/// Makes an array: one task for each file that matches a pattern, such as `eyas:///data/` followed
/// by `*.csv`. Each task reads its file; `{}` in the command is its path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_each(
    task: *mut EyasTask,
    pattern: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.each.0.push(unsafe { pointers::text(pattern, "the pattern") }?.into());
        Ok(())
    })
}

/// Makes an array: one task for each block of the files of the cluster that match a pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_each_block(
    task: *mut EyasTask,
    pattern: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.each_block.0.push(unsafe { pointers::text(pattern, "the pattern") }?.into());
        Ok(())
    })
}

/// Makes an array: one task for each number of a range, such as `1-100` or `0-90:30`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_array(
    task: *mut EyasTask,
    range: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.array.0 = vec![unsafe { pointers::text(range, "the range") }?.into()];
        Ok(())
    })
}

/// Adds a file that the task reads: a path or URL, which may have placeholders. A word of the
/// command that is equal to it becomes the path on the node. `name` is the name in the task's
/// folder; NULL for the file's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_input(
    task: *mut EyasTask,
    path: *const c_char,
    name: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (path, name) = unsafe {
            (
                pointers::text(path, "the input")?.into(),
                pointers::optional_text(name, "the name of the input")?,
            )
        };
        fields.inputs.push(match name {
            None => InputFields::Path(path),
            name => InputFields::Named {
                path,
                name: name.map(Name::from),
                into: None,
                range: None,
                records: None,
                decompress: false,
                with: None,
                broadcast: false,
            },
        });
        Ok(())
    })
}

/// Adds an output of another task of the job, which was added before: the output `file` of the task
/// with the `id`; its first output if `file` is NULL. If that is an array, the outputs of all of
/// its tasks are added. Outputs of one name get folders of their own, such as `input-3/out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_input_of(
    task: *mut EyasTask,
    id: *const c_char,
    file: *const c_char,
) -> EyasStatus {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    unsafe { eyas_task_add_input_into(task, id, file, ptr::null()) }
}

/// The same, and names the outputs in the task's folder: `{index}` in `into` stands for the index
/// of the task that writes the output in its array, from 0, and placeholders such as `{/.}` stand
/// for the item of that task. `into` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_input_into(
    task: *mut EyasTask,
    id: *const c_char,
    file: *const c_char,
    into: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (id, file, into) = unsafe {
            (
                pointers::text(id, "the id")?.into(),
                pointers::optional_text(file, "the output")?,
                pointers::optional_text(into, "the place of the output")?,
            )
        };
        let (output, into) = (file.map(Name::from), into.map(Name::from));
        let (index, group, name, range, records) = (None, None, None, None, None);
        fields.inputs.push(InputFields::Output {
            task: id,
            output,
            index,
            group,
            name,
            into,
            range,
            records,
            decompress: false,
            with: None,
        });
        Ok(())
    })
}

/// Adds a file, or a glob, that the task writes in its folder. `to` is its destination: a path, a
/// URL such as `eyas:///results/{/.}`, or NULL for the folder of the program that submits. If
/// `replicas` is not 0, executors keep that number of replicas in the cluster, and `to` may be NULL
/// for no other destination.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_add_output(
    task: *mut EyasTask,
    file: *const c_char,
    to: *const c_char,
    replicas: u8,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (file, to) = unsafe {
            (
                pointers::text(file, "the output")?.into(),
                pointers::optional_text(to, "the destination")?.map(Name::from),
            )
        };
        let keep = if replicas == 0 { Keep::No } else { Keep::UntilReleased };
        let replicas = (replicas > 0).then_some(replicas);
        fields.outputs.push(OutputFields { file, to, keep, replicas, ..OutputFields::default() });
        Ok(())
    })
}

/// Sets an environment variable of the task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_env(
    task: *mut EyasTask,
    name: *const c_char,
    value: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (name, value) = unsafe {
            (
                pointers::text(name, "the variable")?.into(),
                pointers::text(value, "the value")?.into(),
            )
        };
        fields.env.insert(name, value);
        Ok(())
    })
}

/// Sets the working folder; `sandbox` for a folder of the task's own, which is the default for a
/// task with outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_folder(
    task: *mut EyasTask,
    folder: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.folder = Some(unsafe { pointers::text(folder, "the folder") }?.into());
        Ok(())
    })
}

/// Sets the processors of the task; 1 by default.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_cpus(task: *mut EyasTask, cpus: f64) -> EyasStatus {
    change(task, |fields| {
        fields.cpus = Some(cpus);
        Ok(())
    })
}

/// Sets the memory of the task, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_memory(task: *mut EyasTask, bytes: u64) -> EyasStatus {
    change(task, |fields| {
        fields.memory = Some(Bytes(bytes));
        Ok(())
    })
}

/// Sets the disk of the task's folder, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_disk(task: *mut EyasTask, bytes: u64) -> EyasStatus {
    change(task, |fields| {
        fields.disk = Some(Bytes(bytes));
        Ok(())
    })
}

/// Sets the amount of another resource, such as `gpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_resource(
    task: *mut EyasTask,
    name: *const c_char,
    amount: u64,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { pointers::text(name, "the name of the resource") }?;
        fields.resources.insert(name.into(), amount);
        Ok(())
    })
}

/// Sets the match expression that is true for executors which may run the task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_set_requirements(
    task: *mut EyasTask,
    expression: *const c_char,
) -> EyasStatus {
    change(task, |fields| {
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        fields.requirements = Some(unsafe { pointers::text(expression, "the expression") }?.into());
        Ok(())
    })
}

/// Sets the priority. Tasks of higher priority start first.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_priority(task: *mut EyasTask, priority: i32) -> EyasStatus {
    change(task, |fields| {
        fields.priority = Some(priority);
        Ok(())
    })
}

/// Sets the time limit of the task, milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_timeout(task: *mut EyasTask, timeout_ms: u64) -> EyasStatus {
    change(task, |fields| {
        fields.timeout = Some(Duration(timeout_ms.saturating_mul(1000)));
        Ok(())
    })
}

/// Sets the number of retries after a failure.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_retries(task: *mut EyasTask, retries: u32) -> EyasStatus {
    change(task, |fields| {
        fields.retries = retries;
        Ok(())
    })
}

/// Sets the limit of captured standard output, and of standard error, bytes; 1 MiB by default.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_set_capture(task: *mut EyasTask, bytes: u64) -> EyasStatus {
    change(task, |fields| {
        fields.capture = Some(Bytes(bytes));
        Ok(())
    })
}

/// Closes the description. Jobs to which it was added keep a copy.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_task_close(task: *mut EyasTask) -> EyasStatus {
    call(|| handles::close(task).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_an_array_are_named_by_their_tasks() {
        let (words, mut task) = ([c"cat".as_ptr()], ptr::null_mut());
        // SAFETY: all texts end in NUL, and live until the calls have returned.
        unsafe {
            assert_eq!(eyas_task_open(words.as_ptr(), 1, &mut task), EyasStatus::Ok);
            let (id, file, into) =
                (c"cut".as_ptr(), c"cut.txt".as_ptr(), c"cuts/{index}.txt".as_ptr());
            assert_eq!(eyas_task_add_input_into(task, id, file, into), EyasStatus::Ok);
            assert_eq!(eyas_task_add_input_of(task, id, ptr::null()), EyasStatus::Ok);
        }
        let fields = handles::get(task).unwrap();
        let places: Vec<_> = locked(&fields)
            .inputs
            .iter()
            .map(|input| match input {
                InputFields::Output { task, output, into, .. } => {
                    (task.clone(), output.clone(), into.clone())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let named = ("cut".to_owned(), Some("cut.txt".into()), Some("cuts/{index}.txt".into()));
        assert_eq!(places, [named, ("cut".to_owned(), None, None)]);
        assert_eq!(eyas_task_close(task), EyasStatus::Ok);
    }
}
