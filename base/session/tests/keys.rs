//! Keys of a running cluster: who is let in with which, what becomes of open sessions when one is
//! taken back.

use std::time::Duration;

use eyas_session::{Access, Authority, Session, SessionAcceptor, SessionError, dial};
use eyas_types::JobId;
use eyas_types::access::{FilesScope, KeyId, KeyRole, Principal};
use eyas_wire::Role;
use eyas_wire::trust::{Trust, TrustRefusal};
use tokio::net::TcpListener;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

const ADMIN: Principal = Principal::Key(KeyId(1), KeyRole::Admin);
const READER: Principal = Principal::Key(KeyId(2), KeyRole::Read);
const EXECUTOR: Principal = Principal::Key(KeyId(3), KeyRole::Executor);
const TASK: Principal = Principal::Job(JobId(7));

struct Cluster {
    authority: Authority,
    listener: TcpListener,
    /// Of what listens.
    access: Access,
    role: Role,
}

impl Cluster {
    /// One of whose processes, held by `holder`, listens.
    async fn with(holder: Principal, role: Role, trust: Trust) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = Authority::create();
        let address = listener.local_addr().unwrap().to_string();
        let own = authority.issue(holder).unwrap();
        let access = Access::new("test", &address, authority.certificate(), own, trust).unwrap();
        Cluster { authority, listener, access, role }
    }

    async fn with_dispatcher(trust: Trust) -> Self {
        Cluster::with(Principal::Dispatcher, Role::Dispatcher, trust).await
    }

    fn access(&self, holder: Principal) -> Access {
        let own = self.authority.issue(holder).unwrap();
        Access::new(
            "test",
            &self.access.dispatcher,
            self.authority.certificate(),
            own,
            Trust::default(),
        )
        .unwrap()
    }

    /// Both ends of a session.
    async fn meet(
        &self,
        access: &Access,
    ) -> (Result<Session, SessionError>, Result<Session, SessionError>) {
        let acceptor = SessionAcceptor::new(&self.access, self.role);
        let serve = async {
            acceptor
                .accept(self.listener.accept().await.unwrap().0)
                .await
                .map(|(session, _)| session)
        };
        timeout(DEADLINE, async { tokio::join!(serve, dial(access, Role::Client)) })
            .await
            .expect("in time")
    }
}

#[tokio::test]
async fn a_session_knows_the_principal_at_its_other_end() {
    let mut trust = Trust { data: vec![[1; 32]], nodes: vec![[2; 32]], ..Trust::default() };
    trust.jobs.insert(JobId(7), FilesScope::default());
    let cluster = Cluster::with_dispatcher(trust).await;
    for holder in [ADMIN, READER, EXECUTOR, TASK] {
        let access = cluster.access(holder);
        let (served, dialled) = cluster.meet(&access).await;
        assert_eq!(served.unwrap().trust.holder(), holder);
        assert_eq!(dialled.unwrap().trust.holder(), Principal::Dispatcher);
        // With its greeting, the dispatcher has said what they may know.
        assert_eq!(access.credentials().data_secrets(), [[1; 32]]);
        assert_eq!(
            access.credentials().node_secrets().len(),
            usize::from(holder == ADMIN || holder == EXECUTOR)
        );
    }
}

#[tokio::test]
async fn a_key_that_was_taken_back_is_refused_and_why_is_said() {
    let mut trust = Trust::default();
    trust.dead.insert(KeyId(1), TrustRefusal::Replaced);
    trust.dead.insert(KeyId(2), TrustRefusal::Revoked);
    let cluster = Cluster::with_dispatcher(trust).await;
    for (holder, words) in [
        (ADMIN, ["k1", "eyas access rotate"]),
        (READER, ["k2", "was revoked"]),
        (TASK, ["job 7", "has ended"]),
    ] {
        let (served, dialled) = cluster.meet(&cluster.access(holder)).await;
        assert!(served.is_err());
        let error = dialled.err().expect("it is refused");
        assert!(matches!(error, SessionError::Dead { .. }), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    cluster.meet(&cluster.access(EXECUTOR)).await.1.unwrap();
}

#[tokio::test]
async fn an_open_session_ends_with_its_key_and_no_other() {
    let cluster = Cluster::with_dispatcher(Trust::default()).await;
    let (reader, admin) = (cluster.access(READER), cluster.access(ADMIN));
    let mut read = cluster.meet(&reader).await.0.unwrap();
    let mut manage = cluster.meet(&admin).await.0.unwrap();
    let mut trust = Trust::default();
    trust.dead.insert(KeyId(2), TrustRefusal::Revoked);
    cluster.access.credentials().learn(trust);
    assert_eq!(timeout(DEADLINE, read.trust.ends()).await.unwrap(), TrustRefusal::Revoked);
    let goes_on = async {
        tokio::select! { biased; _ = manage.trust.ends() => false, () = async {} => true }
    };
    assert!(goes_on.await);
    // An executor has a new key before its old one ends.
    read.trust.becomes(ADMIN);
    assert!(
        async {
            tokio::select! { biased; _ = read.trust.ends() => false, () = async {} => true }
        }
        .await
    );
}

#[tokio::test]
async fn a_key_can_be_exchanged_while_its_settings_are_in_use() {
    let cluster = Cluster::with_dispatcher(Trust::default()).await;
    let access = cluster.access(ADMIN);
    let clone = access.clone();
    access.credentials().adopt(&cluster.authority.issue(EXECUTOR).unwrap()).unwrap();
    let (served, _dialled) = cluster.meet(&clone).await;
    assert_eq!(served.unwrap().trust.holder(), EXECUTOR);
    let foreign = Authority::create().issue(ADMIN).unwrap();
    access.credentials().adopt(&foreign).unwrap_err();
}

#[tokio::test]
async fn clients_accept_only_the_kind_of_server_that_they_dialled() {
    let dispatcher = Cluster::with_dispatcher(Trust::default()).await;
    let node = |holder| Cluster::with(holder, Role::Node, Trust::default());
    for (cluster, is_node, is_taken) in [
        (dispatcher, true, false),
        (node(EXECUTOR).await, true, true),
        (node(ADMIN).await, true, true),
        (node(READER).await, true, false),
        // No executor passes for the dispatcher.
        (node(EXECUTOR).await, false, false),
        (node(TASK).await, true, false),
    ] {
        let access = cluster.access(ADMIN);
        let at = cluster.listener.local_addr().unwrap();
        let access = if is_node { access.of_node(at) } else { access };
        let holder = cluster.access.credentials().holder();
        assert_eq!(cluster.meet(&access).await.1.is_ok(), is_taken, "{holder}, as node: {is_node}");
    }
}

#[tokio::test]
async fn keys_of_another_authority_are_refused() {
    let (ours, theirs) = (Cluster::with_dispatcher(Trust::default()).await, Authority::create());
    // With our authority's certificate, so that it takes our dispatcher for its own.
    let own = theirs.issue(ADMIN).unwrap();
    assert!(
        Access::new(
            "test",
            &ours.access.dispatcher,
            ours.authority.certificate(),
            own,
            Trust::default()
        )
        .is_err()
    );
    let own = theirs.issue(ADMIN).unwrap();
    let access =
        Access::new("test", &ours.access.dispatcher, theirs.certificate(), own, Trust::default())
            .unwrap();
    let (served, dialled) = ours.meet(&access).await;
    assert!(matches!(served, Err(SessionError::NotTrusted { .. })));
    assert!(matches!(dialled, Err(SessionError::NotTrusted { .. })));
}
