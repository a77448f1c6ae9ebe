//! The links of machines and of persistent storage, and the bytes that flow over them.

use smallvec::SmallVec;

use crate::clock::Ns;
use crate::cluster::SimCluster;
use crate::flows::{FlowId, Flows, LinkId, TOLERANCE};
use crate::nodes::SLOW_DISK;

/// The links that the bytes of a flow pass.
pub(super) type FlowLinks = SmallVec<[LinkId; 6]>;

pub(super) struct Network {
    flows: Flows,
    storage: LinkId,
    bisection: Option<LinkId>,
    /// The links of each machine.
    machines: Vec<Links>,
}

/// The links of a machine.
struct Links {
    card_in: LinkId,
    card_out: LinkId,
    client: Option<LinkId>,
    disk_read: Option<LinkId>,
    disk_write: Option<LinkId>,
}

/// The purpose of a flow.
pub(super) enum Tag {
    Fetch(u32),
    /// The inputs that a task reads, or the outputs that it writes.
    OfTask(u32),
}

impl Network {
    pub fn new(cluster: &SimCluster) -> Self {
        let mut flows = Flows::new(TOLERANCE);
        let storage = flows.link(cluster.storage.bytes_per_s);
        let bisection = cluster.bisection_bytes_per_s.map(|rate| flows.link(rate));
        Network { flows, storage, bisection, machines: Vec::new() }
    }

    /// Adds the next machine.
    pub fn add_machine(&mut self, cluster: &SimCluster, is_slow: bool) {
        let slowness = if is_slow { SLOW_DISK } else { 1.0 };
        let flows = &mut self.flows;
        self.machines.push(Links {
            card_in: flows.link(cluster.card_bytes_per_s),
            card_out: flows.link(cluster.card_bytes_per_s),
            client: cluster.storage.client_bytes_per_s.map(|rate| flows.link(rate)),
            disk_read: cluster.disk.map(|disk| flows.link(disk.read_bytes_per_s / slowness)),
            disk_write: cluster.disk.map(|disk| flows.link(disk.write_bytes_per_s / slowness)),
        });
    }

    // ---- ways

    /// From persistent storage to a machine, and to its disk if it has one and `stores`.
    pub fn way_from_storage(&self, to: u32, stores: bool) -> FlowLinks {
        let mut way = self.way_to(to, stores);
        way.push(self.storage);
        way.extend(self.links(to).client);
        way
    }

    /// From a machine, or from its disk, to another machine, and to its disk if it has one and
    /// `stores`.
    pub fn way_from_peer(&self, from: u32, is_on_disk: bool, to: u32, stores: bool) -> FlowLinks {
        let mut way = self.way_to(to, stores);
        way.push(self.links(from).card_out);
        way.extend(self.links(from).disk_read.filter(|_| is_on_disk));
        way
    }

    /// From a machine to persistent storage.
    pub fn way_to_storage(&self, from: u32) -> FlowLinks {
        let links = self.links(from);
        let way = [Some(self.storage), self.bisection, Some(links.card_out), links.client];
        way.into_iter().flatten().collect()
    }

    pub fn disk_read(&self, machine: u32) -> Option<LinkId> {
        self.links(machine).disk_read
    }

    pub fn disk_write(&self, machine: u32) -> Option<LinkId> {
        self.links(machine).disk_write
    }

    fn way_to(&self, to: u32, stores: bool) -> FlowLinks {
        let links = self.links(to);
        let disk_write = links.disk_write.filter(|_| stores);
        [self.bisection, Some(links.card_in), disk_write].into_iter().flatten().collect()
    }

    fn links(&self, machine: u32) -> &Links {
        &self.machines[machine as usize]
    }

    // ---- flows

    /// Starts a flow of `bytes`, which is relayed from the flow `above` if there is one.
    pub fn start(
        &mut self,
        now: Ns,
        bytes: f64,
        way: &[LinkId],
        above: Option<FlowId>,
        tag: Tag,
    ) -> FlowId {
        self.flows.start(now, bytes, way, above, tag.number())
    }

    /// Stops a flow. Returns the bytes that it lacks.
    pub fn stop(&mut self, now: Ns, flow: FlowId) -> f64 {
        self.flows.stop(now, flow)
    }

    /// The fetches that are relayed from a flow, and their flows.
    pub fn relayed_from(&self, flow: FlowId) -> impl Iterator<Item = (u32, FlowId)> {
        self.flows.below(flow).iter().filter_map(|below| match Tag::of(self.flows.tag(*below)) {
            Tag::Fetch(fetch) => Some((fetch, *below)),
            Tag::OfTask(_) => None,
        })
    }

    /// The next instant at which a flow ends.
    pub fn next_end(&mut self) -> Option<Ns> {
        self.flows.next_end()
    }

    /// Ends the flows that end by `now`, and appends the numbers of their tags to `ended`.
    pub fn end_by(&mut self, now: Ns, ended: &mut Vec<u32>) {
        self.flows.end_by(now, ended);
    }

    /// Shares the links among the flows that there are now.
    pub fn settle(&mut self) {
        self.flows.settle();
    }
}

impl Tag {
    pub fn of(tag: u32) -> Self {
        if tag & 1 == 0 { Tag::Fetch(tag >> 1) } else { Tag::OfTask(tag >> 1) }
    }

    fn number(&self) -> u32 {
        match self {
            Tag::Fetch(fetch) => fetch << 1,
            Tag::OfTask(task) => task << 1 | 1,
        }
    }
}
