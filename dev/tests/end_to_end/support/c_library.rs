//! The C library as users install it, and programs that are compiled with it.

use std::fs;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use eyas_tree::root;

use super::{Cluster, Home, eyas};

/// Warnings that are errors in examples.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// An installed library.
pub struct CLibrary {
    prefix: PathBuf,
}

/// The library of the `eyas` that is tested, installed once in a run. Tests may be processes that
/// run side by side: one installs, the others wait for it.
pub fn c_library() -> &'static CLibrary {
    static LIBRARY: OnceLock<CLibrary> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let archive = eyas().with_file_name("libeyas_capi.a");
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        let mut installed = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(prefix.with_extension("installed"))
            .expect("our own folder");
        installed.lock().expect("our own file");
        let run =
            std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
        if io::read_to_string(&installed).expect("our own file") != run {
            let mut command = Command::new(root().join("doors/capi/install.sh"));
            assert!(
                command.arg(archive).arg(&prefix).status().expect("a script").success(),
                "it cannot be installed"
            );
            installed.set_len(0).and_then(|()| installed.rewind()).expect("our own file");
            installed.write_all(run.as_bytes()).expect("our own file");
        }
        CLibrary { prefix }
    })
}

impl CLibrary {
    /// The folder with its header, libraries and `eyas.pc`.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Compiles a program into the home, with checks of its memory if the compiler has them.
    /// Returns its path.
    #[track_caller]
    pub fn compile(&self, home: &Home, source: &Path) -> PathBuf {
        let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
        let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
        let program =
            home.path(source.file_stem().expect("a file").to_str().expect("a plain name"));
        let compile = |checks: &[&str]| {
            let mut command = Command::new(compiler);
            command
                .args(["-g", standard])
                .args(WARNINGS)
                .args(checks)
                .arg(source)
                .arg("-o")
                .arg(&program);
            command.arg("-I").arg(self.prefix.join("include"));
            command.arg("-L").arg(self.prefix.join("lib")).args(["-leyas", "-lpthread"]);
            command.arg(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
            command.output().expect("a compiler")
        };
        if !compile(&["-fsanitize=address,undefined", "-fno-sanitize-recover"]).status.success() {
            let done = compile(&[]);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        program
    }

    /// Compiles an example of `examples/`.
    #[track_caller]
    pub fn example(&self, home: &Home, name: &str) -> PathBuf {
        self.compile(home, &root().join("examples").join(name))
    }
}

impl Cluster {
    /// A program with this cluster as its own.
    pub fn program(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = self.command_of(Command::new(program), words);
        command.env("EYAS_CLUSTER", "test");
        command
    }
}

/// The symbols that a library exports, as `nm` prints them.
pub fn exported(library: &Path) -> String {
    let done =
        Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library).output().expect("nm");
    let text = String::from_utf8(done.stdout).expect("text");
    assert!(done.status.success() && fs::exists(library).unwrap_or(false), "{text}");
    text
}
