//! One target of `dev/fuzz` under libFuzzer: the one that `EYAS_FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use eyas_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static CHOSEN: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("EYAS_FUZZ_TARGET").unwrap_or_default();
    let known = TARGETS.iter().find(|target| target.name == name);
    *known.unwrap_or_else(|| panic!("EYAS_FUZZ_TARGET={name} names no target of eyas-fuzz"))
}

fuzz_target!(|bytes: &[u8]| {
    let target = CHOSEN.get_or_init(chosen);
    (target.read)(bytes);
});
