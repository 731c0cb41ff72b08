// Makes pages live. Without it they show the state at the time they were loaded.
"use strict";

// A part with the focus, an open detail or selected text is not replaced, so that the reader is not interrupted.
const busy = (part) => part.contains(document.activeElement) && document.activeElement !== part
  || part.querySelector("details[open]") !== null
  || (getSelection()?.toString() && part.contains(getSelection().anchorNode));
const replace = (id, html) => {
  const part = document.getElementById(id);
  if (!part || part.dataset.html === html || busy(part)) return;
  part.innerHTML = html;
  part.dataset.html = html;
};

const live = document.querySelector("[data-live]");
if (live) {
  let events = null;
  const listen = () => {
    events = new EventSource(live.dataset.live);
    events.addEventListener("parts", (event) => {
      const { title, parts } = JSON.parse(event.data);
      document.title = title;
      for (const [id, html] of Object.entries(parts)) replace(id, html);
      document.body.classList.remove("stale");
    });
    events.addEventListener("error", () => document.body.classList.add("stale"));
  };
  // A hidden page receives no events.
  const look = () => {
    if (document.hidden) { events?.close(); events = null; } else if (!events) listen();
  };
  document.addEventListener("visibilitychange", look);
  look();
}

for (const part of document.querySelectorAll("[data-refresh]")) {
  setInterval(async () => {
    if (document.hidden || part.matches(":hover") && part.querySelector(".chart:hover") || busy(part)) return;
    try {
      const answer = await fetch(part.dataset.refresh);
      if (answer.ok) replace(part.id, await answer.text());
    } catch { /* retried at the next interval */ }
  }, Number(part.dataset.every) * 1000);
}

// Counts the selected messages, and selects or deselects all.
const chosen = document.querySelector("[data-chosen]");
if (chosen) {
  const boxes = [...document.querySelectorAll("input[type=checkbox][form=chosen]")];
  const all = document.createElement("input");
  all.type = "checkbox";
  const label = document.createElement("label");
  label.className = "all";
  const text = document.createElement("span");
  label.append(all, text);
  chosen.before(label);
  const buttons = chosen.closest("form").querySelectorAll("button");
  const count = () => {
    const number = boxes.filter((box) => box.checked).length;
    text.textContent = number ? `${number} selected` : `Select ${boxes.length === 1 ? "it" : `all ${boxes.length}`}`;
    all.checked = number > 0 && number === boxes.length;
    all.indeterminate = number > 0 && number < boxes.length;
    for (const button of buttons) button.disabled = number === 0;
  };
  all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; count(); });
  for (const box of boxes) box.addEventListener("change", count);
  count();
}

// Charts show the values at the pointer, or at the position chosen with the arrow keys.
const ago = (slots) => {
  const seconds = slots * 10;
  return seconds < 60 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ${seconds % 60} s ago`;
};
const figure = (value, unit) => {
  if (value === null || value === undefined) return "–";
  if (unit === "seconds" && value < 1) return `${(value * 1000).toLocaleString("en", { maximumSignificantDigits: 3 })} ms`;
  return value.toLocaleString("en", { maximumSignificantDigits: 3 }) + (unit === "seconds" ? " s" : "");
};
const tell = (chart, slot) => {
  const lines = JSON.parse(chart.dataset.values), span = Number(chart.dataset.span), unit = chart.dataset.unit;
  const count = lines[0].values.length;
  const index = slot - (span - count);
  const cursor = chart.querySelector(".cursor");
  const output = chart.querySelector("output");
  if (index < 0 || index >= count) {
    cursor.setAttribute("visibility", "hidden");
    output.textContent = "";
    return;
  }
  cursor.setAttribute("visibility", "visible");
  cursor.setAttribute("transform", `translate(${1000 * slot / (span - 1)} 0)`);
  const values = lines.map((line) => `${line.name} ${figure(line.values[index], unit)}`).join(", ");
  output.textContent = `${ago(span - slot)}: ${values}${unit === "seconds" ? "" : ` ${unit}`}`;
};
const chartOf = (event) => event.target instanceof Element ? event.target.closest(".chart") : null;
document.addEventListener("pointermove", (event) => {
  const chart = chartOf(event);
  if (!chart) return;
  const box = chart.querySelector("svg").getBoundingClientRect();
  tell(chart, Math.round((event.clientX - box.left) / box.width * (Number(chart.dataset.span) - 1)));
});
document.addEventListener("keydown", (event) => {
  const chart = chartOf(event);
  if (!chart || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  const span = Number(chart.dataset.span), count = JSON.parse(chart.dataset.values)[0].values.length;
  const now = Number(chart.dataset.slot ?? span);
  const wanted = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: span - count, End: span - 1 }[event.key];
  chart.dataset.slot = Math.min(span - 1, Math.max(span - count, wanted));
  tell(chart, Number(chart.dataset.slot));
  event.preventDefault();
});
