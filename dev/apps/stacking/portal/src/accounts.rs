//! Accounts and API tokens, in one file of the state folder. It has hashes alone.
//!
//! `astroportal account` changes the file while the server runs: both lock it, and the server reads
//! it again when it has changed. So an account that was removed is refused from the next request
//! on.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::secrets::{PasswordHash, hash_secret, new_secret, unix_ms};
use crate::whole_file::{make_private_folder, open_lock, write_private};

/// Accounts of a portal.
const MAX_ACCOUNTS: usize = 10_000;
/// API tokens of an account that have not expired.
const MAX_TOKENS_OF_ACCOUNT: usize = 20;
/// Longest name of an account or token, bytes.
const MAX_ACCOUNT_NAME_BYTES: usize = 64;
/// Shortest and longest password, bytes.
const MIN_PASSWORD_BYTES: usize = 8;
const MAX_PASSWORD_BYTES: usize = 1024;
/// By this, programs that look for secrets find tokens.
const PREFIX: &str = "astroportal_";
/// Digits of the hash that are the id of a token.
const ID_DIGITS: usize = 8;
/// The file, and one that is locked while the first is changed.
const FILE: &str = "accounts.json";
const LOCK: &str = "accounts.lock";

/// The rights of an account or token. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at own jobs.
    Read,
    /// Also create, start, abort and delete own jobs.
    Submit,
    /// The same for the jobs of all accounts.
    Admin,
}

impl Role {
    /// The name in commands and pages.
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Submit => "submit",
            Role::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = AccountsError;

    fn from_str(text: &str) -> Result<Self, AccountsError> {
        let all = [Role::Read, Role::Submit, Role::Admin];
        let found = all.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| AccountsError::Role(text.to_owned()))
    }
}

/// Why accounts cannot be read or changed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    #[error("`{0}` is not a role: write read, submit or admin")]
    Role(String),
    #[error(
        "`{0}` cannot be a name: write up to {MAX_ACCOUNT_NAME_BYTES} letters, digits and -._@"
    )]
    Name(String),
    #[error(
        "a password has from {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES} bytes: choose another one"
    )]
    Password,
    #[error("there is an account `{0}`: choose another name, or remove it first")]
    Taken(String),
    #[error("there is no account `{0}`: `astroportal account list` shows the accounts")]
    Unknown(String),
    #[error("there is no token `{0}` of this account: its page lists the tokens")]
    UnknownToken(String),
    #[error("there are {MAX_ACCOUNTS} accounts: remove one first")]
    Full,
    #[error("the account has {MAX_TOKENS_OF_ACCOUNT} tokens: revoke one first")]
    FullOfTokens,
    #[error(
        "{path}: {1}. Restore the file from a backup, or remove it and add accounts",
        path = .0.display()
    )]
    Damaged(PathBuf, String),
    #[error("cannot read or write {path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The name, by which it signs in.
    pub name: String,
    /// Its rights.
    pub role: Role,
    /// Object-frames that its jobs may stack in 24 hours.
    pub quota: u64,
    password: PasswordHash,
    #[serde(default)]
    tokens: Vec<ApiToken>,
}

/// A token of an account, for programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiToken {
    hash: String,
    /// The name that it was made with.
    pub name: String,
    /// Its rights, at most those of its account.
    pub role: Role,
    /// When it is refused from, milliseconds since 1970.
    pub expires_ms: u64,
}

impl ApiToken {
    /// The id by which it is revoked.
    pub fn id(&self) -> &str {
        self.hash.get(..ID_DIGITS).unwrap_or(&self.hash)
    }
}

impl Account {
    /// Whether a password is that of the account; takes some 50 ms.
    pub fn has_password(&self, password: &str) -> bool {
        self.password.is_of(password)
    }

    /// Marks the password: sessions that began with another one end.
    pub fn password_mark(&self) -> String {
        hash_secret(&serde_json::to_string(&self.password).unwrap_or_default())
    }

    /// Its tokens, also expired ones.
    pub fn tokens(&self) -> &[ApiToken] {
        &self.tokens
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    accounts: Vec<Account>,
}

/// The accounts of a portal.
pub struct AccountBook {
    folder: PathBuf,
    read: Mutex<ReadAccounts>,
}

/// The file as it was read last.
#[derive(Default)]
struct ReadAccounts {
    identity: Option<(u64, i64, i64)>,
    accounts: Vec<Account>,
}

impl AccountBook {
    /// The accounts in a state folder. There need be none.
    pub fn in_folder(folder: &Path) -> Self {
        AccountBook { folder: folder.to_owned(), read: Mutex::default() }
    }

