//! Starts a task's process so that the kernel kills it when its executor dies for any reason
//! (`PR_SET_PDEATHSIG`).
//!
//! The standard library could do so only by `fork`, which copies this process's page tables. With a
//! store of many objects that takes longer than many tasks. So this does what `posix_spawn` does:
//! the child shares this process's memory until it executes its program, and the thread that starts
//! the child waits until then.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::ptr;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::CpuSet;

use crate::inherited::{FIRST_OTHER, open_files};

/// The child's stack until it executes its program: it makes a few system calls without nesting.
const STACK_BYTES: usize = 64 << 10;
/// Folders with programs if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Exit code of a child that could not execute its program. No process sees it.
const NOT_EXECUTED: c_int = 127;
/// The highest number of a signal.
const MAX_SIGNAL: c_int = 64;
/// A program is searched for in all folders of the `PATH` again after this time, so that a new
/// program in an earlier folder is found. Until then the folder in which it was found is tried
/// first.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);
/// Programs whose folders are remembered; at this number all are forgotten.
const MAX_REMEMBERED: usize = 256;

/// The folder in which a program was found, as its index in the `PATH`, and when it was searched
/// for.
static FOUND: LazyLock<Mutex<HashMap<ProgramAndPath, (usize, Instant)>>> =
    LazyLock::new(Mutex::default);

type ProgramAndPath = (OsString, OsString);

/// Signals that are reset in each child, because handlers of this process must not run there.
/// Ignored signals stay ignored, except for closed pipes, which only Rust programs ignore. Most
/// signals have the default. An executor handles signals from its start on, so this does not change
/// while tasks run.
static HANDLED: LazyLock<Vec<c_int>> = LazyLock::new(|| {
    let is_reset = |number: &c_int| {
        // SAFETY: A zeroed sigaction is the default one, and the pointer is to a live variable.
        let (is_known, now) = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            (libc::sigaction(*number, ptr::null(), &mut now) == 0, now.sa_sigaction)
        };
        is_known
            && match now {
                libc::SIG_DFL => false,
                libc::SIG_IGN => *number == libc::SIGPIPE,
                _ => true,
            }
    };
    (1..=MAX_SIGNAL).filter(is_reset).collect()
});

/// The environment of this process, which does not change: names, and variables with their names.
static ENVIRONMENT: LazyLock<Vec<(OsString, CString)>> = LazyLock::new(|| {
    let variables =
        std::env::vars_os().map(|(name, value)| Some((variable(&name, &value).ok()?, name)));
    variables.flatten().map(|(variable, name)| (name, variable)).collect()
});

/// The standard input of all children.
fn null() -> io::Result<&'static File> {
    static NULL: OnceLock<File> = OnceLock::new();
    if let Some(null) = NULL.get() {
        return Ok(null);
    }
    let null = File::open("/dev/null")?;
    Ok(NULL.get_or_init(|| null))
}

/// All that the child needs. It is made before, because the child must not allocate.
struct Plan {
    /// Possible paths of the program, in the order of the `PATH`.
    programs: Vec<CString>,
    /// Index of the path to try before all others.
    first: Option<usize>,
    /// Index of the path that was tried last: the executed program, if there was no error.
    tried: usize,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    folder: Option<CString>,
    /// The child's descriptors 0, 1 and 2.
    streams: [RawFd; 3],
    /// Files of control groups that the child enters.
    groups: Vec<RawFd>,
    /// Cores to which the child is pinned.
    cores: Option<CpuSet>,
    /// The limit of open files, unless it is that of this process.
    open_files: Option<libc::rlimit>,
    /// Signals whose handlers the child resets.
    handled: &'static [c_int],
    parent: libc::pid_t,
    /// Why the program could not be executed; 0 if it was.
    error: c_int,
}

