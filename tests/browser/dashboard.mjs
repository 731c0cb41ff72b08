// What people do with the dashboard, in a real browser.
//
//   node dashboard.mjs SCENARIO BASE TOKEN [SCREENSHOTS]
//
// The test that calls this has started a daemon at BASE; what goes wrong is written to standard error, with exit code 1.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [scenario, base, token, shots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDTHS = [[1440, 900], [390, 844]];
const PAGES = process.env.PAGES.split(" ");
const SIGNED_ALONE = ["/entity?", "/poison/confirm?"];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** A page that remembers what must not happen: errors, and requests to elsewhere. */
const open = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.wrong = [];
  page.on("console", (message) => { if (message.type() === "error") page.wrong.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
  page.on("request", (request) => { if (!request.url().startsWith(`${base}/`) && !request.url().startsWith("data:")) page.wrong.push(`request: ${request.url()}`); });
  return page;
};
const close = async (page) => {
  assert.deepEqual(page.wrong, [], `on ${page.url()}`);
  await page.context().close();
};
const signIn = async (page) => {
  await page.goto(`${base}/login`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${base}/`);
};
const api = async (method, path, body) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(base + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
};
let submitted = 0;
const submit = async (job) => {
  await api("POST", "/api/v1/submit", job);
  submitted += 1;
};
const employee = (rk, email) => ({ op: "put", table: "Employees", entity: { PartitionKey: "Sales", RowKey: rk, Email: email, LastName: "Cao" } });
/** Looks again until it holds; the daemon answers within milliseconds, a machine that is busy may not. */
const until = async (what, holds) => {
  const end = Date.now() + 60_000;
  while (!(await holds())) assert.ok(Date.now() < end, what);
};
const poisoned = async (number) => until(`${number} poisoned`, async () => (await api("GET", "/api/v1/poison")).total === number);
/** Each job that was submitted has come to an end. (What is counted waits for the next look at a queue; endings do not.) */
const rested = () => until("all is done", async () => {
  const { queues } = await api("GET", "/api/v1/status");
  const { endings } = queues.find(({ queue }) => queue === "jobs");
  return endings.done + endings.skipped + endings.poisoned >= submitted;
});
const inStep = (rk, holds = () => true) => until(`${rk} is in step`, async () => {
  const { primary, plan } = await api("GET", `/api/v1/entities/Employees/Sales/${rk}`);
  return primary !== null && plan.in_step && holds(primary);
});
const accessible = async (page) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" | ")}`), [], page.url());
};

