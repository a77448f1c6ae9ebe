// What is known of one task: why it waits or how it ended, and what it has printed.

import { API, api, text } from "./cluster.js";
import { Failure, html } from "./parts.js";
import { Component } from "./preact.js";
import { name } from "./words.js";

// Of what a task has printed, the end is shown, characters.
const SHOWN_CHARS = 20_000;

export class TaskDetails extends Component {
  state = { because: null, streams: [], error: null };

  async componentDidMount() {
    const path = `/jobs/${this.props.job}/tasks/${this.props.index}`;
    try {
      const { explanation } = await api(`${path}/explanation`);
      this.setState({ because: explanation.because, command: explanation.task.command });
      const streams = await Promise.all(
        ["stdout", "stderr"].map(async (stream) => [stream, await text(`${path}/${stream}`).catch(() => "")]),
      );
      this.setState({ streams: streams.filter(([, printed]) => printed) });
    } catch (error) {
      this.setState({ error });
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