/// Starts a command's program as the leader of a new session, without a terminal, with this
/// standard input or an empty one, and these streams as its output, in the control groups with
/// these member files and on these cores. Only the program, arguments, environment and folder of
/// the command count. The process is killed if the calling thread ends first.
///
/// # Errors
/// The system's error; the process is gone then.
pub(crate) fn spawn(
    command: &Command,
    stdin: Option<BorrowedFd<'_>>,
    stdout: BorrowedFd<'_>,
    stderr: BorrowedFd<'_>,
    groups: &[File],
    cores: Option<CpuSet>,
) -> io::Result<Pid> {
    let path = search_path(command);
    let programs = paths(command.get_program(), path)?;
    let searched =
        (programs.len() > 1).then(|| (command.get_program().to_owned(), path.to_owned()));
    let first = searched.as_ref().and_then(remembered);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(c_string).collect::<io::Result<Vec<_>>>()?;
    let own = command.get_envs().filter_map(|(name, value)| Some(variable(name, value?)));
    let own = own.collect::<io::Result<Vec<_>>>()?;
    let changed: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
    let others = ENVIRONMENT.iter().filter(|(name, _)| !changed.contains(&name.as_os_str()));
    let folder =
        command.get_current_dir().map(|folder| c_string(folder.as_os_str())).transpose()?;
    let mut plan = Plan {
        programs,
        first,
        tried: 0,
        arguments: pointers(&words),
        environment: pointers(others.map(|(_, variable)| variable).chain(&own)),
        folder,
        streams: [
            stdin.unwrap_or(null()?.as_fd()).as_raw_fd(),
            stdout.as_raw_fd(),
            stderr.as_raw_fd(),
        ],
        groups: groups.iter().map(File::as_raw_fd).collect(),
        cores,
        open_files: open_files(),
        handled: &HANDLED,
        parent: std::process::id() as libc::pid_t,
        error: 0,
    };
    let child = start(&mut plan)?;
    match plan.error {
        0 => {
            if let (Some(searched), true) = (searched, first != Some(plan.tried)) {
                remember(searched, plan.tried);
            }
            Ok(child)
        }
        error => {
            // The child has ended. An error of reaping would hide the reason why it could not be
            // started.
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

fn start(plan: &mut Plan) -> io::Result<Pid> {
    let mut stack = Box::<[u8]>::new_uninit_slice(STACK_BYTES);
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: The stack is used by the child alone, and its end is aligned as all ABIs require. The
    // child runs `child` with a plan that lives until the child has executed its program or ended,
    // because CLONE_VFORK makes this thread wait for that. Nothing changes the data behind the plan
    // meanwhile, and the child makes only calls that are allowed between fork and exec. No signal
    // handler runs in the child with this process's memory: all signals are blocked until the child
    // has reset their handlers. The masks are written before they are read.
    let (child, error) = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let end = stack.as_mut_ptr().add(STACK_BYTES);
        let top = end.sub(end.addr() % 16).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let number = libc::clone(child, top, flags, ptr::from_mut(plan).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        (number, error)
    };
    Pid::from_raw(child).filter(|_| child > 0).ok_or(error)
}

/// The child's main function, in the memory of the executor.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes a plan that outlives this call, and waits meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    plan.error = execute(plan);
    NOT_EXECUTED
}

/// Executes the program. Returns only if that fails, with the error.
fn execute(plan: &mut Plan) -> c_int {
    // SAFETY: All pointers are to strings and lists that end with a null, and live in the plan or
    // beside it in `spawn`. A zeroed sigaction is the default one. Nothing here allocates, locks,
    // or touches memory that other threads use.
    unsafe {
        let failed = libc::setsid() < 0
            || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            // The executor may have died just before; then no signal comes.
            || libc::getppid() != plan.parent
            // 0 means the writing process.
            || plan.groups.iter().any(|group| libc::write(*group, c"0".as_ptr().cast(), 1) != 1)
            || (0..).zip(plan.streams).any(|(number, stream)| libc::dup2(stream, number) < 0)
            || plan.folder.as_ref().is_some_and(|folder| libc::chdir(folder.as_ptr()) != 0)
            || plan
                .open_files
                .as_ref()
                .is_some_and(|limit| libc::setrlimit(libc::RLIMIT_NOFILE, limit) != 0);
        if failed {
            return errno();
        }
        // Descriptors that other code of this process has left open. Kernels before 5.11 do not
        // know the flag.
        libc::syscall(libc::SYS_close_range, FIRST_OTHER, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        if let Some(cores) = &plan.cores {
            // Fails if none of the cores is available any longer; then the child may use those of
            // the executor.
            let _ = rustix::thread::sched_setaffinity(None, cores);
        }
        let default: libc::sigaction = std::mem::zeroed();
        for number in plan.handled {
            libc::sigaction(*number, &default, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        let mut why = libc::ENOENT;
        for tried in plan.first.into_iter().chain(0..plan.programs.len()) {
            plan.tried = tried;
            libc::execve(
                plan.programs[tried].as_ptr(),
                plan.arguments.as_ptr(),
                plan.environment.as_ptr(),
            );
            match errno() {
                // The next folder is tried, as in shells.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => why = libc::EACCES,
                other => return other,
            }
        }
        why
    }
}

fn errno() -> c_int {
    // Never 0, which would mean success.
    io::Error::last_os_error().raw_os_error().filter(|error| *error != 0).unwrap_or(libc::EIO)
}

/// The folders in which the command's program is searched for.
fn search_path(command: &Command) -> &OsStr {
    let of_command = command.get_envs().find(|(name, _)| *name == "PATH");
    let of_this = || {
        let (_, variable) = ENVIRONMENT.iter().find(|(name, _)| name == "PATH")?;
        Some(OsStr::from_bytes(&variable.as_bytes()["PATH=".len()..]))
    };
    of_command.map_or_else(of_this, |(_, value)| value).unwrap_or(OsStr::new(DEFAULT_PATH))
}

/// An environment variable for the kernel.
fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    c_string(&OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat()))
}

/// The possible paths of a program: its own if it has a slash, otherwise one in each folder of the
/// `PATH`.
fn paths(program: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    std::env::split_paths(path).map(|folder| c_string(folder.join(program).as_os_str())).collect()
}

/// The folder in which a program was found less than [`SEARCH_AGAIN`] ago.
fn remembered(program: &ProgramAndPath) -> Option<usize> {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found
        .get(program)
        .filter(|(_, searched)| searched.elapsed() < SEARCH_AGAIN)
        .map(|(index, _)| *index)
}

fn remember(program: ProgramAndPath, index: usize) {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if found.len() >= MAX_REMEMBERED {
        found.clear();
    }
    found.insert(program, (index, Instant::now()));
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "a word of the command contains a NUL byte")
    })
}

