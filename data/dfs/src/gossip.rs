//! Gossip over UDP: nodes tell each other which nodes are alive, their addresses and their free
//! space. These are hints; the members are decided by the ring's views.
//!
//! Each datagram is encrypted and authenticated (ChaCha20-Poly1305) with a secret that only the
//! nodes of the cluster know. Other datagrams are not parsed. Recordings have no effect, since
//! gossiped values have versions.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, ChitchatMessage, Deserializable,
    FailureDetectorConfig, NodeState, Serializable, spawn_chitchat,
};
use eyas_files::protocol::NodeLoad;
use eyas_session::DataKeys;
use eyas_types::dfs::NodeId;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::sealer::Sealer;

/// Interval of gossip.
const GOSSIP_EVERY: Duration = Duration::from_millis(250);

/// A node that was silent for some twenty times the usual interval is considered dead.
const PHI_THRESHOLD: f64 = 8.0;

/// Longer intervals are not counted when the usual one is computed.
const LONGEST_USUAL: Duration = Duration::from_secs(2);

/// Assumed interval before any was measured.
const USUAL_AT_FIRST: Duration = Duration::from_secs(1);

/// Time for which the values of a dead node are kept.
const DEAD_REMEMBERED: Duration = Duration::from_secs(3600);

/// Maximum size of a UDP datagram, enough for the state of some 400 nodes. A longer message is not
/// sent.
const MAX_DATAGRAM_BYTES: usize = 65_507;

const TRANSFER: &str = "transfer";
const FREE_BYTES: &str = "free_bytes";
const LOAD: &str = "load";

/// The values that a node gossips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Address for sessions and gossip.
    pub address: SocketAddr,
    /// Address for transfers of chunks.
    pub transfer: SocketAddr,
    /// Free bytes for chunks.
    pub free_bytes: u64,
    /// The load, if the node has measured it.
    pub load: Option<NodeLoad>,
}

impl Neighbour {
    /// A node that has not measured its load yet.
    pub fn new(address: SocketAddr, transfer: SocketAddr, free_bytes: u64) -> Self {
        Neighbour { address, transfer, free_bytes, load: None }
    }
}

/// This node's gossip.
pub(crate) struct Gossip {
    handle: ChitchatHandle,
}

impl Gossip {
    /// Joins the nodes of this `cluster` at `seeds`, and lets others join at this node's address.
    /// Nodes of other clusters are ignored. The socket is bound already, so that it has the same
    /// port as this node's sessions.
    pub async fn start(
        cluster: &str,
        keys: DataKeys,
        node: NodeId,
        me: Neighbour,
        socket: std::net::UdpSocket,
        seeds: &[SocketAddr],
    ) -> io::Result<Self> {
        let generation = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64);
        let config = ChitchatConfig {
            chitchat_id: ChitchatId::new(node.to_string(), generation, me.address),
            cluster_id: cluster.to_owned(),
            gossip_interval: GOSSIP_EVERY,
            listen_addr: me.address,
            seed_nodes: seeds.iter().map(SocketAddr::to_string).collect(),
            failure_detector_config: FailureDetectorConfig {
                phi_threshold: PHI_THRESHOLD,
                max_interval: LONGEST_USUAL,
                initial_interval: USUAL_AT_FIRST,
                dead_node_grace_period: DEAD_REMEMBERED,
                ..FailureDetectorConfig::default()
            },
            marked_for_deletion_grace_period: DEAD_REMEMBERED,
            catchup_callback: None,
            extra_liveness_predicate: None,
        };
        let told = [(TRANSFER, me.transfer.to_string()), (FREE_BYTES, me.free_bytes.to_string())];
        let told = told.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let sealer = Sealer::new(keys)?;
        socket.set_nonblocking(true)?;
        let transport = SealedTransport(std::sync::Mutex::new(Some((sealer, socket))));
        let handle = spawn_chitchat(config, told, &transport).await.map_err(io::Error::other)?;
        Ok(Gossip { handle })
    }

    /// Sends gossip to another node, which may know more nodes.
    pub fn greet(&self, address: SocketAddr) {
        // Fails only when the gossip has ended.
        let _ = self.handle.gossip(address);
    }

    /// Stops gossiping.
    pub fn end(&self) {
        // Fails only when the gossip has ended.
        let _ = self.handle.initiate_shutdown();
    }

    /// Publishes this node's free space.
    pub async fn tell_free(&self, free_bytes: u64) {
        self.handle
            .with_chitchat(|chitchat| chitchat.self_node_state().set(FREE_BYTES, free_bytes))
            .await;
    }

    /// Publishes this node's load.
    pub async fn tell_load(&self, load: NodeLoad) {
        let value = format!("{} {}", load.disk_milli, load.processors_milli);
        self.handle.with_chitchat(|chitchat| chitchat.self_node_state().set(LOAD, &value)).await;
    }

    /// Watches the set of nodes that are alive, including this one.
    pub async fn alive(&self) -> LiveNodes {
        LiveNodes(self.handle.with_chitchat(|chitchat| chitchat.live_nodes_watcher()).await)
    }
}

