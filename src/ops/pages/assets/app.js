// Makes pages live. Without it they show the same, as of when they were loaded.
"use strict";

const replace = (id, html) => {
  const part = document.getElementById(id);
  // What somebody reads with the keyboard is left alone until they move on.
  if (!part || part.contains(document.activeElement) || part.dataset.html === html) return;
  const open = [...part.querySelectorAll("details")].map((details) => details.open);
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((details, at) => { details.open = open[at] ?? false; });
  part.dataset.html = html;
};

const live = document.querySelector("[data-live]");
if (live) {
  const events = new EventSource(live.dataset.live);
  events.addEventListener("parts", (event) => {
    const { title, parts } = JSON.parse(event.data);
    document.title = `${title} · evenkeel`;
    for (const [id, html] of Object.entries(parts)) replace(id, html);
    document.body.classList.remove("stale");
  });
  events.addEventListener("error", () => document.body.classList.add("stale"));
}

const refreshed = document.querySelector("[data-refresh]");
if (refreshed) {
  setInterval(async () => {
    if (document.hidden || refreshed.matches(":hover")) return;
    try {
      const answer = await fetch(refreshed.dataset.refresh);
      if (answer.ok) replace(refreshed.id, await answer.text());
    } catch { /* the next one may get through */ }
  }, 10000);
}

// Charts tell the values under the pointer, or where the arrow keys have moved to.
const SLOTS = 360, LEFT = 40, WIDTH = 360;
const ago = (slots) => {
  const seconds = slots * 10;
  return seconds < 60 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ${seconds % 60} s ago`;
};
const figure = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 3 });
const tell = (chart, slot) => {
  const lines = JSON.parse(chart.dataset.values);
  const count = lines[0].values.length;
  const index = slot - (SLOTS - count);
  const cursor = chart.querySelector(".cursor");
  const output = chart.querySelector("output");
  if (index < 0 || index >= count) {
    cursor.setAttribute("visibility", "hidden");
    output.textContent = "";
    return;
  }
  cursor.setAttribute("visibility", "visible");
  cursor.setAttribute("transform", `translate(${LEFT + WIDTH * slot / (SLOTS - 1)} 0)`);
  const values = lines.map((line) => `${line.name} ${figure(line.values[index])}`).join(", ");
  output.textContent = `${ago(SLOTS - slot)}: ${values} ${chart.dataset.unit}`;
};
const chartOf = (event) => event.target instanceof Element ? event.target.closest(".chart") : null;
document.addEventListener("pointermove", (event) => {
  const chart = chartOf(event);
  if (!chart) return;
  const box = chart.querySelector("svg").getBoundingClientRect();
  tell(chart, Math.round(((event.clientX - box.left) / box.width * 400 - LEFT) / WIDTH * (SLOTS - 1)));
});
document.addEventListener("keydown", (event) => {
  const chart = chartOf(event);
  if (!chart || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const step = event.key === "ArrowLeft" ? -1 : 1;
  const slot = Math.min(SLOTS - 1, Math.max(0, Number(chart.dataset.slot ?? SLOTS) + step));
  chart.dataset.slot = slot;
  tell(chart, slot);
  event.preventDefault();
});
