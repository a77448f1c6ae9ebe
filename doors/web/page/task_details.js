// What is known of one task: why it waits or how it ended, and what it has printed.

import { API, api, text } from "./cluster.js";
import { Failure, html } from "./parts.js";
import { Component } from "./preact.js";
import { name } from "./words.js";

// Of what a task has printed, the end is shown, characters.
const SHOWN_CHARS = 20_000;
// Time between two questions about a task that has not ended, milliseconds.
const EVERY_MS = 2000;
const ENDED = ["succeeded", "failed", "cancelled"];

export class TaskDetails extends Component {
  state = { because: null, streams: [], error: null };

  componentDidMount() {
    this.load();
  }

  componentWillUnmount() {
    clearTimeout(this.later);
    this.isGone = true;
  }

  async load() {
    const path = `/jobs/${this.props.job}/tasks/${this.props.index}`;
    try {
      const { explanation } = await api(`${path}/explanation`);
      const streams = await Promise.all(
        ["stdout", "stderr"].map(async (stream) => [stream, await text(`${path}/${stream}`).catch(() => "")]),
      );
      if (this.isGone) return;
      const { because, task } = explanation;
      this.setState({ because, command: task.command, streams: streams.filter(([, printed]) => printed), error: null });
      if (!ENDED.includes(task.state)) this.later = setTimeout(() => this.load(), EVERY_MS);
    } catch (error) {
      if (this.isGone) return;
      this.setState({ error });
      // The server or the dispatcher may be back in a moment.
      if (error.status === 0 || error.status >= 500) this.later = setTimeout(() => this.load(), EVERY_MS);
    }
  }

  render() {
    const { because, command, streams, error } = this.state;
    const path = `${API}/jobs/${this.props.job}/tasks/${this.props.index}`;
    return html`<div class="details">
      <${Failure} error=${error} />
      ${command?.length > 0 && html`<pre class="command" tabindex="0">${command.map(name).join(" ")}</pre>`}
      ${because?.map((sentence) => html`<p>${sentence}</p>`)}
      ${streams.map(
        ([stream, printed]) =>
          html`<h3>${stream} <a href=${`${path}/${stream}`}>whole</a></h3>
            <pre tabindex="0">${printed.slice(-SHOWN_CHARS)}</pre>`,
      )}
    </div>`;
  }
}
