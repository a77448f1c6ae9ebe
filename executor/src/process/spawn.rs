//! Starting a task's process so that the kernel kills it when its executor dies, in whatever way (`PR_SET_PDEATHSIG`).
//!
//! The standard library could do so only by `fork`, which copies this process's page tables: with a store of many
//! objects that takes longer than many a task. So this does what `posix_spawn` does: the child shares this process's
//! memory until it executes its program, and the thread that starts it waits until then.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::ptr;

use rustix::process::Pid;

/// The child's stack until it executes its program: it calls a few system calls, and nothing that nests.
const STACK_BYTES: usize = 64 << 10;
/// Where programs are looked for without a `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// How a child ends that could not execute its program; nobody sees it.
const NOT_EXECUTED: c_int = 127;
/// Signals have numbers up to this.
const MAX_SIGNAL: c_int = 64;

/// All that the child needs, made before: it must not allocate.
struct Plan {
    /// Places of the program, to be tried in order.
    programs: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    folder: Option<CString>,
    /// What become its descriptors 0, 1 and 2.
    streams: [RawFd; 3],
    parent: libc::pid_t,
    /// Why it could not be started; 0 if it was.
    error: c_int,
}

/// Starts a command's program as the leader of a new process group, with nothing to read and these streams to write
/// to. Of the command, the program, arguments, environment and folder count. The process is killed if the thread that
/// calls this ends first.
///
/// # Errors
/// As the system says; the process is gone then.
pub(crate) fn spawn(command: &Command, stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>) -> io::Result<Pid> {
    let null = File::open("/dev/null")?;
    let environment = environment(command);
    let path = environment.get(OsStr::new("PATH")).map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    let programs = places(command.get_program(), path)?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(c_string).collect::<io::Result<Vec<_>>>()?;
    let variables = environment
        .iter()
        .map(|(name, value)| c_string(&OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())));
    let variables = variables.collect::<io::Result<Vec<_>>>()?;
    let folder = command.get_current_dir().map(|folder| c_string(folder.as_os_str())).transpose()?;
    let mut plan = Plan {
        programs,
        arguments: pointers(&words),
        environment: pointers(&variables),
        folder,
        streams: [null.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
        parent: std::process::id() as libc::pid_t,
        error: 0,
    };
    let child = start(&mut plan)?;
    match plan.error {
        0 => Ok(child),
        error => {
            // It has ended; whether it can be reaped says nothing of why it could not be started.
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

fn start(plan: &mut Plan) -> io::Result<Pid> {
    let mut stack = Box::<[u8]>::new_uninit_slice(STACK_BYTES);
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: The stack is the child's alone; its end is aligned as all ABIs want. The child runs `child` with a plan
    // that lives until it has executed its program or ended, since CLONE_VFORK has this thread wait for that; it uses
    // what it points to, which nothing changes meanwhile, and calls only what may be called between fork and exec. No
    // handler of a signal runs in it with this process's memory: all signals are blocked until it has reset them. The
    // masks are written before they are read.
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

/// What the child does, in the memory of the executor.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes a plan that lives longer than this does, and waits meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    plan.error = execute(plan);
    NOT_EXECUTED
}

/// Executes the program; if it returns, why it could not.
fn execute(plan: &Plan) -> c_int {
    // SAFETY: All pointers are to strings and lists that end with a null, which live in the plan or beside it in
    // `spawn`; a zeroed sigaction is the default one; nothing here allocates, locks, or touches memory that others
    // use.
    unsafe {
        let failed = libc::setpgid(0, 0) != 0
            || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            // It may have died just before, which no signal will tell.
            || libc::getppid() != plan.parent
            || (0..).zip(plan.streams).any(|(number, stream)| libc::dup2(stream, number) < 0)
            || plan.folder.as_ref().is_some_and(|folder| libc::chdir(folder.as_ptr()) != 0);
        if failed {
            return errno();
        }
        // What is handled here is not handled there; what was ignored before stays so, but for a closed pipe, which
        // only Rust programs ignore.
        let default: libc::sigaction = std::mem::zeroed();
        for number in 1..=MAX_SIGNAL {
            let mut now: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(number, ptr::null(), &mut now) == 0;
            if is_known && (now.sa_sigaction != libc::SIG_IGN || number == libc::SIGPIPE) {
                libc::sigaction(number, &default, ptr::null_mut());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        let mut why = libc::ENOENT;
        for program in &plan.programs {
            libc::execve(program.as_ptr(), plan.arguments.as_ptr(), plan.environment.as_ptr());
            match errno() {
                // Looked for in the next folder, as shells do.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => why = libc::EACCES,
                other => return other,
            }
        }
        why
    }
}

fn errno() -> c_int {
    // Never 0, which would mean that nothing has failed.
    io::Error::last_os_error().raw_os_error().filter(|error| *error != 0).unwrap_or(libc::EIO)
}

/// This process's environment, as the command changes it.
fn environment(command: &Command) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<_, _> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => _ = environment.insert(name.to_owned(), value.to_owned()),
            None => _ = environment.remove(name),
        }
    }
    environment
}

/// Where a program may be: where its name says, or in the folders of the path.
fn places(program: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    std::env::split_paths(path).map(|folder| c_string(folder.join(program).as_os_str())).collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in a word"))
}

/// A list for the kernel, which ends with a null.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text: &CString| CStr::as_ptr(text)).chain([ptr::null()]).collect()
}
