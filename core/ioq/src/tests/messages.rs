//! Prediction where messages are slow (io-coordination §4.1): the next grant leaves before the
//! previous one is reported to be done.

use super::*;

/// Time of one message, and of reading 1 MB.
const MESSAGE_US: u64 = 500;
const SERVICE_US: u64 = 10_000;
const READS: u64 = 200;

/// Total time of [`READS`] reads by clients at this distance, and the number of early grants.
fn read_all(margin_us: Option<u64>) -> (u64, u64) {
    let mut servers = Servers::new();
    servers.serve(ServerId(0), Config { margin_us, ..plain(Policy::Fifo) });
    let asked = (1..=READS).map(|client| read(client, client, 0, 1 << 20)).collect();
    // By the time at which the end of each grant is reported: the grant, and its duration since its
    // client received it.
    let mut ends: BTreeMap<u64, (Grant, u64)> = BTreeMap::new();
    let (mut free_us, mut now_us, mut early) = (0, 0, 0);
    let mut event = Event::Asked(asked);
    loop {
        for effect in servers.tell(now_us, event) {
            let Effect::Granted(grant) = effect else { panic!("{effect:?}") };
            early += u64::from(!ends.is_empty());
            let came_us = now_us + MESSAGE_US;
            free_us = came_us.max(free_us) + SERVICE_US;
            ends.insert(free_us + MESSAGE_US, (grant, free_us - came_us));
        }
        let end_us = ends.first_key_value().map(|(end_us, _)| *end_us);
        let Some(next_us) = servers.next_timeout().into_iter().chain(end_us).min() else {
            return (now_us, early);
        };
        now_us = next_us;
        event = match ends.remove(&now_us) {
            Some((Grant { client, id: grant, .. }, took_us)) => Event::Completed {
                client,
                server: ServerId(0),
                grant,
                bytes: 1 << 20,
                took_us: Some(took_us),
            },
            None => Event::Tick,
        };
    }
}

#[test]
fn prediction_hides_the_time_of_messages() {
    let ideal_us = READS * SERVICE_US + 2 * MESSAGE_US;
    assert_eq!(read_all(None), (READS * (SERVICE_US + 2 * MESSAGE_US), 0));
    let (predicted_us, early) = read_all(Some(0));
    assert!(
        early >= READS - 5,
        "{early} of {READS} left before the one before was heard to be done"
    );
    assert!(predicted_us < ideal_us + 10 * MESSAGE_US, "{predicted_us} of {ideal_us}");
    let (with_margin_us, _) = read_all(Some(200));
    assert!(
        with_margin_us < ideal_us + READS * 200 + 10 * MESSAGE_US,
        "{with_margin_us} of {ideal_us}"
    );
}