    /// All accounts, by name.
    pub fn all(&self) -> Result<Vec<Account>, AccountsError> {
        self.look(<[Account]>::to_vec)
    }

    /// Looks at the accounts as they are now.
    fn look<T>(&self, at: impl FnOnce(&[Account]) -> T) -> Result<T, AccountsError> {
        let mut read = self.read.lock().unwrap_or_else(|e| e.into_inner());
        let path = self.folder.join(FILE);
        let found = std::fs::metadata(&path).ok();
        let identity = found.map(|file| (file.ino(), file.ctime(), file.ctime_nsec()));
        if identity != read.identity {
            read.accounts = self.stored()?;
            read.identity = identity;
        }
        Ok(at(&read.accounts))
    }

    /// An account by its name.
    pub fn account(&self, name: &str) -> Result<Option<Account>, AccountsError> {
        self.look(|all| all.iter().find(|account| account.name == name).cloned())
    }

    /// The account of a token, and the rights of the token, if it is accepted now.
    pub fn of_token(&self, token: &str) -> Result<Option<(Account, Role)>, AccountsError> {
        if !token.starts_with(PREFIX) {
            return Ok(None);
        }
        let (hash, now) = (hash_secret(token), unix_ms());
        Ok(self.all()?.into_iter().find_map(|account| {
            let is_it = |token: &&ApiToken| token.hash == hash && token.expires_ms > now;
            let role = account.tokens.iter().find(is_it)?.role.min(account.role);
            Some((account, role))
        }))
    }

    /// Adds an account.
    pub fn add(
        &self,
        name: &str,
        password: &str,
        role: Role,
        quota: u64,
    ) -> Result<(), AccountsError> {
        check_name(name)?;
        let password = hashed(password)?;
        self.change(|accounts| {
            if accounts.iter().any(|account| account.name == name) {
                return Err(AccountsError::Taken(name.to_owned()));
            }
            if accounts.len() >= MAX_ACCOUNTS {
                return Err(AccountsError::Full);
            }
            let (name, tokens) = (name.to_owned(), Vec::new());
            accounts.push(Account { name, role, quota, password, tokens });
            accounts.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(())
        })
    }

    /// Removes an account with its tokens. Its jobs stay.
    pub fn remove(&self, name: &str) -> Result<(), AccountsError> {
        self.change(|accounts| {
            account_of(accounts, name)?;
            accounts.retain(|account| account.name != name);
            Ok(())
        })
    }

    /// Changes a password, which ends all sessions of the account.
    pub fn set_password(&self, name: &str, password: &str) -> Result<(), AccountsError> {
        let password = hashed(password)?;
        self.change(|accounts| {
            account_of(accounts, name)?.password = password;
            Ok(())
        })
    }

    /// Changes the rights or the quota of an account.
    pub fn set(
        &self,
        name: &str,
        role: Option<Role>,
        quota: Option<u64>,
    ) -> Result<(), AccountsError> {
        self.change(|accounts| {
            let account = account_of(accounts, name)?;
            account.role = role.unwrap_or(account.role);
            account.quota = quota.unwrap_or(account.quota);
            Ok(())
        })
    }

    /// Revokes all tokens of an account.
    pub fn revoke_tokens(&self, name: &str) -> Result<(), AccountsError> {
        self.change(|accounts| {
            account_of(accounts, name)?.tokens.clear();
            Ok(())
        })
    }

    /// Makes a token of an account. Returns its text, which is shown once.
    pub fn add_token(
        &self,
        account: &str,
        name: &str,
        role: Role,
        expires_ms: u64,
    ) -> Result<String, AccountsError> {
        check_name(name)?;
        let secret = new_secret().map_err(|why| AccountsError::File(self.folder.clone(), why))?;
        let text = format!("{PREFIX}{secret}");
        let (hash, name) = (hash_secret(&text), name.to_owned());
        self.change(|accounts| {
            let account = account_of(accounts, account)?;
            let now = unix_ms();
            account.tokens.retain(|token| token.expires_ms > now);
            if account.tokens.len() >= MAX_TOKENS_OF_ACCOUNT {
                return Err(AccountsError::FullOfTokens);
            }
            account.tokens.push(ApiToken { hash, name, role, expires_ms });
            Ok(())
        })?;
        Ok(text)
    }

    /// Revokes a token of an account.
    pub fn revoke_token(&self, account: &str, id: &str) -> Result<(), AccountsError> {
        self.change(|accounts| {
            let account = account_of(accounts, account)?;
            let before = account.tokens.len();
            account.tokens.retain(|token| token.id() != id);
            match account.tokens.len() == before {
                true => Err(AccountsError::UnknownToken(id.to_owned())),
                false => Ok(()),
            }
        })
    }

