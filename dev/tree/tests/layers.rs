//! Which room may import which, and other rules that a compiler does not check. `ARCHITECTURE.md`
//! gives the reasons.
//!
//! The tables are data. A new import between rooms, a file with unsafe code, and a long file each
//! need a row with a reason; a row that the code does not need must be removed. So the tables are
//! true in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use eyas_tree::{files, folder_of, metadata, root};
use serde_json::Value;

/// Imports between rooms, by their `Cargo.toml`: from, to, and what for. Any kind of dependency
/// counts.
const ARROWS: &[(&str, &str, &str)] = &[
    ("eyas-faults", "eyas-types", "the generator of pseudo-random numbers"),
    ("eyas-sched", "eyas-types", "ids, resources, policies' names"),
    ("eyas-provision", "eyas-types", "ids of executors and objects, policies' names"),
    ("eyas-jobs", "eyas-types", "jobs, tasks and their outcomes"),
    ("eyas-dispatch", "eyas-types", "ids of jobs, tasks, executors and objects"),
    ("eyas-dispatch", "eyas-jobs", "passes on what it says to the scheduler"),
    ("eyas-dispatch", "eyas-sched", "passes on what it says to the decider of jobs"),
    ("eyas-node", "eyas-types", "ids, resources, policies' names"),
    ("eyas-blocks", "eyas-types", "formats, chunks and their nodes"),
    ("eyas-ring", "eyas-types", "files, their records, nodes"),
    ("eyas-ioq", "eyas-types", "files, and what is done with them"),
    ("eyas-matching", "eyas-types", "the attributes that expressions mention"),
    ("eyas-wire", "eyas-types", "messages are made of the shared words"),
    ("eyas-session", "eyas-types", "who holds a key"),
    ("eyas-session", "eyas-wire", "sends its frames and greetings"),
    ("eyas-preload", "eyas-board", "asks the agent, in the programs that it is loaded into"),
    ("eyas-coordinator", "eyas-board", "agents answer programs on it"),
    ("eyas-coordinator", "eyas-ioq", "the decider that it and its agents are shells of"),
    ("eyas-coordinator", "eyas-types", "files, and what is done with them"),
    ("eyas-coordinator", "eyas-wire", "agents and coordinator greet each other as what they are"),
    ("eyas-coordinator", "eyas-session", "agents dial the coordinator, and each other"),
    ("eyas-coordinator", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-store", "eyas-types", "objects and their versions"),
    ("eyas-store", "eyas-reading", "the decider of the order in which places are read"),
    ("eyas-proxy", "eyas-session", "reads requests; its port has the admission of every listener"),
    ("eyas-transfer", "eyas-types", "objects and their ids"),
    (
        "eyas-transfer",
        "eyas-session",
        "encrypts with its keys; its port has the admission of every listener",
    ),
    ("eyas-transfer", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-transfer", "eyas-wire", "whether data is encrypted"),
    ("eyas-transfer", "eyas-store", "serves from a store, receives into it"),
    ("eyas-files", "eyas-types", "files, their records, nodes"),
    ("eyas-files", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-files", "eyas-wire", "clients greet nodes as what they are"),
    ("eyas-files", "eyas-session", "clients dial nodes"),
    (
        "eyas-files",
        "eyas-store",
        "reads chunks in stores of its machine; files of the cluster are persistent storage",
    ),
    ("eyas-files", "eyas-transfer", "chunks come and go like other objects"),
    ("eyas-files", "eyas-ring", "the operations on files, and which node leads which"),
    (
        "eyas-files",
        "eyas-blocks",
        "cuts files at the borders of their records; what workers of a run are told",
    ),
    ("eyas-files", "eyas-reading", "the decider of each reader of a file"),
    ("eyas-dfs", "eyas-types", "files, their records, nodes"),
    ("eyas-dfs", "eyas-wire", "nodes and clients greet each other as what they are"),
    ("eyas-dfs", "eyas-session", "nodes dial each other, and let clients in"),
    ("eyas-dfs", "eyas-store", "chunks are objects of the node's store"),
    ("eyas-dfs", "eyas-transfer", "chunks come and go like other objects"),
    (
        "eyas-dfs",
        "eyas-files",
        "what clients and nodes say to each other; is a client of others for forgotten runs",
    ),
    ("eyas-dfs", "eyas-ring", "the decider each node is the shell of"),
    (
        "eyas-dfs",
        "eyas-blocks",
        "the decider of the runs that it leads; cuts objects at the borders of their records",
    ),
    ("eyas-mount", "eyas-types", "names, kinds and attributes of files"),
    ("eyas-mount", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-mount", "eyas-files", "the files that it mounts"),
    ("eyas-passthrough", "eyas-mount", "the guardian of a mount"),
    ("eyas-passthrough", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-executor", "eyas-types", "tasks and their outcomes"),
    ("eyas-executor", "eyas-dfs", "is a node of the file system, and accounts for its chunks"),
    ("eyas-executor", "eyas-files", "gives tasks the cluster's files"),
    ("eyas-executor", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-executor", "eyas-wire", "what dispatcher and executor say to each other"),
    ("eyas-executor", "eyas-session", "dials the dispatcher"),
    ("eyas-executor", "eyas-coordinator", "asks for turns at persistent storage"),
    ("eyas-executor", "eyas-node", "the decider it is the shell of"),
    ("eyas-executor", "eyas-transfer", "fetches from peers and serves them"),
    ("eyas-executor", "eyas-store", "keeps objects, stages inputs, delivers outputs"),
    ("eyas-dispatcher", "eyas-types", "tasks and their outcomes"),
    ("eyas-dispatcher", "eyas-wire", "what clients, dispatcher and executors say to each other"),
    ("eyas-dispatcher", "eyas-session", "lets clients and executors in"),
    ("eyas-dispatcher", "eyas-dispatch", "what its two deciders say to each other"),
    ("eyas-dispatcher", "eyas-jobs", "the decider of what becomes of jobs"),
    ("eyas-dispatcher", "eyas-sched", "the decider of where tasks run"),
    ("eyas-pools", "eyas-types", "executors, resources and labels of nodes"),
    ("eyas-pools", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-pools", "eyas-wire", "options, requests and views of pools"),
    ("eyas-pools", "eyas-session", "reads no kubeconfig that another user could have written"),
    ("eyas-pools", "eyas-provision", "the decider that it is the shell of"),
    (
        "eyas-dispatcher",
        "eyas-pools",
        "starts the actor of pools, tells it the work, obeys its orders",
    ),
    ("eyas-dispatcher", "eyas-provision", "measures the work for the decider of pools"),
    ("eyas-dispatcher", "eyas-matching", "compiles what jobs require and executors accept"),
    ("eyas-client", "eyas-matching", "refuses a wrong expression where it is written"),
    ("eyas-client", "eyas-types", "drafts are made of tasks and objects"),
    ("eyas-client", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-client", "eyas-wire", "what clients and dispatcher say to each other"),
    ("eyas-client", "eyas-session", "dials the dispatcher"),
    ("eyas-client", "eyas-files", "gives programs the cluster's files"),
    ("eyas-client", "eyas-transfer", "brings what is kept in the cluster to its user"),
    ("eyas-client", "eyas-store", "names objects, with their versions, as executors do"),
    ("eyas-cli", "eyas-preload", "has the library in it; its build script builds it"),
    ("eyas-python", "eyas-cli", "the Python package has the eyas command"),
    ("eyas-python", "eyas-client", "gives it to Python"),
    ("eyas-capi", "eyas-client", "gives it to programs in C"),
    ("eyas-capi", "eyas-session", "reads access files"),
    ("eyas-web", "eyas-client", "submits, watches and asks for all of its readers"),
    ("eyas-web", "eyas-session", "makes its token; tells apart why a dispatcher is away"),
    ("eyas-sim", "eyas-types", "ids, resources, policies' names"),
    ("eyas-sim", "eyas-provision", "the decider of how many nodes its batch system is asked for"),
    ("eyas-sim", "eyas-sched", "the decider of the simulated dispatcher's placement"),
    ("eyas-sim", "eyas-jobs", "the decider of the simulated dispatcher's jobs"),
    ("eyas-sim", "eyas-dispatch", "passes on what these two say to each other"),
    ("eyas-sim", "eyas-node", "the decider of each simulated executor"),
    ("eyas-cli", "eyas-types", "its arguments have units and policies"),
    ("eyas-cli", "eyas-proxy", "starts it"),
    ("eyas-cli", "eyas-panics", "waits for tasks that may panic"),
    ("eyas-cli", "eyas-wire", "prints and plots the views"),
    ("eyas-cli", "eyas-session", "reads access files"),
    ("eyas-cli", "eyas-web", "starts it"),
    ("eyas-cli", "eyas-matching", "refuses what an executor cannot accept by"),
    ("eyas-cli", "eyas-client", "submits, watches and asks"),
    ("eyas-cli", "eyas-coordinator", "starts one, and agents; prints how they stand"),
    ("eyas-cli", "eyas-dispatcher", "starts one"),
    ("eyas-cli", "eyas-executor", "starts one"),
    ("eyas-cli", "eyas-mount", "mounts the files of a cluster"),
    ("eyas-cli", "eyas-passthrough", "mounts a folder whose reads and writes are ordered"),
    ("eyas-cli", "eyas-sim", "runs it, asks its model, and prints what came of it"),
    ("eyas-cli", "eyas-sched", "its Config, which the dispatcher takes"),
    ("eyas-cli", "eyas-pools", "submits the batch job of a dispatcher"),
    ("eyas-cli", "eyas-node", "its Limits, which the executor takes"),
    (
        "eyas-cli",
        "eyas-store",
        "its Emulation, which the executor takes, URLs of paths, and what stopped executors have \
         stored",
    ),
];

/// The floors, from the ground up. A room imports rooms of its own floor, and of floors below it.
const FLOORS: &[&str] = &["base", "core", "data", "compute", "doors", "dev"];

/// Rooms of pure deciders: they import `types` alone, whatever the table says, and no standard
/// library.
const CORE: &[&str] = &[
    "eyas-sched",
    "eyas-provision",
    "eyas-jobs",
    "eyas-dispatch",
    "eyas-node",
    "eyas-blocks",
    "eyas-ring",
    "eyas-ioq",
    "eyas-reading",
];
/// Joins two deciders and decides nothing itself: of the core, only this room imports others.
const EXCHANGE: &str = "eyas-dispatch";
/// May import every room; no room imports it.
const DEV: &str = "eyas-dev";
/// May import every room and the apps, whose parsers it tries; no room imports it.
const FUZZ: &str = "eyas-fuzz";
/// Tests that read the repository. It imports nothing of the workspace, so that they run before the
/// rest is compiled.
const TREE: &str = "eyas-tree";
/// What tests share: development dependencies of any room, and no other kind of dependency.
const FOR_TESTS: [&str; 2] = ["eyas-faults", "eyas-formats"];
/// The words.
const TYPES: &str = "eyas-types";

/// Files with unsafe code, and why it is necessary.
const UNSAFE: &[(&str, &str)] = &[
    (
        "data/coordinator/board/src/page_cache.rs",
        "asks the kernel what it has in memory, by a call that no library has",
    ),
    (
        "data/coordinator/board/src/peer.rs",
        "no safe wrapper of SO_PEERCRED has processes that are in another namespace",
    ),
    ("data/coordinator/board/src/stripe_info.rs", "asks BeeGFS by ioctls, which no library has"),
    ("data/coordinator/board/src/last_error.rs", "reads errno without the standard library"),
    (
        "data/coordinator/board/src/map.rs",
        "memory that processes share is mapped, and read as atomics",
    ),
    (
        "data/coordinator/preload/src/next_symbol.rs",
        "calls the C library's functions with whatever the program has passed",
    ),
    ("data/coordinator/preload/src/loaded.rs", "reads the symbol tables of loaded libraries"),
    ("data/coordinator/preload/src/alone.rs", "ends the process without the standard library"),
    ("data/coordinator/preload/src/agent.rs", "keeps the board, once it is mapped, by its address"),
    (
        "data/coordinator/preload/src/cancellation.rs",
        "has the C library call it when a thread is cancelled",
    ),
    (
        "data/coordinator/preload/src/environment.rs",
        "reads the environment's strings where the C library keeps them",
    ),
    ("data/coordinator/preload/src/waiting.rs", "looks at descriptors that are the program's"),
    ("data/coordinator/preload/src/parts.rs", "fills memory that the program gives"),
    ("data/coordinator/preload/src/hooks/copy.rs", "reads offsets that the program points to"),
    ("data/coordinator/preload/src/hooks/buffers.rs", "reads how long the program's buffers are"),
    ("data/coordinator/preload/src/hooks/write.rs", "reads offsets that the program points to"),
    ("data/coordinator/preload/src/hooks/stdio.rs", "looks into the C library's streams"),
    ("doors/capi/src/attributes.rs", "exports functions of the C library"),
    ("doors/capi/src/block.rs", "exports functions of the C library"),
    ("doors/capi/src/client.rs", "exports functions of the C library"),
    ("doors/capi/src/files.rs", "exports functions of the C library"),
    ("doors/capi/src/job.rs", "exports functions of the C library"),
    ("doors/capi/src/named.rs", "exports functions of the C library"),
    ("doors/capi/src/places.rs", "exports functions of the C library"),
    ("doors/capi/src/pointers.rs", "reads and writes what callers of the C library point to"),
    ("doors/capi/src/reader.rs", "exports functions of the C library"),
    ("doors/capi/src/results.rs", "exports functions of the C library"),
    ("doors/capi/src/signals.rs", "no safe wrapper changes the signal mask of a thread"),
    ("doors/capi/src/status.rs", "exports functions of the C library"),
    ("doors/capi/src/task.rs", "exports functions of the C library"),
    ("doors/capi/src/version.rs", "exports functions of the C library"),
    ("doors/capi/src/writer.rs", "exports functions of the C library"),
    ("doors/cli/src/allocator.rs", "no safe wrapper sets the C library's allocator"),
    (
        "compute/executor/src/process/spawn.rs",
        "no safe wrapper starts a process that dies with this one without copying its page tables",
    ),
    (
        "compute/executor/src/inherited.rs",
        "no safe wrapper closes descriptors that no part of the process owns",
    ),
    (
        "compute/executor/src/process.rs",
        "no safe wrapper of wait4 gives one child's resource usage",
    ),
    (
        "data/files/src/near/mapped.rs",
        "checks a chunk of a file in memory, without the copy that a read makes",
    ),
    ("doors/python/src/buffers.rs", "fills memory of Python objects without a copy"),
    (
        "dev/benches/decisions/memory.rs",
        "only a global allocator sees what is allocated, and its trait is unsafe",
    ),
    (
        "data/store/tests/s3.rs",
        "credentials come from environment variables, which a test has to set",
    ),
];

type Arrow = (String, String);

/// Arrows between the workspace's crates, as `cargo metadata --no-deps` has them, without those to
/// [`FOR_TESTS`] from tests.
fn arrows(metadata: &Value) -> BTreeSet<Arrow> {
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let arrows = packages.iter().flat_map(|package| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let is_for_tests = |dependency: &&Value| {
            FOR_TESTS.contains(&&*name(dependency)) && dependency["kind"] == "dev"
        };
        dependencies
            .iter()
            .filter(move |d| !is_for_tests(d))
            .map(move |dependency| (name(package), name(dependency)))
    });
    // A crate may name itself, for features in its own tests.
    arrows.filter(|(from, to)| members.contains(to) && from != to).collect()
}

/// The floor of each crate of the workspace, by its index; `None` if its folder is on none.
fn floors(metadata: &Value) -> BTreeMap<String, Option<usize>> {
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let floor_of = |package: &Value| {
        let folder = folder_of(package["manifest_path"].as_str().expect("a path"));
        FLOORS.iter().position(|floor| folder.starts_with(floor))
    };
    packages
        .map(|package| (package["name"].as_str().expect("a name").to_owned(), floor_of(package)))
        .collect()
}

/// Crates on no floor, and imports of rooms on a higher floor.
fn upward(metadata: &Value) -> Vec<String> {
    let floors = floors(metadata);
    let homeless = floors
        .iter()
        .filter(|(_, floor)| floor.is_none())
        .map(|(name, _)| format!("{name} is on no floor"));
    let arrows = arrows(metadata);
    let up = arrows.iter().filter_map(|(from, to)| {
        let (below, above) = (floors[from]?, floors[to]?);
        let words =
            || format!("{from} -> {to}: an import from {} up to {}", FLOORS[below], FLOORS[above]);
        (below < above).then(words)
    });
    homeless.chain(up).collect()
}

/// The differences between `arrows` and `table`.
fn violations(
    arrows: &BTreeSet<Arrow>,
    apps: &BTreeSet<String>,
    table: &[(&str, &str, &str)],
) -> Vec<String> {
    let allowed: BTreeMap<(&str, &str), &str> =
        table.iter().map(|(from, to, why)| ((*from, *to), *why)).collect();
    let mut wrong = Vec::new();
    for (from, to) in arrows {
        if to == DEV || to == FUZZ || to == TREE && from != DEV || apps.contains(to) && from != FUZZ
        {
            wrong.push(format!("{from} -> {to}: dev and apps must not be imported"));
        } else if FOR_TESTS.contains(&to.as_str()) {
            wrong.push(format!("{from} -> {to}: only a development dependency may name it"));
        } else if FOR_TESTS.contains(&from.as_str()) && to != TYPES || from == TREE {
            wrong.push(format!("{from} -> {to}: it is below every room"));
        } else if CORE.contains(&from.as_str()) && from != EXCHANGE && to != TYPES {
            wrong.push(format!("{from} -> {to}: a decider imports {TYPES} only"));
        } else if apps.contains(from) {
            wrong.push(format!("{from} -> {to}: apps import nothing of eyas"));
        } else if from != DEV
            && from != FUZZ
            && !allowed.contains_key(&(from.as_str(), to.as_str()))
        {
            wrong.push(format!(
                "{from} -> {to}: no row allows it; a new arrow is a design decision"
            ));
        }
    }
    for (from, to, _) in table {
        if !arrows.contains(&((*from).to_owned(), (*to).to_owned())) {
            wrong.push(format!("{from} -> {to}: the row is no longer needed"));
        }
    }
    wrong
}

/// Names of the crates under `dev/apps/`.
fn apps(metadata: &Value) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let is_app = |package: &&Value| {
        package["manifest_path"]
            .as_str()
            .is_some_and(|path| folder_of(path).starts_with("dev/apps"))
    };
    packages
        .filter(is_app)
        .map(|package| package["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Whether Rust code has the keyword, beyond comments, attributes and text in quotes.
fn has_unsafe(code: &str) -> bool {
    let lines = code
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//") && !line.starts_with("#!["));
    let unquoted = lines.flat_map(|line| line.split('"').step_by(2));
    let mut words =
        unquoted.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == "unsafe")
}

/// Compares the files that were found with a table of exceptions: both must list the same files.
fn compare(found: &BTreeSet<String>, table: &[(&str, &str)], what: &str) -> Vec<String> {
    let listed: BTreeSet<String> = table.iter().map(|(file, _)| (*file).to_owned()).collect();
    let unlisted =
        found.difference(&listed).map(|file| format!("{file} {what}, and no row says why"));
    let stale = listed
        .difference(found)
        .map(|file| format!("{file} is listed, but is not a file that {what}"));
    unlisted.chain(stale).collect()
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn rooms_import_only_allowed_rooms() {
    let metadata = metadata();
    assert_none(&violations(&arrows(&metadata), &apps(&metadata), ARROWS));
}

#[test]
fn imports_between_floors_point_down() {
    assert_none(&upward(&metadata()));
    let made_up = made_up(&[
        ("eyas-types", "base/types", &["eyas-sched"]),
        ("eyas-sched", "core/sched", &["eyas-types", "eyas-faults (dev)"]),
        ("eyas-faults", "base/faults", &[]),
        ("eyas-lost", "lost", &["eyas-types"]),
    ]);
    let wrong =
        ["eyas-lost is on no floor", "eyas-types -> eyas-sched: an import from base up to core"];
    assert_eq!(upward(&made_up), wrong);
}

/// What a Python file imports, without what the module of that name has inside.
fn python_imports(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().map(str::trim_start);
    let names = lines
        .filter_map(|line| line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")));
    names
        .flat_map(|names| names.split(" import").next().unwrap_or("").split(','))
        .map(|name| {
            let name = name.trim().split(' ').next().unwrap_or("");
            name.split('.').next().unwrap_or("")
        })
        .collect()
}

#[test]
fn apps_in_python_import_nothing_of_the_project() {
    let files = files(&["py"]);
    let stem =
        |file: &str| Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut wrong = Vec::new();
    for (file, code) in files.iter().filter(|(file, _)| file.starts_with("dev/apps/")) {
        let ours = files.iter().filter_map(|(file, _)| stem(file)).chain(["eyas".to_owned()]);
        let ours: BTreeSet<String> = ours.collect();
        let foreign = python_imports(code).into_iter().filter(|name| ours.contains(*name));
        wrong.extend(foreign.map(|name| format!("{file} -> {name}: apps import nothing of eyas")));
        if code.contains("sys.path") {
            wrong.push(format!("{file} changes where it imports from"));
        }
    }
    assert_none(&wrong);
    assert_eq!(
        python_imports("import a, b.c as d\n  from e.f import g"),
        BTreeSet::from(["a", "b", "e"])
    );
}

#[test]
fn every_row_has_a_reason_and_stands_once() {
    let rows: BTreeSet<_> = ARROWS.iter().map(|(from, to, _)| (from, to)).collect();
    assert_eq!(rows.len(), ARROWS.len(), "an arrow stands twice");
    let reasons = ARROWS.iter().map(|(_, _, why)| why).chain(UNSAFE.iter().map(|(_, why)| why));
    assert!(reasons.into_iter().all(|why| why.len() > 5));
}

#[test]
fn deciders_and_words_do_without_the_standard_library() {
    for package in metadata()["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let folder = root().join(folder_of(package["manifest_path"].as_str().expect("a path")));
        let is_core = folder.parent().is_some_and(|parent| parent == root().join("core"));
        assert_eq!(is_core, CORE.contains(&name), "{name}: CORE lists what is in core/");
        if is_core || name == TYPES {
            let lib = fs::read_to_string(folder.join("src/lib.rs")).expect("a library");
            assert!(lib.lines().any(|line| line == "#![no_std]"), "{name} is not no_std");
        }
    }
}

#[test]
fn unsafe_code_is_where_the_table_says() {
    let unsafe_files: BTreeSet<_> = files(&["rs"])
        .into_iter()
        .filter(|(_, code)| has_unsafe(code))
        .map(|(file, _)| file)
        .collect();
    assert_none(&compare(&unsafe_files, UNSAFE, "has unsafe code"));
    // Crates without a row promise it to the compiler as well.
    let mut wrong = Vec::new();
    for package in metadata()["packages"].as_array().expect("packages") {
        for target in package["targets"].as_array().expect("targets") {
            let kinds = target["kind"].as_array().expect("kinds");
            let source = Path::new(target["src_path"].as_str().expect("a path"));
            let file = source.strip_prefix(root()).unwrap_or(source).to_string_lossy().into_owned();
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let may = UNSAFE.iter().any(|(with, _)| with.starts_with(&format!("{folder}/")));
            let is_code = kinds.iter().any(|kind| kind == "lib" || kind == "bin");
            let code = fs::read_to_string(source).expect("a target has a source");
            if is_code && !may && !code.lines().any(|line| line == "#![forbid(unsafe_code)]") {
                wrong.push(format!("{file} does not say #![forbid(unsafe_code)]"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_rust_file_says_what_it_is() {
    let silent = files(&["rs"]).into_iter().filter(|(_, code)| !code.starts_with("//! "));
    assert_none(
        &silent.map(|(file, _)| format!("{file} does not open with `//! `")).collect::<Vec<_>>(),
    );
}

/// The texts between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_maps_name_what_there_is() {
    let maps = files(&["md"]).into_iter().filter(|(file, _)| {
        file == "ARCHITECTURE.md"
            || file == "CONTRIBUTING.md"
            || file.starts_with("docs/internals/")
    });
    let mut wrong = Vec::new();
    for (file, map) in maps {
        let words = map.lines().flat_map(quoted);
        let paths = words
            .filter(|word| word.contains('/') && !word.contains([' ', '*', ':', '<', '…', '(']));
        // What a build makes is there on some machines only.
        let exists = |path: &str| root().join(path).exists() && !path.starts_with("target/");
        let missing = paths.filter(|path| !path.starts_with(['/', '~']) && !exists(path));
        wrong.extend(missing.map(|path| format!("{file} names {path}, which does not exist")));
    }
    assert_none(&wrong);
}

// ---- the checks themselves

fn made_up(packages: &[(&str, &str, &[&str])]) -> Value {
    let package = |(name, folder, imports): &(&str, &str, &[&str])| {
        let dependency = |name: &&str| {
            let (name, kind) =
                name.strip_suffix(" (dev)").map_or((*name, None), |name| (name, Some("dev")));
            serde_json::json!({ "name": name, "kind": kind })
        };
        let dependencies: Vec<Value> = imports.iter().map(dependency).collect();
        let manifest = root().join(folder).join("Cargo.toml");
        serde_json::json!({ "name": name, "manifest_path": manifest, "dependencies": dependencies })
    };
    serde_json::json!({ "packages": packages.iter().map(package).collect::<Vec<_>>() })
}

#[test]
fn wrong_arrows_are_found() {
    let table = [
        ("eyas-executor", "eyas-types", "a reason"),
        ("eyas-sched", "eyas-node", "no reason will do"),
    ];
    let check = |packages: &[(&str, &str, &[&str])]| {
        let metadata = made_up(packages);
        violations(&arrows(&metadata), &apps(&metadata), &table)
    };
    let types = ("eyas-types", "base/types", &["serde"][..]);
    let node = ("eyas-node", "core/node", &[][..]);
    let stacking = ("eyas-stacking", "dev/apps/stacking", &["eyas-types"][..]);
    let dev = ("eyas-dev", "dev", &["eyas-types", "eyas-node", "eyas-tree", "serde"][..]);
    let tree = ("eyas-tree", "dev/tree", &["eyas-types", "serde"][..]);
    let executor = (
        "eyas-executor",
        "compute/executor",
        &["eyas-types", "eyas-node", "eyas-dev", "eyas-stacking"][..],
    );
    let sched = ("eyas-sched", "core/sched", &["eyas-node", "eyas-faults", "eyas-tree (dev)"][..]);
    let ring = ("eyas-ring", "core/ring", &["eyas-faults (dev)"][..]);
    let faults = ("eyas-faults", "base/faults", &["eyas-node"][..]);
    let wrong = check(&[types, node, stacking, dev, tree, executor, sched, ring, faults]);
    let expected = [
        "eyas-executor -> eyas-dev: dev and apps must not be imported",
        "eyas-executor -> eyas-node: no row allows it; a new arrow is a design decision",
        "eyas-executor -> eyas-stacking: dev and apps must not be imported",
        "eyas-faults -> eyas-node: it is below every room",
        "eyas-sched -> eyas-faults: only a development dependency may name it",
        "eyas-sched -> eyas-node: a decider imports eyas-types only",
        "eyas-sched -> eyas-tree: dev and apps must not be imported",
        "eyas-stacking -> eyas-types: apps import nothing of eyas",
        "eyas-tree -> eyas-types: it is below every room",
    ];
    assert_eq!(wrong, expected);
    let wrong = check(&[types, node, ("eyas-executor", "compute/executor", &["eyas-types"])]);
    assert_eq!(wrong, ["eyas-sched -> eyas-node: the row is no longer needed"]);
}

#[test]
fn unsafe_code_is_told_from_talk_about_it() {
    assert!(has_unsafe("fn f() {\n    unsafe { g() }\n}"));
    assert!(has_unsafe("unsafe impl Send for X {}"));
    assert!(!has_unsafe(
        "//! unsafe\n#![forbid(unsafe_code)]\n/// An unsafe thing.\nfn is_unsafe() {}"
    ));
}

#[test]
fn exceptions_are_held_against_what_there_is() {
    let found = ["a.rs", "b.rs"].map(str::to_owned).into();
    let wrong = compare(&found, &[("b.rs", "a reason"), ("c.rs", "a reason")], "is long");
    assert_eq!(
        wrong,
        ["a.rs is long, and no row says why", "c.rs is listed, but is not a file that is long"]
    );
}
