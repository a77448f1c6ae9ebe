//! Tokens for programs and other people, in a file beside the access file of the cluster. The file
//! has hashes alone: a token is shown when it is made, and never again.
//!
//! A token has 256 random bits, so a plain hash is enough: there is nothing to guess. The server
//! reads the file again when it has changed, so a token that was revoked is refused from the next
//! request on, and streams that were opened with it end.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_client::Cluster;
use eyas_session::new_secret;
use eyas_session::private::{self, PrivateError, PrivateFolder};
use serde::{Deserialize, Serialize};

/// Tokens of a cluster that have not expired.
const MAX_WEB_TOKENS: usize = 1000;
/// Longest name of a token, bytes.
const MAX_NAME_BYTES: usize = 100;
/// The file, and one that is locked while the first is changed.
const TOKENS_FILE: &str = "web-tokens.json";
const LOCK_FILE: &str = "web-tokens.lock";
/// By this, programs that look for secrets find tokens.
const PREFIX: &str = "eyas_web_";
/// Pause before a file that could not be read is read again.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Digits of the hash that are the id of a token.
const ID_DIGITS: usize = 8;

/// What a token permits. Each permits what those before it do.
///
/// The line between `Submit` and `Admin` protects against mistakes alone: jobs run as the user of
/// this process, and can read that user's access file wherever executors see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebScope {
    /// Look at everything.
    Read,
    /// Submit, cancel and retry jobs, and push objects.
    Submit,
    /// Also forget jobs, release their outputs, stop executors and pause pools.
    Admin,
}

impl WebScope {
    /// The name in commands and answers.
    pub fn name(self) -> &'static str {
        match self {
            WebScope::Read => "read",
            WebScope::Submit => "submit",
            WebScope::Admin => "admin",
        }
    }
}

impl FromStr for WebScope {
    type Err = WebTokensError;

    fn from_str(text: &str) -> Result<Self, WebTokensError> {
        let all = [WebScope::Read, WebScope::Submit, WebScope::Admin];
        all.into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| WebTokensError::Scope(text.to_owned()))
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WebTokenView {
    /// Id of the token, for `eyas web token revoke`.
    pub id: String,
    /// The name that it was made with.
    pub name: String,
    /// What it permits.
    pub scope: WebScope,
    /// When it was made, milliseconds since 1970.
    pub made_unix_ms: u64,
    /// From when on it is refused, milliseconds since 1970.
    pub expires_unix_ms: u64,
}

/// Why tokens cannot be read or changed.
#[derive(Debug)]
pub enum WebTokensError {
    /// Not the name of a scope.
    Scope(String),
    /// A name that is too long, or has control characters.
    Name,
    /// No token has the id.
    Unknown(String),
    /// There are as many tokens as there may be.
    Full,
    /// The file was changed by hand.
    Content(PathBuf, String),
    /// The file cannot be read or written.
    File(PrivateError),
    /// The lock or the randomness of the system.
    System(io::Error),
}

impl std::error::Error for WebTokensError {}

impl std::fmt::Display for WebTokensError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WebTokensError::Scope(text) => {
                write!(f, "`{text}` is not a scope: write read, submit or admin")
            }
            WebTokensError::Name => write!(
                f,
                "the name of a token has up to {MAX_NAME_BYTES} bytes and no control characters: \
                 write another one"
            ),
            WebTokensError::Unknown(id) => {
                write!(f, "there is no token `{id}`: `eyas web token list` shows the tokens")
            }
            WebTokensError::Full => write!(
                f,
                "there are {MAX_WEB_TOKENS} tokens: revoke one with `eyas web token revoke ID`"
            ),
            WebTokensError::Content(path, why) => {
                write!(f, "{} is damaged: {why}. Remove it, and make new tokens", path.display())
            }
            WebTokensError::File(why) => why.fmt(f),
            WebTokensError::System(why) => write!(f, "cannot change the tokens: {why}"),
        }
    }
}

/// A token in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredToken {
    name: String,
    scope: WebScope,
    /// BLAKE3, in hexadecimal digits.
    hash: String,
    made_unix_ms: u64,
    expires_unix_ms: u64,
}

impl StoredToken {
    fn id(&self) -> &str {
        self.hash.get(..ID_DIGITS).unwrap_or(&self.hash)
    }

