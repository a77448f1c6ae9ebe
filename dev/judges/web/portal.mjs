// The pages of AstroPortal in a real browser: from sign-in to the image, and what axe-core finds in them. `portal.py`
// starts the portal, with the accounts ada and bob.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const tools = createRequire(join(process.env.EYAS_WEB_TOOLS, "package.json"));
const { chromium } = tools("playwright-core");
const { source: axe } = tools("axe-core");
const base = process.env.PORTAL_URL;
const positions = process.env.PORTAL_POSITIONS;
const pictures = process.argv[2];

const DEADLINE = 30_000;
const WIDTHS = [320, 768, 1440];
const SCHEMES = ["light", "dark"];
const SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>";
const browser = await chromium.launch({ executablePath: process.env.EYAS_CHROMIUM, args: ["--no-sandbox"] });
const failures = [];

/** A fresh browser. What its scripts do wrong fails the case. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(DEADLINE);
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(error.stack));
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && page.wrong.push(message.text()));
  await page.goto(`${base}/`);
  return page;
}

async function signIn(page, name) {
  await page.getByLabel("Account").fill(name);
  await page.getByLabel("Password").fill(`password of ${name}`);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Stacks" }).waitFor();
}

async function close(page) {
  assert.equal(await page.evaluate(() => window.hit), undefined, "no script of a user has run");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
}

/** Submits a stack of the pasted list. Waits for its end. */
async function stack(page, label, list) {
  await page.getByRole("link", { name: "New stack" }).click();
  await page.getByLabel("Edge of the region").fill("40");
  await page.getByLabel("Positions").fill(list);
  await page.getByLabel("Label").fill(label);
  await page.getByRole("button", { name: "Stack", exact: true }).click();
  await page.locator("h1 .succeeded").waitFor();
}

const cases = {
  async "from sign-in to the image, with the keyboard alone"() {
    const page = await open();
    assert.equal(new URL(page.url()).pathname, "/signin");
    await page.getByLabel("Account").fill("ada");
    await page.getByLabel("Password").fill("a wrong one");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("the password is wrong").waitFor();
    await page.getByLabel("Account").focus();
    await page.keyboard.type("ada");
    await page.keyboard.press("Tab");
    await page.keyboard.type("password of ada");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Stacks" }).waitFor();
    await page.getByRole("link", { name: "New stack" }).focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Edge of the region").fill("40");
    await page.getByLabel("Positions").focus();
    await page.keyboard.insertText(`${positions}10,80\n`);
    for (let times = 0; times < 3; times += 1) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator("h1 .succeeded").waitFor();
    const size = await page.locator("img.stack").evaluate((image) => [image.naturalWidth, image.naturalHeight]);
    assert.ok(size[0] > 0 && size[0] === size[1], `${size}`);
    await page.getByText("no frame of the survey shows it").waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Stacked image", exact: true }).click(),
    ]);
    assert.match(download.suggestedFilename(), /^stack-.*image\.fits$/);
    await close(page);
  },

  async "texts of users are texts"() {
    const page = await open();
    await signIn(page, "ada");
    const [, ...lines] = positions.trim().split("\n");
    const rows = lines.map((line) => `a,${line}`).join("\n");
    await stack(page, SCRIPT, `name,ra,dec\n"${SCRIPT}",10,80\n${rows}\n`);
    await page.getByRole("heading", { name: SCRIPT }).waitFor();
    await page.getByRole("cell", { name: SCRIPT }).waitFor();
    await page.goto(`${base}/`);
    await page.getByRole("link", { name: SCRIPT }).waitFor();
    await close(page);
  },

  async "a wrong list is refused with its line, and two accounts are apart"() {
    const page = await open();
    await signIn(page, "bob");
    await page.getByText("No stack yet").waitFor();
    await page.goto(`${base}/stack`);
    await page.getByLabel("Positions").fill("ra,dec\n1,two\n");
    await page.getByRole("button", { name: "Stack", exact: true }).click();
    await page.getByRole("alert").getByText("line 2 of the list").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.goto(`${base}/stack`);
    assert.equal(new URL(page.url()).pathname, "/signin");
    await close(page);
  },

  async "a token is made, used, and revoked"() {
    const page = await open();
    await signIn(page, "bob");
    await page.getByRole("link", { name: "Account bob" }).click();
    await page.getByLabel("Name").fill("notebook");
    await page.getByRole("button", { name: "Make a token" }).click();
    const token = await page.locator("code").textContent();
    const status = async () =>
      (await fetch(`${base}/async`, { headers: { Authorization: `Bearer ${token}` } })).status;
    assert.equal(await status(), 200);
    await page.getByRole("row", { name: "notebook" }).getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("row", { name: "notebook" }).waitFor({ state: "detached" });
    assert.equal(await status(), 401);
    await close(page);
  },

  async "no view has a serious finding of axe-core, at any width and in any style"() {
    const found = [];
    for (const colorScheme of SCHEMES) {
      for (const width of WIDTHS) {
        const page = await open({ colorScheme, viewport: { width, height: 900 } });
        const look = async (name) => {
          await page.evaluate(axe);
          const { violations } = await page.evaluate(() => globalThis.axe.run());
          for (const { id, impact, nodes } of violations) {
            if (!["serious", "critical"].includes(impact)) continue;
            found.push(`${name} ${colorScheme} ${width}: ${id}: ${nodes[0].html} ${nodes[0].failureSummary}`);
          }
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (wide > 0) found.push(`${name} ${width}: the page is ${wide} pixels wider than the window`);
          if (pictures) {
            const path = join(pictures, `portal-${name}-${colorScheme}-${width}.png`);
            await page.screenshot({ path, fullPage: true });
          }
        };
        await look("sign-in");
        await signIn(page, "ada");
        await look("stacks");
        await page.locator("tbody a").last().click();
        await page.locator("img.stack").waitFor();
        await look("stack");
        await page.goto(`${base}/stack`);
        await look("new");
        await page.goto(`${base}/account`);
        await look("account");
        await page.goto(`${base}/jobs/none`);
        await page.getByRole("alert").waitFor();
        await look("error");
        await close(page);
      }
    }
    assert.deepEqual(found, []);
  },
};

if (pictures) mkdirSync(pictures, { recursive: true });
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
await browser.close();
process.exit(failures.length === 0 ? 0 : 1);
