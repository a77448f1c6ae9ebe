//! Commands about accounts.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::accounts::{AccountBook, AccountsError, Role};
use crate::job_store::{JobStore, StoreError};
use crate::secrets::unix_ms;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error("cannot read a password: {0}; give it on the standard input")]
    Password(io::Error),
    #[error(transparent)]
    Jobs(#[from] StoreError),
    #[error(
        "an account `{0}` was removed, and has {1} jobs left, which a new one would see: choose \
         another name, or delete these jobs first, with a token of role admin"
    )]
    HasJobs(String, usize),
    #[error("the two passwords differ: give the same one twice")]
    Differ,
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Adds an account, with a password from the terminal or the standard input.
pub fn add(state: &Path, name: &str, role: Role, quota: u64) -> Result<(), ConsoleError> {
    let book = AccountBook::in_folder(state);
    let (left, _) = JobStore::open(state)?.held_by(name);
    if left > 0 && book.account(name)?.is_none() {
        return Err(ConsoleError::HasJobs(name.to_owned(), left));
    }
    let password = new_password()?;
    Ok(book.add(name, &password, role, quota)?)
}

/// Changes a password.
pub fn set_password(state: &Path, name: &str) -> Result<(), ConsoleError> {
    let password = new_password()?;
    Ok(AccountBook::in_folder(state).set_password(name, &password)?)
}

/// Changes the rights or the quota of an account.
pub fn set(
    state: &Path,
    name: &str,
    role: Option<Role>,
    quota: Option<u64>,
) -> Result<(), ConsoleError> {
    Ok(AccountBook::in_folder(state).set(name, role, quota)?)
}

/// Revokes all tokens of an account.
pub fn revoke(state: &Path, name: &str) -> Result<(), ConsoleError> {
    Ok(AccountBook::in_folder(state).revoke_tokens(name)?)
}

/// Removes an account.
pub fn remove(state: &Path, name: &str) -> Result<(), ConsoleError> {
    Ok(AccountBook::in_folder(state).remove(name)?)
}

/// Lists accounts: name, role, quota, number of tokens.
pub fn list(state: &Path) -> Result<(), ConsoleError> {
    let mut out = io::stdout().lock();
    for account in AccountBook::in_folder(state).all()? {
        let (name, role, quota) = (&account.name, account.role.name(), account.quota);
        writeln!(out, "{name}\t{role}\t{quota}\t{}", account.tokens().len())?;
    }
    Ok(())
}

/// Makes a token of an account, and prints it.
pub fn make_token(
    state: &Path,
    account: &str,
    name: &str,
    role: Role,
    days: u16,
) -> Result<(), ConsoleError> {
    let expires_ms = unix_ms() + u64::from(days) * DAY_MS;
    let text = AccountBook::in_folder(state).add_token(account, name, role, expires_ms)?;
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// A password: from a terminal twice and unseen, else the first line of the standard input.
fn new_password() -> Result<String, ConsoleError> {
    let input = io::stdin();
    if !input.is_terminal() {
        return read_line().map_err(ConsoleError::Password);
    }
    let unseen = |words: &str| -> io::Result<String> {
        write!(io::stderr(), "{words}: ")?;
        let before = tcgetattr(&input)?;
        let mut without_echo = before.clone();
        without_echo.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Flush, &without_echo)?;
        let line = read_line();
        tcsetattr(&input, OptionalActions::Flush, &before)?;
        writeln!(io::stderr())?;
        line
    };
    let first = unseen("Password").map_err(ConsoleError::Password)?;
    let again = unseen("The same again").map_err(ConsoleError::Password)?;
    if first == again { Ok(first) } else { Err(ConsoleError::Differ) }
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
