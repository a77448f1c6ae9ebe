// The page: a line about the cluster, and the view of the URL. Each view and filter is in the URL.

import { path } from "./base.js";
import { api, cluster, follow, onChange } from "./cluster.js";
import { Job } from "./job.js";
import { Jobs } from "./jobs.js";
import { Nodes } from "./nodes.js";
import { Link, html } from "./parts.js";
import { Component, render } from "./preact.js";
import { count } from "./words.js";

function connection() {
  if (!cluster.isKnown) return "the token of this page is no longer accepted: open the URL that eyas web has printed";
  if (!cluster.isHere) return "the server of this page does not answer; trying again";
  if (cluster.isConnected === false) return "the dispatcher does not answer; trying again";
  return "";
}

function Summary() {
  let [running, waiting, assigned, capacity, used] = [0, 0, 0, 0, 0];
  for (const job of cluster.jobs.values()) {
    if (job.state !== "running") continue;
    running += 1;
    waiting += job.tasks.waiting + job.tasks.blocked;
    assigned += job.tasks.assigned;
  }
  for (const node of cluster.executors) {
    capacity += node.capacity.cpus_milli;
    used += Math.min(node.assigned_milli, node.capacity.cpus_milli);
  }
  const facts = [
    [count(running), running === 1 ? "job runs" : "jobs run"],
    [count(assigned), assigned === 1 ? "task at executors" : "tasks at executors"],
    [count(waiting), waiting === 1 ? "task waits" : "tasks wait"],
    [`${Number((used / 1000).toFixed(1))} of ${Number((capacity / 1000).toFixed(1))}`, "processors"],
  ];
  return html`<ul class="summary">
    ${facts.map(([number, noun]) => html`<li><b>${number}</b> ${noun}</li>`)}
  </ul>`;
}

class App extends Component {
  state = { title: "" };

  componentDidMount() {
    const redraw = () => this.setState({});
    onChange(redraw);
    addEventListener("popstate", redraw);
    addEventListener("keydown", (event) => {
      const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      document.getElementById("search")?.focus();
    });
    follow();
    api("/status")
      .then(({ status }) => this.setState({ title: status.cluster }))
      .catch(() => {});
  }

  view() {
    const job = path().match(/^\/jobs\/(\d+)$/)?.[1];
    if (job) return html`<${Job} key=${job} job=${Number(job)} />`;
    return path() === "/nodes" ? html`<${Nodes} />` : html`<${Jobs} />`;
  }

  render() {
    const here = path();
    const lost = connection();
    document.title = `${here === "/" ? "Jobs" : here.slice(1).replace("/", " ")} · eyas ${this.state.title}`;
    const tab = (to, words, isHere) =>
      html`<${Link} to=${to} aria-current=${isHere ? "page" : undefined}>${words}<//>`;
    return html`<a class="skip" href="#view">Skip to the content</a>
      <header>
        <b class="brand">eyas</b>
        <span class="cluster">${this.state.title}</span>
        <nav aria-label="Views">
          ${tab("/", "Jobs", here !== "/nodes")} ${tab("/nodes", "Nodes", here === "/nodes")}
        </nav>
        <${Summary} />
      </header>
      <div aria-live="polite">${lost && html`<p class="lost">${lost}</p>`}</div>
      <main id="view">${this.view()}</main>`;
  }
}

render(html`<${App} />`, document.getElementById("app"));
