//! The files and manifests of this repository, for the tests that check them.
//!
//! These tests run before anything else is compiled, so this crate must have few dependencies, and
//! none in the workspace.

#![forbid(unsafe_code)]

pub mod imports;
pub mod index;
pub mod json_schema;
pub mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the repository.
///
/// # Panics
///
/// If this crate is not in `dev/tree/`.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is in dev/tree")
        .to_owned()
}

/// Output of `cargo metadata --no-deps`.
///
/// # Panics
///
/// If cargo fails.
pub fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root());
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// The folder of a manifest, relative to the root.
///
/// # Panics
///
/// If `manifest` has no folder.
pub fn folder_of(manifest: &str) -> PathBuf {
    let folder = Path::new(manifest).parent().expect("a manifest is in a folder");
    folder.strip_prefix(root()).unwrap_or(folder).to_owned()
}

/// Path from the root, and text, of each file of the project with one of these endings (or, without
/// an ending, one of these names), in the order of the paths. Folders of build results and of other
/// projects' code are left out.
///
/// # Panics
///
/// If a file is not readable text.
pub fn files(endings: &[&str]) -> Vec<(String, String)> {
    fn walk(root: &Path, folder: &Path, endings: &[&str], found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let entry = entry.expect("a readable folder");
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_ours = !name.starts_with('.')
                && !["target", "vendor", "demo-out"].contains(&name.as_str());
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or(&name);
            if entry.file_type().expect("a file type").is_dir() {
                if is_ours {
                    walk(root, &path, endings, found);
                }
            } else if endings.contains(&ending) {
                let text =
                    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                found.push((
                    path.strip_prefix(root).expect("under the root").to_string_lossy().into_owned(),
                    text,
                ));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &root(), endings, &mut found);
    found.sort();
    found
}

/// Checks that a generated file has this content; with `EYAS_GENERATE=1`, writes it.
///
/// # Panics
///
/// If the file has another content.
pub fn generated(file: &str, content: &str) {
    let path = root().join(file);
    let found = fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("EYAS_GENERATE").is_some() {
        // A file that is written is compiled again.
        if found != content {
            fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        return;
    }
    assert!(found == content, "{file} is not current: run `make generate`, and commit the file");
}
