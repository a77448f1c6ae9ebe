//! Changes whose answers are lost, because the client that made them stopped waiting.

use std::io::Cursor;
use std::ops::Range;
use std::pin::pin;
use std::slice;
use std::task::Poll;

use eyas_files::{Change, ContentSource, NewContent, SentRecords};

use crate::cluster::{Cluster, content_of, eventually, name, write};

/// A content in memory.
pub struct Text(pub Vec<u8>);

impl NewContent for Text {
    fn reader(&self, range: Range<u64>) -> Box<dyn ContentSource> {
        Box::new(Cursor::new(self.read_local(range).expect("all of it is here")))
    }

    fn read_local(&self, range: Range<u64>) -> Option<Vec<u8>> {
        Some(self.0[range.start as usize..range.end as usize].to_vec())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_recognizes_a_change_whose_answer_it_did_not_wait_for() {
    let cluster = Cluster::of(2).await;
    let files = cluster.files().await;
    write(&files, "/file", b"0000000000\n").await.unwrap();
    let (mut round, mut recognized) = (0_u32, 0);
    eventually("changes are made although no client waits", async || {
        let before = files.stat(&name("/file")).await.unwrap();
        round += 1;
        let content = Text(format!("{round:010}\n").into_bytes());
        let (modified_ns, changed_ns) = (round.into(), round.into());
        let (changed, is_durable) = (slice::from_ref(&(0..10)), false);
        let change = Change {
            content: &content,
            size_bytes: 11,
            changed,
            modified_ns,
            changed_ns,
            is_durable,
            format: None,
        };
        let sent = SentRecords::default();
        let is_over = {
            let mut rewriting = pin!(files.rewrite(&before, change, None, &sent));
            // The client stops waiting at another point each time.
            let mut polls = round % 40;
            std::future::poll_fn(|context| match rewriting.as_mut().poll(context) {
                Poll::Ready(done) => Poll::Ready(done.map(|_| true).unwrap()),
                Poll::Pending if polls == 0 => Poll::Ready(false),
                Poll::Pending => {
                    polls -= 1;
                    Poll::Pending
                }
            })
            .await
        };
        let now = files.stat(&name("/file")).await.unwrap();
        let is_changed = !now.record.is_as_written(&before.record);
        assert!(is_changed || !is_over);
        assert_eq!(sent.has(&now.record), is_changed, "round {round}");
        if is_changed && !is_over {
            recognized += 1;
            assert_eq!(content_of(&files, "/file").await, format!("{round:010}\n").into_bytes());
        }
        recognized == 3
    })
    .await;
}