    fn view(&self) -> WebTokenView {
        WebTokenView {
            id: self.id().to_owned(),
            name: self.name.clone(),
            scope: self.scope,
            made_unix_ms: self.made_unix_ms,
            expires_unix_ms: self.expires_unix_ms,
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct TokensContent {
    tokens: Vec<StoredToken>,
}

/// The tokens of a cluster.
pub struct WebTokens {
    folder: PathBuf,
    read: Mutex<ReadTokens>,
}

/// The tokens as they were read last.
#[derive(Default)]
struct ReadTokens {
    tokens: Vec<StoredToken>,
    /// Of the file that was read last, also in vain.
    identity: Option<FileIdentity>,
    /// When it was read in vain, if it was.
    failed: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    inode: u64,
    changed: (i64, i64),
}

impl WebTokens {
    /// The tokens in the folder of a cluster. There need be none.
    pub fn of(cluster: &Cluster) -> Self {
        WebTokens::in_folder(cluster.folder())
    }

    fn in_folder(folder: &Path) -> Self {
        WebTokens { folder: folder.to_owned(), read: Mutex::default() }
    }

    /// Makes a token. Returns it with its secret text.
    ///
    /// # Errors
    /// If the name cannot be used, there are too many tokens, or the file cannot be written.
    pub fn create(
        &self,
        name: &str,
        scope: WebScope,
        valid_for: Duration,
    ) -> Result<(WebTokenView, String), WebTokensError> {
        if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(WebTokensError::Name);
        }
        let secret = new_secret().map_err(WebTokensError::System)?;
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{PREFIX}{digits}");
        let now_ms = unix_ms();
        let valid_ms = u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX);
        let token = StoredToken {
            name: name.to_owned(),
            scope,
            hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
            made_unix_ms: now_ms,
            expires_unix_ms: now_ms.saturating_add(valid_ms),
        };
        let view = token.view();
        self.change(|tokens| {
            tokens.retain(|token| token.expires_unix_ms > now_ms);
            if tokens.len() >= MAX_WEB_TOKENS {
                return Err(WebTokensError::Full);
            }
            tokens.push(token);
            Ok(())
        })?;
        Ok((view, text))
    }

    /// All tokens, also expired ones, the oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn list(&self) -> Result<Vec<WebTokenView>, WebTokensError> {
        Ok(self.stored()?.iter().map(StoredToken::view).collect())
    }

