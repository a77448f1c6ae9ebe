// The pages of `eyas web` in a real browser: what people do with them, and what axe-core finds in them.

import assert from "node:assert/strict";
import { mkdtempSync, mkdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Cluster, DEADLINE, Place, Web, nginx, until } from "./processes.mjs";

const tools = createRequire(join(process.env.EYAS_WEB_TOOLS, "package.json"));
const { chromium } = tools("playwright-core");
const { source: axe } = tools("axe-core");
const pictures = process.argv[2];

const WIDTHS = [320, 768, 1440];
const SCHEMES = ["light", "dark"];
const MANY = 5000;
const SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>";
const shell = (script, more = {}) => ({ command: ["sh", "-c", script], ...more });
const untilFile = (name) => `until [ -e ${name} ]; do sleep 0.05; done`;

const folder = mkdtempSync(join(tmpdir(), "eyas-pages-"));
const place = new Place(folder);
const browser = await chromium.launch({ executablePath: process.env.EYAS_CHROMIUM, args: ["--no-sandbox"] });
const cluster = new Cluster(place, "pages");
const web = new Web(cluster);
const failures = [];

/** A fresh browser with a page. What its scripts do wrong fails the case. */
async function open(path, options = {}, url = web.base, token = web.token) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(DEADLINE);
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(error.stack));
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && page.wrong.push(message.text()));
  page.on("dialog", (dialog) => dialog.accept());
  await page.goto(`${url}${path}${path.includes("?") ? "&" : "?"}token=${token}`);
  return page;
}

async function close(page) {
  assert.deepEqual(page.wrong, []);
  await page.context().close();
}

const text = (page, selector, words) => page.locator(selector, { hasText: words }).first().waitFor();
const gone = (page, selector) => page.locator(selector).waitFor({ state: "detached" });
const parameter = (page, name) => new URL(page.url()).searchParams.get(name);

