//! Why a program does not start, in words for its user.

use std::path::Path;
use std::process::Command;

use eyas_types::Status;
use eyas_types::outcome::FailureKind;

use super::status::failed;

/// The end of a task whose program could not be started on a node, with what the user can do.
pub(super) fn cannot_start(node: &str, command: &Command, error: &std::io::Error) -> Status {
    let program = Path::new(command.get_program()).display();
    let folder = command.get_current_dir().unwrap_or(Path::new(".")).display();
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => {
            " (do the program, its interpreter and the working folder exist on this node? --input \
             (`inputs` in a job file) brings a program along)"
        }
        std::io::ErrorKind::PermissionDenied if is_on_noexec(command) => {
            " (its file system is mounted with `noexec`, so no program on it can run: move the \
             program, or the folder of the executor, to another one)"
        }
        std::io::ErrorKind::PermissionDenied => " (is it executable? chmod +x)",
        std::io::ErrorKind::ArgumentListTooLong => {
            " (a command line holds fewer arguments: `{inputs}` in the command stands for a file \
             with the paths of the inputs, one on each line)"
        }
        _ => "",
    };
    let reason = format!("cannot start `{program}` in {folder} on {node}: {error}{hint}");
    failed(FailureKind::Start, reason)
}

/// Whether the program of a command is on a file system from which no program can run.
fn is_on_noexec(command: &Command) -> bool {
    let program = Path::new(command.get_program());
    let program =
        command.get_current_dir().map_or_else(|| program.to_owned(), |folder| folder.join(program));
    rustix::fs::statvfs(&program)
        .is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}