/// See [`Gossip::alive`].
pub(crate) struct LiveNodes(watch::Receiver<BTreeMap<ChitchatId, NodeState>>);

impl LiveNodes {
    /// Waits for a change. Returns `false` when the gossip has ended.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// The nodes that are alive now.
    pub fn now(&mut self) -> BTreeMap<NodeId, Neighbour> {
        let mut generations = BTreeMap::new();
        let mut alive = BTreeMap::new();
        for (id, state) in self.0.borrow_and_update().iter() {
            let Some((node, neighbour)) = neighbour(id, state) else { continue };
            // A node that was restarted is listed twice, with its old and its new state.
            let newest = generations.entry(node).or_insert(0);
            if id.generation_id >= *newest {
                *newest = id.generation_id;
                alive.insert(node, neighbour);
            }
        }
        alive
    }
}

fn neighbour(id: &ChitchatId, state: &NodeState) -> Option<(NodeId, Neighbour)> {
    let node = NodeId(u64::from_str_radix(&id.node_id, 16).ok()?);
    let transfer = state.get(TRANSFER)?.parse().ok()?;
    let free_bytes = state.get(FREE_BYTES)?.parse().ok()?;
    let load = state.get(LOAD).and_then(load_of);
    Some((node, Neighbour { address: id.gossip_advertise_addr, transfer, free_bytes, load }))
}

fn load_of(text: &str) -> Option<NodeLoad> {
    let (disk, processors) = text.split_once(' ')?;
    Some(NodeLoad { disk_milli: disk.parse().ok()?, processors_milli: processors.parse().ok()? })
}

/// Transport of encrypted datagrams. Holds the sealer and the socket until it is opened.
struct SealedTransport(std::sync::Mutex<Option<(Sealer, std::net::UdpSocket)>>);

#[async_trait]
impl Transport for SealedTransport {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let parts = self.0.lock().expect("no holder of the lock panics").take();
        let (sealer, socket) = parts.ok_or_else(|| anyhow::anyhow!("opened twice"))?;
        let socket = UdpSocket::from_std(socket)?;
        Ok(Box::new(SealedSocket {
            sealer,
            socket,
            datagram: Vec::new(),
            received: vec![0; MAX_DATAGRAM_BYTES],
        }))
    }
}

struct SealedSocket {
    sealer: Sealer,
    socket: UdpSocket,
    datagram: Vec<u8>,
    received: Vec<u8>,
}

#[async_trait]
impl Socket for SealedSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        self.sealer.seal(&mut self.datagram, |content| message.serialize(content))?;
        // Gossip is repeated, so a lost datagram does no harm.
        if let Err(error) = self.socket.send_to(&self.datagram, to).await {
            tracing::debug!(%to, %error, "gossip was not sent");
        }
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            let (size, from) = match self.socket.recv_from(&mut self.received).await {
                Ok(received) => received,
                // The error of an earlier send, for example to a closed port.
                Err(error) => {
                    tracing::debug!(%error, "gossip was not received");
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let opened = self.sealer.open(&self.received[..size]);
            match opened.and_then(|content| ChitchatMessage::deserialize(&mut &*content).ok()) {
                Some(message) => return Ok((from, message)),
                None => {
                    tracing::debug!(
                        %from,
                        "ignored a datagram that was not encrypted by a node of this cluster"
                    )
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::Access;

    async fn node(number: u64, access: &Access, seeds: &[SocketAddr]) -> (Gossip, Neighbour) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let transfer = "127.0.0.1:9".parse().unwrap();
        let me = Neighbour::new(address, transfer, number);
        (
            Gossip::start("test", DataKeys::of(access), NodeId(number), me, socket, seeds)
                .await
                .unwrap(),
            me,
        )
    }

    async fn sees(gossip: &Gossip, nodes: &BTreeMap<NodeId, Neighbour>) -> bool {
        let mut alive = gossip.alive().await;
        let wait = async {
            while alive.now() != *nodes {
                assert!(alive.changed().await);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok()
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_find_each_other_and_no_stranger() {
        let [ours, theirs] = [(); 2].map(|()| Access::create("test", "127.0.0.1:1"));
        let (first, one) = node(1, &ours, &[]).await;
        let (second, two) = node(2, &ours, &[one.address]).await;
        let (stranger, three) = node(3, &theirs, &[one.address, two.address]).await;
        let both = BTreeMap::from([(NodeId(1), one), (NodeId(2), two)]);
        assert!(sees(&first, &both).await && sees(&second, &both).await);
        assert!(sees(&stranger, &BTreeMap::from([(NodeId(3), three)])).await);
        second.tell_free(77).await;
        let two = Neighbour { free_bytes: 77, ..two };
        let mut alive = first.alive().await;
        let heard = async {
            while alive.now().get(&NodeId(2)) != Some(&two) {
                assert!(alive.changed().await);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard)
            .await
            .expect("what it has to tell arrives");
    }
}
