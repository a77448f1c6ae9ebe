//! What clients and the dispatcher hear of the actor.

use super::*;
use crate::pool::tests::options;

#[tokio::test]
async fn a_pool_that_was_added_is_shown_and_the_dispatcher_knows_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let issue_access: AccessIssuer = Arc::new(|| Ok(String::new()));
    let config =
        PoolsConfig { folder: folder.path().to_owned(), eyas: "/eyas".into(), issue_access };
    let (state, seen) = watch::channel(ClusterState::default());
    let (orders, mut ordered) = mpsc::channel(MAX_POOLS);
    let (handle, work) = PoolsHandle::start(config, seen, orders);
    for number in 1..=20 {
        let options = Box::new(PoolOptions { system: "local".into(), ..options(0) });
        handle
            .ask(PoolsRequest::Add { name: format!("p{number}"), options, is_tried: false })
            .await
            .unwrap();
        assert_eq!(handle.views().len(), number);
        let Ok(PoolOrder::Shapes { shapes, .. }) = ordered.try_recv() else {
            panic!("pool {number} is not told")
        };
        assert_eq!(shapes.len(), number);
    }
    drop(state);
    work.await.unwrap();
}