    /// Removes a token.
    ///
    /// # Errors
    /// If there is no such token, or the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<WebTokenView, WebTokensError> {
        let mut revoked = None;
        self.change(|tokens| {
            let at = tokens.iter().position(|token| token.id() == id);
            let at = at.ok_or_else(|| WebTokensError::Unknown(id.to_owned()))?;
            revoked = Some(tokens.remove(at).view());
            Ok(())
        })?;
        revoked.ok_or_else(|| WebTokensError::Unknown(id.to_owned()))
    }

    /// The scope of a token, if it is one that is accepted now.
    pub(crate) fn scope_of(&self, given: &str) -> Option<WebScope> {
        if !given.starts_with(PREFIX) {
            return None;
        }
        let hash = blake3::hash(given.as_bytes());
        let now_ms = unix_ms();
        let mut read = self.read.lock().unwrap_or_else(|e| e.into_inner());
        self.read_changes(&mut read);
        // `blake3` compares hashes in constant time.
        let is_given = |token: &&StoredToken| {
            blake3::Hash::from_hex(&token.hash).is_ok_and(|stored| stored == hash)
        };
        let found = read.tokens.iter().find(is_given)?;
        (found.expires_unix_ms > now_ms).then_some(found.scope)
    }

    /// Reads the file if it has changed, or could not be read before.
    ///
    /// If the system cannot read it now, as for want of descriptors, the tokens of before are
    /// accepted on. If its content cannot be trusted, none is.
    fn read_changes(&self, read: &mut ReadTokens) {
        let identity = self.identity();
        let is_due = read.failed.is_some_and(|at| at.elapsed() >= READ_AGAIN_AFTER);
        if identity == read.identity && !is_due {
            return;
        }
        let had_failed = read.failed.is_some() && identity == read.identity;
        read.identity = identity;
        match self.stored() {
            Ok(tokens) => (read.tokens, read.failed) = (tokens, None),
            Err(why) => {
                let is_of_system = matches!(why, WebTokensError::File(PrivateError::Io { .. }));
                if !is_of_system {
                    read.tokens.clear();
                }
                if !had_failed {
                    let what = if is_of_system { "changed tokens" } else { "no tokens" };
                    tracing::warn!("{what} of `eyas web token` are accepted: {why}");
                }
                read.failed = Some(Instant::now());
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(TOKENS_FILE)
    }

    fn identity(&self) -> Option<FileIdentity> {
        let found = std::fs::metadata(self.path()).ok()?;
        Some(FileIdentity { inode: found.ino(), changed: (found.ctime(), found.ctime_nsec()) })
    }

    fn stored(&self) -> Result<Vec<StoredToken>, WebTokensError> {
        let path = self.path();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let bytes = private::read(&path).map_err(WebTokensError::File)?;
        let content: TokensContent = serde_json::from_slice(&bytes)
            .map_err(|why| WebTokensError::Content(path, why.to_string()))?;
        Ok(content.tokens)
    }

    /// Changes the file. Two commands that do so wait for each other.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<StoredToken>) -> Result<(), WebTokensError>,
    ) -> Result<(), WebTokensError> {
        let folder = PrivateFolder::make(&self.folder).map_err(WebTokensError::File)?;
        let lock = self.folder.join(LOCK_FILE);
        let lock = File::options().create(true).append(true).open(lock);
        let lock = lock.map_err(WebTokensError::System)?;
        // It is free again when the file is closed.
        lock.lock().map_err(WebTokensError::System)?;
        let mut tokens = self.stored()?;
        change(&mut tokens)?;
        // Texts and numbers always become JSON.
        let content = serde_json::to_vec(&TokensContent { tokens }).unwrap_or_default();
        folder.write(OsStr::new(TOKENS_FILE), &content).map_err(WebTokensError::File)
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn tokens_are_accepted_until_they_expire_or_are_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster");
        let (tokens, server) = (WebTokens::in_folder(&path), WebTokens::in_folder(&path));
        assert_eq!(server.scope_of("eyas_web_0"), None);
        let (read, text) = tokens.create("ci", WebScope::Read, DAY).unwrap();
        let (admin, other) = tokens.create("", WebScope::Admin, DAY).unwrap();
        let (_, old) = tokens.create("old", WebScope::Admin, Duration::ZERO).unwrap();
        assert_eq!(server.scope_of(&text), Some(WebScope::Read));
        assert_eq!(server.scope_of(&other), Some(WebScope::Admin));
        assert_eq!(server.scope_of(&old), None, "it has expired");
        assert_eq!(server.scope_of(&text[1..]), None);
        assert_eq!(tokens.list().unwrap().len(), 3);
        let file = path.join(TOKENS_FILE);
        let content = std::fs::read_to_string(&file).unwrap();
        assert!(!content.contains(&text) && !content.contains(&text[PREFIX.len()..]));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(tokens.revoke(&read.id).unwrap(), read);
        assert_eq!(server.scope_of(&text), None, "it was revoked");
        assert!(matches!(tokens.revoke(&read.id), Err(WebTokensError::Unknown(_))));
        tokens.create("new", WebScope::Submit, DAY).unwrap();
        let left: Vec<_> = tokens.list().unwrap();
        assert_eq!((left.len(), &left[0]), (2, &admin), "the expired one is gone");
    }

    #[test]
    fn a_file_that_the_system_cannot_read_now_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = WebTokens::in_folder(folder.path());
        let (_, text) = tokens.create("a", WebScope::Read, DAY).unwrap();
        assert_eq!(tokens.scope_of(&text), Some(WebScope::Read));
        let (file, aside) = (folder.path().join(TOKENS_FILE), folder.path().join("aside"));
        std::fs::rename(&file, &aside).unwrap();
        // Nobody can open a socket as a file.
        let socket = UnixListener::bind(&file).unwrap();
        assert_eq!(tokens.scope_of(&text), Some(WebScope::Read), "as it was read before");
        assert!(tokens.read.lock().unwrap().failed.is_some());
        drop(socket);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(tokens.scope_of(&text), None, "all tokens are gone");
        std::fs::rename(&aside, &file).unwrap();
        assert_eq!(tokens.scope_of(&text), Some(WebScope::Read));
        // The file has not changed since it was read in vain.
        let failed = Instant::now().checked_sub(READ_AGAIN_AFTER);
        let vain = ReadTokens { identity: tokens.identity(), failed, ..ReadTokens::default() };
        *tokens.read.lock().unwrap() = vain;
        assert_eq!(tokens.scope_of(&text), Some(WebScope::Read));
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = WebTokens::in_folder(folder.path());
        let create = |name: &str| tokens.create(name, WebScope::Read, DAY);
        assert!(matches!(create("a\nb"), Err(WebTokensError::Name)));
        assert!(matches!(create(&"a".repeat(101)), Err(WebTokensError::Name)));
        assert!("all".parse::<WebScope>().unwrap_err().to_string().contains("read, submit or"));
        let (_, text) = create("a").unwrap();
        let file = folder.path().join(TOKENS_FILE);
        std::fs::write(&file, "{").unwrap();
        assert!(create("b").unwrap_err().to_string().contains("is damaged"));
        assert_eq!(tokens.scope_of(&text), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(tokens.list(), Err(WebTokensError::File(_))), "others can read it");
    }
}
