// The executors: what they do, and what they hold.

import { cluster } from "./cluster.js";
import { Bar, State, Wide, html } from "./parts.js";
import { bytes, count, counted } from "./words.js";

function processors(milli) {
  return Number((milli / 1000).toFixed(2));
}

function Row({ node }) {
  const capacity = node.capacity.cpus_milli;
  const used = Math.min(node.assigned_milli, capacity);
  const reads = node.reads;
  const near = `${processors(used)} of ${processors(capacity)} processors`;
  return html`<tr>
    <td class="name">${node.name}</td>
    <td class="name">${node.host}</td>
    <td><${State} state=${node.state} /></td>
    <td class="progress">
      <${Bar}
        label=${near}
        parts=${[
          { kind: "busy", value: used },
          { kind: "rest", value: capacity - used },
        ]}
      /><small>${near}</small>
    </td>
    <td class="number">${count(node.computing)}</td>
    <td class="number">${count(node.staging)}</td>
    <td class="number">${count(node.ended)}</td>
    <td class="progress">
      <${Bar}
        label=${`${bytes(node.held_bytes)} of ${bytes(node.store_bytes)} in the store`}
        parts=${[
          { kind: "held", value: node.held_bytes },
          { kind: "rest", value: Math.max(node.store_bytes - node.held_bytes, 1) },
        ]}
      /><small>${bytes(node.held_bytes)} of ${bytes(node.store_bytes)}</small>
    </td>
    <td class="progress">
      <${Bar}
        parts=${[
          { kind: "local", value: reads.local.bytes, name: "bytes local" },
          { kind: "peer", value: reads.peer.bytes, name: "bytes from peers" },
          { kind: "persistent", value: reads.persistent.bytes, name: "bytes from storage" },
        ]}
      />
    </td>
  </tr>`;
}

export function Nodes() {
  const nodes = [...cluster.executors].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  if (nodes.length === 0) {
    return html`<section><h1>Nodes</h1><p class="note">
      ${cluster.isLoaded ? html`No executor is connected. Start one with <code>eyas start executor</code>` : "Loading…"}
    </p></section>`;
  }
  return html`<section aria-label="Nodes">
    <div class="head"><h1>Nodes</h1><small>${counted(nodes.length, "executor")}</small></div>
    <${Wide} label="Table of nodes">
      <thead>
        <tr>
          <th>Executor</th>
          <th>Host</th>
          <th>State</th>
          <th>Processors</th>
          <th class="number">Computing</th>
          <th class="number">Staging</th>
          <th class="number">Ended</th>
          <th>Store</th>
          <th>
            Read from <span class="mark local"></span>local <span class="mark peer"></span>peers
            <span class="mark persistent"></span>storage
          </th>
        </tr>
      </thead>
      <tbody>
        ${nodes.map((node) => html`<${Row} key=${node.name} node=${node} />`)}
      </tbody>
    <//>
  </section>`;
}
