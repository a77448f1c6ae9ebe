//! What a pool shows of itself: its counts, its requests, and why each node stays or has left.

use eyas_provision::{DepartedNode, ExcludedHost, NodeStanding};
use eyas_wire::view::pool::{
    DepartedNodeView, ExcludedHostView, NodeRequestView, PoolNodeView, PoolView,
};

use super::*;

impl Pool {
    pub fn view(&self, now_us: u64, in_full: bool) -> PoolView {
        let decider = &self.decider;
        let (state, why) = decider.standing();
        let counts = decider.counts();
        let nodes = if in_full { decider.node_standings(now_us) } else { Vec::new() };
        let departed = decider.departed().filter(|_| in_full);
        let requests = decider.requests().filter(|_| in_full);
        PoolView {
            pool: self.name.clone(),
            system: self.options.system.clone(),
            state: state.into(),
            why,
            nodes: decider.nodes() - decider.draining(),
            draining: decider.draining(),
            requested: decider.provisioner().requested(),
            waits: decider.why_requested_wait(now_us),
            wanted: decider.provisioner().wanted(),
            waiting: decider.waiting(),
            min_nodes: self.options.min_nodes,
            max_nodes: self.options.max_nodes,
            nodes_requested: counts.nodes_requested,
            nodes_granted: counts.nodes_granted,
            nodes_given_back: counts.nodes_given_back,
            failures: counts.failures,
            node_seconds: counts.node_seconds,
            price: self.options.price,
            cost: decider.cost(),
            excluded: decider.excluded_hosts(now_us).into_iter().map(view_host).collect(),
            folder: self.folder.path().display().to_string(),
            node_list: nodes.into_iter().map(view_node).collect(),
            departed: departed.map(view_departed).collect(),
            requests: requests.map(|(number, request)| view_request(number, request)).collect(),
            events: self.events.iter().filter(|_| in_full).cloned().collect(),
        }
    }
}

fn view_host(host: ExcludedHost) -> ExcludedHostView {
    ExcludedHostView { host: host.host, why: host.why, until_unix_ms: host.until_us / 1000 }
}

fn view_node(node: NodeStanding) -> PoolNodeView {
    let NodeStanding { name, host, request, state, why, until_us } = node;
    PoolNodeView {
        node: name,
        host,
        request,
        state: state.into(),
        why,
        until_unix_ms: until_us / 1000,
    }
}

fn view_departed(node: &DepartedNode) -> DepartedNodeView {
    let DepartedNode { name, request, at_us, why } = node.clone();
    DepartedNodeView { node: name, request, unix_ms: at_us / 1000, why }
}

fn view_request(number: u64, request: &PoolRequest) -> NodeRequestView {
    NodeRequestView {
        request: number,
        job: request.job.as_ref().map(|job| job.id.clone()),
        nodes: request.nodes,
        joined: request.joined,
        state: request.phase().name().into(),
        says: request.says.clone(),
        host: request.host.clone(),
        requested_unix_ms: request.requested_unix_ms,
        has_failed: request.has_failed,
    }
}
