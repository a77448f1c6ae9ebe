// Processes of a cluster for the pages: started, waited for, and ended.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";

// Everything that is waited for comes within this time, milliseconds.
export const DEADLINE = 60_000;

/** Waits until `look` returns something. */
export async function until(what, look) {
  const end = Date.now() + DEADLINE;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert(Date.now() < end, `in ${DEADLINE / 1000} s, it did not come: ${what}`);
    await new Promise((go) => setTimeout(go, 50));
  }
}

/** A process in the foreground. */
class Running {
  constructor(place, program, words) {
    this.words = words;
    this.process = spawn(program, words, { cwd: place.work, env: place.environment });
    this.ended = new Promise((done) => this.process.on("exit", (code) => done(code)));
    this.said = [];
    for (const stream of [this.process.stdout, this.process.stderr]) {
      createInterface({ input: stream }).on("line", (line) => this.said.push(line));
    }
  }

  /** Waits for a line. Returns what the pattern has found in it. */
  line(pattern) {
    return until(`${pattern} of ${this.words.join(" ")}`, () => {
      assert(this.process.exitCode === null, this.said.join("\n"));
      return this.said.map((line) => line.match(pattern)).find(Boolean);
    });
  }

  async end(signal = "SIGTERM") {
    this.process.kill(signal);
    return this.ended;
  }
}

/** A folder with the state of clusters, and the processes that were started in it. */
export class Place {
  constructor(folder) {
    [this.home, this.work] = [join(folder, "home"), join(folder, "work")];
    mkdirSync(this.work, { recursive: true });
    this.environment = { ...process.env, EYAS_HOME: this.home, TMPDIR: folder };
    this.all = [];
  }

  spawn(program, ...words) {
    const running = new Running(this, program, words);
    this.all.push(running);
    return running;
  }

  /** Starts `eyas` with these words. */
  start(...words) {
    return this.spawn(process.env.EYAS_BIN, ...words);
  }

  run(...words) {
    return execFileSync(process.env.EYAS_BIN, words, { cwd: this.work, env: this.environment, encoding: "utf8" });
  }

  write(name, text = "") {
    writeFileSync(join(this.work, name), text);
  }

  async end() {
    for (const running of this.all.reverse()) {
      if (running.process.exitCode === null && running.process.signalCode === null) await running.end();
    }
  }
}

/** A free port of this machine. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** nginx with TLS before a server that listens at `address`. Returns its two places: at the first, it passes the path
 * on; at the second, it takes the beginning away. `null` if nginx is missing. */
export async function nginx(place, address, base) {
  const program = ["/usr/sbin/nginx", "/usr/bin/nginx"].find(existsSync);
  if (!program) return null;
  const ports = [await freePort(), await freePort()];
  const folder = join(place.work, "..", "nginx");
  mkdirSync(folder);
  const [key, certificate] = [join(folder, "key.pem"), join(folder, "certificate.pem")];
  const request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...request, "-keyout", key, "-out", certificate], { stdio: "ignore" });
  const server = (port, path) => `server {
    listen 127.0.0.1:${port} ssl;
    ssl_certificate ${certificate};
    ssl_certificate_key ${key};
    location ${base}/ {
      proxy_pass http://${address}${path};
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-Proto $scheme;
      access_log off;
    }
  }`;
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  const lines = [
    `daemon off; master_process off; pid ${folder}/pid; error_log ${folder}/log; events {}`,
    "http {",
    "access_log off;",
    ...temporary.map((kind) => `${kind}_temp_path ${folder}/${kind};`),
    server(ports[0], ""),
    server(ports[1], "/"),
    "}",
  ];
  writeFileSync(join(folder, "conf"), lines.join("\n"));
  place.spawn(program, "-c", join(folder, "conf"), "-e", join(folder, "log"));
  const places = ports.map((port) => `https://localhost:${port}${base}`);
  await Promise.all(ports.map((port) => until("nginx", () => canConnect(port))));
  return places;
}

async function canConnect(port) {
  const socket = connect(port, "127.0.0.1");
  // It rejects with the error of a socket that is refused.
  const isOpen = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isOpen;
}

/** A dispatcher and an executor, which can be ended one by one. */
export class Cluster {
  constructor(place, name) {
    [this.place, this.name] = [place, name];
  }

  async start() {
    await this.startDispatcher();
    const folder = join(this.place.work, "..", "node");
    this.place.start("start", "executor", "--cluster", this.name, "--name", "n1", "--folder", folder, "--slots", "2");
    await until("an executor", () => this.json("executor", "list").executors.length === 1);
  }

  async startDispatcher() {
    const words = ["start", "dispatcher", "--cluster", this.name, "--listen", "127.0.0.1:0"];
    this.dispatcher = this.place.start(...words, "--advertise", "127.0.0.1");
    await this.dispatcher.line(/the dispatcher listens on/);
  }

  json(...words) {
    return JSON.parse(this.place.run("--json", "--cluster", this.name, ...words));
  }
}

/** `eyas web`, with the token that it is used with. */
export class Web {
  constructor(cluster) {
    this.cluster = cluster;
  }

  async start(listen = "127.0.0.1:0") {
    this.process = this.cluster.place.start("web", "--cluster", this.cluster.name, "--listen", listen);
    const [, base, token] = await this.process.line(/^eyas web: (http:.*)\/\?token=(.*)$/);
    [this.base, this.token] = [base, this.token ?? token];
  }

  /** Asks the API. */
  async api(path, options = {}) {
    const headers = { Authorization: `Bearer ${this.token}`, ...options.headers };
    const answer = await fetch(`${this.base}/api/v1${path}`, { ...options, headers });
    assert(answer.ok, `${path}: ${answer.status} ${answer.ok ? "" : await answer.text()}`);
    return answer.json();
  }

  /** Submits a job over HTTP. Returns its id. */
  async submit(job) {
    const headers = { "Content-Type": "application/json" };
    return (await this.api("/jobs", { method: "POST", headers, body: JSON.stringify(job) })).job;
  }

  async ended(job) {
    const state = async () => (await this.api(`/jobs/${job}`)).jobs[0].state;
    return until(`the end of job ${job}`, async () => (await state()) !== "running");
  }
}
