//! Builds the library that `eyas io run` loads into programs, so that the `eyas` command contains
//! it: a node then needs only this one file, and `cargo install --path doors/cli` is enough.
//!
//! The library is a package of this workspace (`data/coordinator/preload`). Cargo has no stable way
//! for a binary to depend on the file of such a library, so this script calls cargo once more. The
//! inner cargo has a target folder of its own, because the outer cargo holds the lock of the outer
//! folder.

use std::env;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libeyas_preload.so";

fn main() -> Result<(), Box<dyn Error>> {
    let workspace = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    for source in ["data/coordinator/preload", "data/coordinator/board", "Cargo.lock", "Cargo.toml"]
    {
        println!("cargo:rerun-if-changed={}", workspace.join(source).display());
    }
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let library = build(&workspace, &folder.join("preload"))?;
    let content =
        fs::read(&library).map_err(|e| format!("cannot read {}: {e}", library.display()))?;
    fs::write(folder.join(LIBRARY), &content)?;
    // The hash is part of the name of the file for the loader, so that different contents have
    // different names.
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
    cargo
        .arg("--manifest-path")
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target_folder);
    // Without unwinding, it needs neither Rust's standard library nor `libgcc_s`, so programs start
    // earlier.
    if profile == "release" {
        cargo.arg("--release").env("CARGO_PROFILE_RELEASE_PANIC", "abort");
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "true");
        cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    } else {
        cargo.env("CARGO_PROFILE_DEV_PANIC", "abort");
    }
    // The inner build must not use the wrappers and folders of the outer build, such as those of
    // clippy.
    for variable in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        cargo.env_remove(variable);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(
            format!("{LIBRARY} could not be built ({status}); the messages above say why").into()
        );
    }
    Ok(target_folder.join(target).join(profile).join(LIBRARY))
}
