//! Tokens of jobs. With its job's token, a task may use the cluster for its own job. `EYAS_ACCESS`
//! names the token's file, which is removed when the job has ended. The executor's own access file
//! is not for tasks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_session::Proxy;
use eyas_session::private::{PrivateError, PrivateFolder};
use eyas_types::JobId;
use eyas_wire::trust::SecretText;

/// The tokens that an executor has.
pub(crate) struct Tokens {
    folder: PrivateFolder,
    path: PathBuf,
    /// The proxy of the executor, through which its tasks reach the cluster as well.
    proxy: Option<Proxy>,
    jobs: Mutex<HashMap<JobId, Token>>,
}

enum Token {
    /// In memory: no task of the job has started yet.
    Kept(SecretText),
    Written(PathBuf),
}

impl Tokens {
    /// Opens the folder for tokens, and removes those of an earlier executor.
    pub fn open(path: &Path, proxy: Option<Proxy>) -> Result<Self, PrivateError> {
        let folder = PrivateFolder::claim(path)?;
        folder.close()?;
        folder.clear()?;
        Ok(Tokens { folder, path: path.to_owned(), proxy, jobs: Mutex::default() })
    }

    /// Keeps a job's token until a task asks for it.
    pub fn keep(&self, job: JobId, access: SecretText) {
        self.jobs().insert(job, Token::Kept(access));
    }

    /// The file with a job's token; `None` if the job has none. Writes it for the first task.
    pub fn path_of(&self, job: JobId) -> Result<Option<PathBuf>, PrivateError> {
        let mut jobs = self.jobs();
        let Some(token) = jobs.get_mut(&job) else { return Ok(None) };
        if let Token::Kept(SecretText(access)) = token {
            let name = name(job);
            let proxy = self.proxy.map(Proxy::section).unwrap_or_default();
            self.folder.write_for_now(name.as_ref(), format!("{access}{proxy}").as_bytes())?;
            *token = Token::Written(self.path.join(name));
        }
        match token {
            Token::Written(path) => Ok(Some(path.clone())),
            Token::Kept(_) => unreachable!("it was just written"),
        }
    }

    /// Removes the token of a job that has ended.
    pub fn forget(&self, job: JobId) {
        if let Some(Token::Written(_)) = self.jobs().remove(&job)
            && let Err(e) = self.folder.remove(name(job).as_ref())
        {
            tracing::warn!("cannot remove the token of job {job}, which has ended: {e}");
        }
    }

    /// Removes all tokens. No task runs; the dispatcher sends tokens again with new tasks.
    pub fn forget_all(&self) {
        self.jobs().clear();
        if let Err(e) = self.folder.clear() {
            tracing::warn!("cannot remove tokens of jobs: {e}");
        }
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, Token>> {
        // No update can panic half-way.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(job: JobId) -> String {
    format!("{job}.toml")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_exists_from_the_first_task_to_the_end_of_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("3.toml"), "of an earlier executor").unwrap();
        let names = || fs::read_dir(&path).unwrap().count();
        let tokens = Tokens::open(&path, None).unwrap();
        assert_eq!((tokens.path_of(JobId(7)).unwrap(), names()), (None, 0));
        tokens.keep(JobId(7), SecretText("token".into()));
        let at = tokens.path_of(JobId(7)).unwrap().expect("it is kept");
        assert_eq!(eyas_session::private::read(&at).unwrap(), b"token");
        assert_eq!(tokens.path_of(JobId(7)).unwrap(), Some(at));
        tokens.forget(JobId(7));
        assert_eq!((tokens.path_of(JobId(7)).unwrap(), names()), (None, 0));
        tokens.keep(JobId(8), SecretText("token".into()));
        tokens.path_of(JobId(8)).unwrap();
        tokens.forget_all();
        assert_eq!((tokens.path_of(JobId(8)).unwrap(), names()), (None, 0));
    }
}