/// A null-terminated list for the kernel.
fn pointers<'a>(texts: impl IntoIterator<Item = &'a CString>) -> Vec<*const c_char> {
    texts.into_iter().map(|text| CStr::as_ptr(text)).chain([ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    /// The exit code of `program` on this path.
    fn run(program: &str, path: &OsStr) -> io::Result<Option<i32>> {
        let null = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        let mut command = Command::new(program);
        command.env("PATH", path);
        let child = spawn(
            &command,
            None,
            std::os::fd::AsFd::as_fd(&null),
            std::os::fd::AsFd::as_fd(&null),
            &[],
            None,
        )?;
        let (_, status) = waitpid(Some(child), WaitOptions::empty())?.expect("it is waited for");
        Ok(status.exit_status())
    }

    #[test]
    fn a_remembered_program_that_moves_or_goes_is_searched_for_again() {
        let outer = tempfile::tempdir().unwrap();
        let folders = ["first", "second", "third"].map(|name| outer.path().join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let path = std::env::join_paths(&folders).unwrap();
        let make = |folder: usize, code: i32| {
            let (file, program) = (folders[folder].join("new"), folders[folder].join("program"));
            fs::write(&file, format!("#!/bin/sh\nexit {code}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&file, program).unwrap();
        };
        let name: ProgramAndPath = ("program".into(), path.clone());
        make(1, 3);
        let found = || FOUND.lock().unwrap().get(&name).map(|(index, _)| *index);
        assert_eq!((found(), run("program", &path).unwrap(), found()), (None, Some(3), Some(1)));
        assert_eq!(run("program", &path).unwrap(), Some(3));
        make(2, 4);
        fs::remove_file(folders[1].join("program")).unwrap();
        assert_eq!((run("program", &path).unwrap(), found()), (Some(4), Some(2)));
        fs::remove_file(folders[2].join("program")).unwrap();
        assert_eq!(run("program", &path).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
