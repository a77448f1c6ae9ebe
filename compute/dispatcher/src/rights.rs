//! Which calls of the service the key or token of a caller permits.

use eyas_types::JobId;
use eyas_types::access::{KeyRole, Principal};
use thiserror::Error;

/// A call that the key or token of the caller does not permit.
#[derive(Debug, Error)]
pub enum NotAllowed {
    /// The token of a job.
    #[error(
        "the token of job {0} is good for that job and its files alone; to do more, name an \
         access file with --access"
    )]
    Token(JobId),
    /// A key.
    #[error(
        "{holder} is not permitted to {what}: an admin can make an access file for that with \
         `eyas access show --role {role} -o FILE`"
    )]
    Key {
        /// The caller.
        holder: Principal,
        /// What the key does not permit.
        what: &'static str,
        /// The role of keys that permit it.
        role: &'static str,
    },
}

/// Calls, by what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequiredRight {
    /// Looks at one job.
    Job(JobId),
    /// Looks for nodes of the file system, which have rules of their own.
    Files,
    /// Looks at anything.
    Read,
    /// Has work done, or undone.
    Submit,
    /// Changes the cluster.
    Admin,
}

/// Whether a holder may do what needs this. `has_files` says of a job whether its token is for
/// files, too.
///
/// # Errors
/// Why not, for a person.
pub(crate) fn check(
    holder: Principal,
    need: RequiredRight,
    has_files: impl Fn(JobId) -> bool,
) -> Result<(), NotAllowed> {
    let may = match holder {
        Principal::Key(_, KeyRole::Admin) => true,
        Principal::Key(_, KeyRole::Submit) => need <= RequiredRight::Submit,
        Principal::Key(_, KeyRole::Read) => need <= RequiredRight::Read,
        Principal::Key(_, KeyRole::Executor) | Principal::Dispatcher => false,
        Principal::Job(own) => {
            need == RequiredRight::Job(own) || need == RequiredRight::Files && has_files(own)
        }
    };
    if may {
        return Ok(());
    }
    Err(match (holder, need) {
        (Principal::Job(own), _) => NotAllowed::Token(own),
        (holder, RequiredRight::Admin) => {
            NotAllowed::Key { holder, what: "change the cluster", role: "admin" }
        }
        (holder, RequiredRight::Submit) => {
            NotAllowed::Key { holder, what: "submit, change or end jobs", role: "submit" }
        }
        (holder, _) => NotAllowed::Key { holder, what: "look at the cluster", role: "read" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::access::KeyId;

    #[test]
    fn each_role_may_do_what_it_is_for() {
        // Admin, submit, read, executor, token of job 7.
        for (need, may) in [
            (RequiredRight::Admin, [true, false, false, false, false]),
            (RequiredRight::Submit, [true, true, false, false, false]),
            (RequiredRight::Read, [true, true, true, false, false]),
            (RequiredRight::Job(JobId(8)), [true, true, true, false, false]),
            (RequiredRight::Job(JobId(7)), [true, true, true, false, true]),
            (RequiredRight::Files, [true, true, true, false, true]),
        ] {
            let keys = [KeyRole::Admin, KeyRole::Submit, KeyRole::Read, KeyRole::Executor];
            let holders = keys
                .map(|role| Principal::Key(KeyId(1), role))
                .into_iter()
                .chain([Principal::Job(JobId(7))]);
            let answers: Vec<_> =
                holders.map(|holder| check(holder, need, |_| true).is_ok()).collect();
            assert_eq!(answers, may, "{need:?}");
        }
    }

    #[test]
    fn who_is_refused_is_told_which_key_would_do() {
        let reader = Principal::Key(KeyId(4), KeyRole::Read);
        check(Principal::Job(JobId(7)), RequiredRight::Files, |_| false).unwrap_err();
        let why = check(reader, RequiredRight::Submit, |_| false).unwrap_err().to_string();
        assert!(why.contains("k4") && why.contains("--role submit"), "{why}");
        let why = check(Principal::Job(JobId(7)), RequiredRight::Admin, |_| true)
            .unwrap_err()
            .to_string();
        assert!(why.contains("job 7"), "{why}");
    }
}