/** Ten people, one of whom wants an address that is taken, and a message that is none. */
const seed = async () => {
  for (let number = 1; number <= 10; number += 1) await submit(employee(String(number), `person${number}@contoso.com`));
  await rested();
  await submit(employee("11", "PERSON1@contoso.com"));
  await submit({ op: "archive", archive: "former", pk: "Sales", rk: "nobody" });
  await submit({ op: "sync", table: "Employees", pk: "Sales", rk: "1", traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" });
  await poisoned(1);
  await rested();
};

const scenarios = {
  /** Every page, wide and narrow, light and dark, signed in and not: nothing foreign, no error, nobody locked out. */
  async pages() {
    await seed();
    for (const [width, height] of WIDTHS) for (const colorScheme of ["light", "dark"]) for (const signed of [false, true]) {
      const page = await open({ viewport: { width, height }, colorScheme });
      if (signed) await signIn(page);
      const paths = signed
        ? [...PAGES.filter((path) => path !== "/login"), "/entity?table=Employees&pk=Sales&rk=1"]
        : PAGES.filter((path) => !SIGNED_ALONE.some((begin) => path.startsWith(begin)));
      for (const path of paths) {
        const answer = await page.goto(base + path);
        assert.equal(answer.status(), 200, path);
        assert.equal(await page.locator("h1").count(), 1, path);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wider <= 0, `${path} is ${wider} pixels wider than a screen of ${width}`);
        const tab = await page.evaluate(() => document.querySelector("nav [aria-current]")?.getBoundingClientRect().toJSON());
        assert.ok(!tab || tab.left >= 0 && tab.right <= width, `${path}: the tab is at ${JSON.stringify(tab)} of ${width} pixels`);
        await accessible(page);
        if (path === "/jobs") {
          await page.locator("summary").first().click();
          await page.locator("details[open] .facts").waitFor();
          await accessible(page);
        }
        if (shots) await page.screenshot({ path: `${shots}/${path.replaceAll(/[^a-z]+/gi, "-")}-${width}-${colorScheme}-${signed ? "in" : "out"}.png`, fullPage: true });
      }
      await close(page);
    }
  },

  /** Figures, charts and the headline follow the work without a reload. */
  async live() {
    const page = await open();
    await page.goto(`${base}/`);
    const created = page.locator("#views td[data-label=Items]").first();
    const before = await created.textContent();
    for (let number = 0; number < 40; number += 1) await submit(employee(`n${number}`, `n${number}@contoso.com`));
    await page.waitForFunction((before) => document.querySelector("#views td[data-label=Items]").textContent !== before, before);
    await page.waitForFunction(() => document.querySelector("#views td[data-label=Items]").textContent.startsWith("+40"));
    await submit(employee("twin", "N1@contoso.com"));
    await page.getByRole("heading", { name: "1 poisoned message" }).waitFor();
    assert.match(await page.title(), /^1 poisoned message/);
    await close(page);
  },

  /** A poisoned job is read, requeued after its cause is mended, and gone. */
  async poison() {
    await seed();
    const page = await open();
    await signIn(page);
    await page.goto(`${base}/poison`);
    await page.getByRole("button", { name: "Acknowledge all" }).click();
    await page.getByText("1 poisoned message, acknowledged").waitFor();
    assert.equal(await page.getByRole("heading", { name: /poisoned/ }).count(), 0, "it is no headline any more");
    await page.getByRole("link", { name: "Show poisoned messages" }).click();
    const card = page.locator(".card.poisoned");
    await card.first().waitFor();
    assert.equal(await card.count(), 1);
    assert.match(await card.textContent(), /permanent.*is taken by Employees\("Sales", "1"\)/s);
    await card.getByText("Body").click();
    assert.match(await card.locator("pre").textContent(), /PERSON1@contoso.com/);
    await submit({ op: "put", mode: "merge", table: "Employees", entity: { PartitionKey: "Sales", RowKey: "1", Email: "moved@contoso.com" } });
    await inStep("1", ({ Email }) => Email === "moved@contoso.com");
    await card.getByRole("button", { name: /^Requeue/ }).click();
    await page.getByText("1 requeued.").waitFor();
    await inStep("11");
    await page.reload();
    await page.getByText("No poisoned messages.").waitFor();
    await page.goto(`${base}/entity?table=Employees&pk=Sales&rk=11`);
    await page.getByText("In step: nothing to do.").waitFor();
    await page.getByRole("button", { name: "Reconcile now" }).click();
    await page.getByText("A sync job was sent.").waitFor();
    await page.getByRole("link", { name: "See what it did" }).click();
    await page.locator(".jobs").getByText("sync").first().waitFor();
    await close(page);
  },

  /** Some of many are selected and discarded, which asks first; the others stay. */
  async discarding() {
    for (let number = 0; number < 5; number += 1) await submit({ op: "archive", archive: "former", pk: "x", rk: String(number) });
    await submit(employee("1", "one@contoso.com"));
    await rested();
    for (let number = 2; number < 6; number += 1) await submit(employee(String(number), "ONE@contoso.com"));
    await poisoned(4);
    const page = await open();
    await signIn(page);
    await page.goto(`${base}/poison`);
    assert.ok(await page.getByRole("button", { name: "Discard selected…" }).isDisabled(), "nothing is selected");
    const boxes = page.getByRole("checkbox", { name: /^Select [0-9a-f-]{36}/ });
    await boxes.nth(1).check();
    await boxes.nth(2).check();
    await page.getByText("2 selected").waitFor();
    await page.getByRole("button", { name: "Discard selected…" }).click();
    await page.getByRole("heading", { name: "Discard 2 messages?" }).waitFor();
    assert.equal((await api("GET", "/api/v1/poison")).total, 4, "it only asked");
    await page.getByRole("link", { name: "Cancel" }).click();
    assert.equal((await api("GET", "/api/v1/poison")).total, 4, "kept");
    await page.goBack();
    await page.getByRole("button", { name: "Discard", exact: true }).click();
    await page.getByText("2 discarded.").waitFor();
    await poisoned(2);
    await page.goto(`${base}/poison`);
    await page.getByRole("link", { name: "Discard all…" }).click();
    await page.getByRole("heading", { name: /^Discard all 2 messages of every queue/ }).waitFor();
    await page.getByRole("button", { name: "Discard", exact: true }).click();
    await page.getByText("2 discarded.").waitFor();
    await close(page);
  },

  /** One message about many opens into its keys, and each leads to its entity. */
  async many() {
    const entities = Array.from({ length: 40 }, (_, number) => employee(String(number), `p${Math.min(number, 38)}@contoso.com`).entity);
    await submit({ op: "put", table: "Employees", entities });
    await poisoned(1);
    await until("it has ended", async () => (await api("GET", "/api/v1/jobs?key=17")).length > 0);
    for (const [width, height] of WIDTHS) for (const colorScheme of ["light", "dark"]) {
      const page = await open({ viewport: { width, height }, colorScheme });
      await page.goto(`${base}/jobs`);
      await page.getByLabel("Key or message id").fill("17");
      await page.getByRole("button", { name: "Search" }).click();
      await page.locator("summary", { hasText: "40 primaries" }).click();
      const keys = page.locator(".primaries li");
      assert.match(await keys.nth(0).textContent(), /^Sales \/ 17\s+done/);
      assert.match(await keys.nth(1).textContent(), /^Sales \/ 3[89]\s+poisoned.*is taken by/s);
      await accessible(page);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `wider than a screen of ${width}`);
      if (shots) await page.screenshot({ path: `${shots}/many-${width}-${colorScheme}.png`, fullPage: true });
      await page.getByRole("link", { name: "And 20 more" }).click();
      await page.locator("details[open]").waitFor();
      assert.equal(await keys.count(), 40);
      await accessible(page);
      if (shots) await page.screenshot({ path: `${shots}/many-all-${width}-${colorScheme}.png`, fullPage: true });
      await page.getByRole("link", { name: "Sales / 17" }).click();
      await page.getByText("In step: nothing to do.").waitFor();
      await close(page);
    }
  },

  /** Without the token nothing is changed, and another site's page changes nothing even with a session. */
  async refused() {
    await seed();
    const page = await open();
    await page.goto(`${base}/`);
    await page.getByRole("heading", { name: "1 poisoned message" }).waitFor();
    assert.equal(await page.getByRole("button", { name: /^Acknowledge/ }).count(), 0, "nor is this");
    await page.goto(`${base}/poison`);
    assert.equal(await page.getByRole("button", { name: /Requeue|Discard/ }).count(), 0, "nothing is offered that would be refused");
    const change = (path) => page.evaluate(async (path) => {
      const body = new URLSearchParams({ all: "true" });
      return (await fetch(path, { method: "POST", body })).status;
    }, path);
    for (const path of ["/acknowledge", "/poison/requeue", "/poison/discard", "/entity/reconcile", "/system/log", "/api/v1/submit"]) assert.equal(await change(path), 401, path);
    assert.equal(page.wrong.length, 6, "each refusal is an error in the console, and nothing else is");
    page.wrong = [];
    await page.goto(`${base}/login`);
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Wrong token.").waitFor();
    page.wrong = [];
    await signIn(page);
    const cookies = await page.context().cookies();
    assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
    const form = `<form method="post" action="${base}/poison/discard"><input name="all" value="true"></form>`;
    const other = await page.context().newPage();
    await other.goto(`data:text/html,${encodeURIComponent(form)}`);
    const [answer] = await Promise.all([other.waitForResponse(`${base}/poison/discard`), other.evaluate(() => document.forms[0].submit())]);
    assert.ok([401, 403].includes(answer.status()), `${answer.status()}`);
    assert.equal((await api("GET", "/api/v1/poison")).total, 1);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("link", { name: "Sign in" }).waitFor();
    await page.context().close();
  },

  /** From the first page to a requeued message without a pointer. */
  async keyboard() {
    await seed();
    await until("the first slot is measured", async () => (await api("GET", "/api/v1/hour")).length > 0);
    const page = await open();
    await page.goto(`${base}/login`);
    await page.waitForFunction(() => document.activeElement.matches("input"));
    await page.keyboard.type(token);
    await page.keyboard.press("Enter");
    await page.waitForURL(`${base}/`);
    const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
    const tabTo = async (wanted) => {
      for (let presses = 0; presses < 80; presses += 1) {
        await page.keyboard.press("Tab");
        if (wanted.test(await focused())) return;
      }
      assert.fail(`${wanted} is not reached with Tab`);
    };
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await tabTo(/^Jobs jobs\/s/);
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "what has the focus shows it");
    await page.keyboard.press("End");
    await page.waitForFunction(() => /done [\d–]/.test(document.querySelector(".chart output").textContent));
    await page.goto(`${base}/jobs`);
    await tabTo(/put/);
    await page.keyboard.press("Enter");
    await page.locator("details[open]").getByText(/^Steps: \d+ requests/).waitFor();
    await page.goto(`${base}/poison`);
    await tabTo(/^Requeue [0-9a-f-]{36}/);
    await page.keyboard.press("Enter");
    await page.getByText("1 requeued.").waitFor();
    await close(page);
  },
};

try {
  await scenarios[scenario]();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}
