//! The job that the arguments of `eyas run` describe.

use eyas_client::types::Name;
use eyas_client::{
    Bytes, Cluster, CommandWords, Draft, Duration as Span, InputFields, ListLine, OneOrMore,
    OutputFields, TaskFields,
};

use super::lists::CommandAndLists;
use super::run_args::RunArgs;
use crate::error::CliError;
use crate::node_args::named_amounts;
use crate::waiting::ProgressDisplay;
use crate::words::OutputWord;

/// The job that the arguments describe.
pub(super) async fn draft(
    args: &RunArgs,
    cluster: Option<&Cluster>,
    progress: &ProgressDisplay,
) -> Result<Draft, CliError> {
    let parsed = CommandAndLists::of(&args.command);
    let (command, has_lists) = (parsed.command.clone(), parsed.has_lists());
    let program = command.first().map_or("noop".into(), |program| {
        String::from_utf8_lossy(program.rsplit(|byte| *byte == b'/').next().unwrap_or(program))
    });
    let mut draft =
        Draft::new(args.name.as_deref().unwrap_or(&program)).seen_by(progress.preparing());
    if let Some(cluster) = cluster {
        draft = draft.on_cluster(cluster);
    }
    let items_from = parsed.only_file().cloned();
    let items = if has_lists { combinations(parsed).await? } else { Vec::new() };
    if has_lists && items.is_empty() {
        return Ok(draft);
    }
    let fields = TaskFields { items_from, ..fields(args, command, items)? };
    fields.draft(&mut draft).await?;
    draft.distribute(args.distribution);
    draft.halt_if_all_fail(args.results.halt.is_none());
    if args.reuse {
        draft.reuse_results();
    }
    Ok(draft)
}

/// The end of an input whose content the tasks read.
const DECOMPRESS: &[u8] = b",decompress";
/// What stands before the command that makes a folder of an input.
const WITH: &[u8] = b",with=";

/// An input as a word names it.
fn input(word: &Name) -> InputFields {
    if let Some(path) = word.strip_suffix(DECOMPRESS) {
        return file(path.into(), true, None, false);
    }
    match word.windows(WITH.len()).position(|part| part == WITH) {
        Some(at) => {
            let command = Name::from(&word[at + WITH.len()..]);
            file(word[..at].into(), false, Some(command), false)
        }
        None => InputFields::Path(word.clone()),
    }
}

fn file(path: Name, decompress: bool, with: Option<Name>, broadcast: bool) -> InputFields {
    InputFields::Named {
        path,
        name: None,
        into: None,
        range: None,
        records: None,
        decompress,
        with,
        broadcast,
    }
}

/// The array of tasks with this command, and with the items of lists behind it.
fn fields(
    args: &RunArgs,
    command: Vec<Name>,
    items: Vec<ListLine>,
) -> Result<TaskFields, CliError> {
    let output = |word: &OutputWord| {
        let OutputWord { file, to, when } = word.clone();
        OutputFields { file, to, when, ..OutputFields::default() }
    };
    let broadcast = |path: &Name| file(path.clone(), false, None, true);
    Ok(TaskFields {
        command: CommandWords(command),
        noop: args.noop,
        items,
        each: OneOrMore(args.each.clone()),
        each_block: OneOrMore(args.each_block.clone()),
        each_line: args.each_line.clone(),
        separator: args.colsep.clone(),
        append: args.no_append.then_some(false),
        array: OneOrMore(args.array.clone()),
        inputs: args.input.iter().map(input).chain(args.broadcast.iter().map(broadcast)).collect(),
        outputs: args.output.iter().map(output).collect(),
        env: args.env.iter().cloned().collect(),
        folder: if args.sandbox { Some("sandbox".into()) } else { args.folder.clone() },
        in_place: args.in_place,
        copy_inputs: args.copy_inputs,
        decompress: args.decompress,
        cpus: Some(args.cpus),
        memory: args.memory.map(Bytes),
        disk: args.disk.map(Bytes),
        resources: named_amounts(&args.resource)?.into_iter().collect(),
        requirements: args.requirements.clone(),
        rank: args.rank.clone(),
        timeout: args.timeout.map(Span),
        priority: args.priority,
        retries: args.retries,
        capture: args.capture.map(Bytes),
        max_output: Some(args.max_output).filter(|_| args.capture.is_none()),
        ..TaskFields::default()
    })
}

/// The items of lists behind the command. Lists in files may be long, or come from a slow program.
async fn combinations(parsed: CommandAndLists) -> Result<Vec<ListLine>, CliError> {
    Ok(tokio::task::spawn_blocking(move || parsed.combinations()).await??)
}