    fn stored(&self) -> Result<Vec<Account>, AccountsError> {
        let path = self.folder.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(AccountsError::File(path, why)),
        };
        let content: Result<Content, _> = serde_json::from_slice(&bytes);
        content
            .map(|content| content.accounts)
            .map_err(|why| AccountsError::Damaged(path, why.to_string()))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Account>) -> Result<(), AccountsError>,
    ) -> Result<(), AccountsError> {
        let failed = |why| AccountsError::File(self.folder.join(FILE), why);
        make_private_folder(&self.folder).map_err(failed)?;
        let lock = open_lock(&self.folder.join(LOCK));
        let lock = lock.map_err(failed)?;
        // It is free again when the file is closed.
        lock.lock().map_err(failed)?;
        let mut accounts = self.stored()?;
        change(&mut accounts)?;
        let bytes = serde_json::to_vec_pretty(&Content { accounts }).unwrap_or_default();
        write_private(&self.folder.join(FILE), &bytes).map_err(failed)
    }
}

fn account_of<'a>(
    accounts: &'a mut [Account],
    name: &str,
) -> Result<&'a mut Account, AccountsError> {
    let found = accounts.iter_mut().find(|account| account.name == name);
    found.ok_or_else(|| AccountsError::Unknown(name.to_owned()))
}

fn check_name(name: &str) -> Result<(), AccountsError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._@".contains(c);
    match (1..=MAX_ACCOUNT_NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(AccountsError::Name(name.chars().take(80).collect())),
    }
}

fn hashed(password: &str) -> Result<PasswordHash, AccountsError> {
    if !(MIN_PASSWORD_BYTES..=MAX_PASSWORD_BYTES).contains(&password.len()) {
        return Err(AccountsError::Password);
    }
    PasswordHash::of(password).map_err(|why| AccountsError::File(PathBuf::from(FILE), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_server_sees_what_a_command_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (command, server) = (AccountBook::in_folder(&path), AccountBook::in_folder(&path));
        assert!(server.all().unwrap().is_empty());
        command.add("ada", "password1", Role::Submit, 10).unwrap();
        let ada = server.account("ada").unwrap().unwrap();
        assert!(ada.has_password("password1") && !ada.has_password("password2"));
        let taken = command.add("ada", "password1", Role::Read, 1).unwrap_err().to_string();
        assert!(taken.contains("there is an account `ada`"), "{taken}");
        command.set_password("ada", "password2").unwrap();
        let changed = server.account("ada").unwrap().unwrap();
        assert!(changed.has_password("password2"));
        assert_ne!(changed.password_mark(), ada.password_mark());
        command.remove("ada").unwrap();
        assert!(server.account("ada").unwrap().is_none());
        assert!(command.remove("ada").unwrap_err().to_string().contains("account list"));
    }

    #[test]
    fn tokens_have_an_end_and_no_more_rights_than_their_account() {
        let folder = tempfile::tempdir().unwrap();
        let book = AccountBook::in_folder(folder.path());
        book.add("ada", "password1", Role::Submit, 10).unwrap();
        let far = unix_ms() + 60_000;
        let token = book.add_token("ada", "notebook", Role::Admin, far).unwrap();
        let (account, role) = book.of_token(&token).unwrap().unwrap();
        assert_eq!((&*account.name, role), ("ada", Role::Submit));
        let stored = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(!stored.contains(&token[PREFIX.len()..]), "the file has hashes alone");
        let old = book.add_token("ada", "old", Role::Read, unix_ms()).unwrap();
        assert!(book.of_token(&old).unwrap().is_none());
        book.revoke_token("ada", account.tokens()[0].id()).unwrap();
        assert!(book.of_token(&token).unwrap().is_none());
        assert!(book.of_token("astroportal_").unwrap().is_none());
    }

    #[test]
    fn names_and_passwords_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let book = AccountBook::in_folder(folder.path());
        for name in ["", "a b", "<b>", "../x", &"a".repeat(65)] {
            let wrong = book.add(name, "password1", Role::Read, 1).unwrap_err();
            assert!(matches!(wrong, AccountsError::Name(_)), "{name}");
        }
        let short = book.add("a", "short", Role::Read, 1).unwrap_err();
        assert!(matches!(short, AccountsError::Password));
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let damaged = book.all().unwrap_err().to_string();
        assert!(damaged.contains("Restore the file"), "{damaged}");
    }
}
