//! The `eyas` binary that is tested.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the binary; `eyas-text` is beside it. Both are built once, unless `EYAS_BIN` names a
/// binary.
pub fn eyas() -> &'static Path {
    static EYAS: OnceLock<PathBuf> = OnceLock::new();
    EYAS.get_or_init(|| match env::var_os("EYAS_BIN").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// Cargo does not build another package's binary for a test, so the test does; it has the profile
/// and folder that the test itself was built with. The whole workspace is named, because with less
/// of it cargo would choose other features of some dependencies, and build those again.
fn build() -> PathBuf {
    // target/PROFILE/deps/TEST
    let test = env::current_exe().expect("a test has a path");
    let profile_folder = test.ancestors().nth(2).expect("a test is in target/PROFILE/deps");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => panic!("{} has no profile", test.display()),
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        "eyas",
        "--bin",
        "eyas-text",
        "--lib",
        "--profile",
        profile,
    ]);
    command.arg("--target-dir").arg(profile_folder.parent().expect("PROFILE is in a folder"));
    let status =
        command.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo can be started");
    assert!(status.success(), "eyas cannot be built");
    profile_folder.join("eyas")
}