const cases = {
  async "the URL of `eyas start local --web` works in a fresh browser"() {
    const words = ["start", "local", "--web", "--nodes", "1", "--slots", "1", "--cluster", "first"];
    const local = place.start(...words);
    const [, url, token] = await local.line(/^eyas web: (http:.*)\/\?token=(.*)$/);
    const page = await open("/", {}, url, token);
    await text(page, "main", "No job yet");
    assert.equal(page.url(), `${url}/`, "the token is not in the URL");
    await close(page);
    assert.equal(await local.end(), 0);
  },

  async "a job that is submitted over HTTP ends in the page, and its task is explained"() {
    const page = await open("/");
    await text(page, "h1", "Jobs");
    const script = `${untilFile("talk")}; echo it talks; ${untilFile("go")}; echo it printed`;
    const job = await web.submit({ name: "watched", task: [shell(script)] });
    await page.getByRole("link", { name: "watched" }).click();
    await text(page, "h1 .state", "running");
    await page.getByRole("link", { name: `Task ${job}.0` }).click();
    await page.locator(".details p").first().waitFor();
    // What a running task prints is shown while it runs.
    place.write("talk");
    await text(page, ".details pre", "it talks");
    place.write("go");
    await text(page, "h1 .state", "succeeded");
    await page.goto(`${web.base}/jobs/${job}`);
    // The task takes nearly all of the time, so it is in the middle of its row.
    const canvas = page.locator(".timeline canvas");
    await until("the task in the timeline", async () => {
      const box = await canvas.boundingBox();
      await canvas.click({ position: { x: box.width * 0.6, y: 8 } });
      return parameter(page, "task") === "0";
    });
    await text(page, ".details p", "It has ended on n1");
    await text(page, ".details pre", "it printed");
    await close(page);
  },

  async "names with markup are shown as text"() {
    const command = ["sh", "-c", 'echo "$0" >&2; exit 3', SCRIPT];
    const job = await web.submit({ name: SCRIPT, task: [{ command }] });
    await web.ended(job);
    const page = await open(`/jobs/${job}?task=0`);
    await text(page, "h1", SCRIPT);
    await text(page, ".failures pre", SCRIPT);
    await text(page, ".details .command", SCRIPT);
    await page.goto(`${web.base}/`);
    await text(page, "td a", SCRIPT);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator("main img, main script").count(), 0);
    await close(page);
  },

  async "a job is cancelled"() {
    const job = await web.submit({ name: "endless", task: [shell(untilFile("never"))] });
    const page = await open(`/jobs/${job}`);
    await page.getByRole("button", { name: "Cancel" }).click();
    await text(page, "h1 .state", "cancelled");
    await close(page);
  },

  async "failures come first, with the log one click away"() {
    const script = "echo broken {} >&2; [ {} -gt 3 ]";
    const job = await web.submit({ name: "fails", task: [shell(script, { array: "1-9" })] });
    await web.ended(job);
    const page = await open("/");
    await page.locator("tr", { hasText: "fails" }).getByRole("link", { name: "3", exact: true }).waitFor();
    await page.getByRole("link", { name: "fails" }).click();
    await text(page, ".failures li", "exit code 1");
    await text(page, ".failures pre", "broken 1");
    await page.locator(".failures").getByRole("link", { name: "log" }).first().click();
    await text(page, "body", /^broken \d/);
    await close(page);
  },

  async "many tasks are paged and sorted, and their timeline is bounded"() {
    const job = await web.submit({ name: "many", task: [{ noop: true, array: `1-${MANY}` }] });
    await web.ended(job);
    const page = await open("/");
    const [answered] = await Promise.all([
      page.waitForResponse((answer) => answer.url().includes(`/jobs/${job}/timeline`)),
      page.getByRole("link", { name: "many" }).click(),
    ]);
    const timeline = await answered.body();
    assert(timeline.length < 600_000, `${timeline.length} bytes`);
    assert(JSON.parse(timeline).timeline.columns > 1, "tasks are drawn together");
    await page.getByRole("link", { name: "Next 50" }).click();
    await page.getByRole("link", { name: `Task ${job}.99` }).scrollIntoViewIfNeeded();
    assert((await page.locator("tbody tr").count()) <= 100);
    await page.locator("select").nth(1).selectOption("ran_us");
    await text(page, ".pages", `${MANY.toLocaleString("en")} tasks found`);
    assert.equal(parameter(page, "sort"), "ran_us");
    await page.getByLabel("Text").fill("4999");
    await text(page, ".pages", "1 task found");
    const download = await (await fetch(`${web.base}/api/v1/jobs/${job}/tasks.csv`, {
      headers: { Authorization: `Bearer ${web.token}` },
    })).text();
    assert.equal(download.trimEnd().split("\r\n").length, MANY + 1);
    await close(page);
  },

  async "a part of the timeline is marked, and idle time is shortened"() {
    const job = await web.submit({ name: "timed", task: [shell("sleep 0.2", { array: "1-8" })] });
    await web.ended(job);
    const page = await open(`/jobs/${job}`);
    const canvas = page.locator(".timeline canvas");
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width * 0.4, box.y + 8);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.7, box.y + 8, { steps: 4 });
    await page.mouse.up();
    await page.waitForURL(/from=\d+&to=\d+/);
    const part = page.url();
    await page.getByLabel("Shorten idle time").check();
    await page.waitForURL(/idle=compressed/);
    await page.goBack();
    assert.equal(page.url(), part);
    await canvas.press("Escape");
    await page.waitForURL((url) => !url.search.includes("from"));
    // The keyboard alone leads to the explanation of a task.
    await until("tasks in the timeline", async () => {
      await canvas.press("ArrowRight");
      return (await page.locator(".said").textContent()).includes("slot");
    });
    await canvas.press("Enter");
    await page.locator(".details p").first().waitFor();
    await close(page);
  },

  async "the page comes back after the dispatcher, and after the server"() {
    const job = await web.submit({ name: "lasting", task: [shell("true")] });
    await web.ended(job);
    // A token of the server itself would be another one after its restart.
    const server = web.token;
    web.token = place.run("web", "token", "create", "--cluster", cluster.name, "--scope", "admin").trim();
    const page = await open(`/jobs/${job}`);
    const old = await open("/", {}, web.base, server);
    await text(page, "h1", "lasting");
    await cluster.dispatcher.end("SIGKILL");
    await text(page, ".lost", "the dispatcher does not answer");
    await cluster.startDispatcher();
    await gone(page, ".lost");
    const address = web.base.replace("http://", "");
    await web.process.end();
    await text(page, ".lost", "the server of this page does not answer");
    await web.start(address);
    await gone(page, ".lost");
    await until("an executor", () => cluster.json("executor", "list").executors.length === 1);
    const next = await web.submit({ name: "after", task: [shell("true")] });
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.locator("tr", { hasText: "after" }).locator(".state", { hasText: "succeeded" }).waitFor();
    assert(next > job);
    await close(page);
    // The cookie of the server that has ended opens nothing, and the page says so.
    await text(old, ".lost", "the token of this page is no longer accepted");
    await close(old);
  },

  async "the page works behind nginx with TLS, which passes the path on or takes it away"() {
    const words = ["--cluster", cluster.name, "--base-path", "/site/eyas", "--allow-host", "localhost"];
    const server = place.start("web", ...words);
    const [, address, token] = await server.line(/^eyas web: http:\/\/([^/]*)\/site\/eyas\/\?token=(.*)$/);
    const places = await nginx(place, address, "/site/eyas");
    if (!places) {
      assert(!process.env.CI, "nginx is missing; on Debian: apt-get install nginx openssl");
      console.log("SKIPPED nginx is missing; on Debian: apt-get install nginx openssl");
      return;
    }
    for (const url of places) {
      const page = await open("/nodes", { ignoreHTTPSErrors: true }, url, token);
      const [cookie] = await page.context().cookies();
      assert(cookie.secure && cookie.httpOnly && cookie.path === "/site/eyas/", JSON.stringify(cookie));
      await text(page, "td", "n1");
      assert.equal(page.url(), `${url}/nodes`);
      const job = await web.submit({ name: "proxied", task: [shell(untilFile("never"))] });
      await page.getByRole("link", { name: "Jobs" }).click();
      // Events come through the proxy at once, and so do changes from a page with `https` as its origin.
      await page.locator("tr", { hasText: "proxied" }).filter({ hasText: "running" }).getByRole("link").first().click();
      await page.waitForURL(`${url}/jobs/${job}`);
      await page.getByRole("button", { name: "Cancel" }).click();
      await text(page, "h1 .state", "cancelled");
      await page.reload();
      await text(page, "h1 .state", "cancelled");
      await close(page);
    }
    await server.end();
  },

  async "no view has a serious finding of axe-core, at any width and in any style"() {
    const running = await web.submit({ name: "running", task: [shell(untilFile("end"), { array: "1-3" })] });
    const { jobs } = await web.api("/jobs");
    const of = (name) => jobs.find((job) => job.name === name).job;
    const views = {
      jobs: "/",
      nodes: "/nodes",
      running: `/jobs/${running}`,
      failed: `/jobs/${of("fails")}?task=0`,
      many: `/jobs/${of("many")}?sort=ran_us`,
      timeline: `/jobs/${of("timed")}?idle=compressed`,
    };
    const found = [];
    for (const colorScheme of SCHEMES) {
      for (const width of WIDTHS) {
        const page = await open("/", { colorScheme, viewport: { width, height: 900 } });
        for (const [name, path] of Object.entries(views)) {
          await page.goto(web.base + path);
          await page.locator(path.startsWith("/jobs/") ? ".timeline canvas" : "tbody tr").first().waitFor();
          await page.evaluate(axe);
          const { violations } = await page.evaluate(() => globalThis.axe.run());
          for (const { id, impact, nodes } of violations) {
            if (!["serious", "critical"].includes(impact)) continue;
            found.push(`${name} ${colorScheme} ${width}: ${id}: ${nodes[0].html} ${nodes[0].failureSummary}`);
          }
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (wide > 0) found.push(`${name} ${width}: the page is ${wide} pixels wider than the window`);
          if (pictures) await page.screenshot({ path: join(pictures, `${name}-${colorScheme}-${width}.png`) });
        }
        await close(page);
      }
    }
    place.write("end");
    assert.deepEqual(found, []);
  },
};

if (pictures) mkdirSync(pictures, { recursive: true });
try {
  await cluster.start();
  await web.start();
  for (const [name, run] of Object.entries(cases)) {
    const began = Date.now();
    try {
      await run();
      console.log(`ok      ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failures.push(name);
      console.log(`FAILED  ${name}\n${error.stack}`);
    }
  }
} finally {
  await browser.close();
  await place.end();
  rmSync(folder, { recursive: true, force: true });
}
const count = Object.keys(cases).length;
console.log(`${count - failures.length} of ${count} cases passed`);
process.exit(failures.length === 0 ? 0 : 1);
