//! Builds the library that `eyas io run` loads into programs, so that the `eyas` command carries it: one file is then all
//! that a node needs, and `cargo install --path cli` is enough.
//!
//! The library is a package of this workspace (`coordinator/preload`), and cargo has no stable way for a binary to depend
//! on such a library's file. So cargo is called once more, with a target folder of its own: sharing the outer one would
//! wait for the lock that the outer cargo holds.

use std::env;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libeyas_preload.so";

fn main() -> Result<(), Box<dyn Error>> {
    let workspace = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    for source in ["coordinator/preload", "coordinator/board", "Cargo.lock", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", workspace.join(source).display());
    }
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let library = build(&workspace, &folder.join("preload"))?;
    let content = fs::read(&library).map_err(|e| format!("cannot read {}: {e}", library.display()))?;
    fs::write(folder.join(LIBRARY), &content)?;
    // The name of the file that is written for the loader: another content gets another name.
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    println!("cargo:rustc-env=EYAS_PRELOAD_HASH={:016x}", hasher.finish());
    Ok(())
}

/// Builds the package for the target of this build, and returns the path of the library.
fn build(workspace: &Path, target_folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let (target, profile) = (env::var("TARGET")?, env::var("PROFILE")?);
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo.args(["build", "--locked", "--package", "eyas-preload", "--lib", "--target", &target]);
    cargo.arg("--manifest-path").arg(workspace.join("Cargo.toml")).arg("--target-dir").arg(target_folder);
    if profile == "release" {
        cargo.arg("--release");
    }
    // Lints, documentation and coverage of the outer build are not for this one.
    for variable in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        cargo.env_remove(variable);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("{LIBRARY} cannot be built ({status}); see the messages above").into());
    }
    Ok(target_folder.join(target).join(profile).join(LIBRARY))
}
