// A run's windows, newest first, a page at a time; two that are checked can be compared.

import { get } from "./api.js";
import { styleOf, textOf } from "./document.js";
import { fill, h } from "./dom.js";
import { ago, count, duration, share } from "./format.js";
import { go, link } from "./state.js";
import { verdict } from "./verdict.js";

export function windowList(run, open) {
  const body = h("tbody");
  const foot = h("div", { class: "table-foot" });
  const compare = h("button", { class: "compare", disabled: true, onclick: compareChecked }, "compare two windows");
  const title = h("h2", {}, "Windows");
  const element = h(
    "section",
    { class: "card windows" },
    h("div", { class: "card-head" }, title, compare),
    h(
      "div",
      { class: "table-box" },
      h(
        "table",
        { class: "data windows-table", "aria-label": "windows" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { class: "check", "aria-label": "compare" }),
            h("th", { class: "number" }, "step"),
            h("th", {}, "verdict"),
            h("th", { class: "number", title: "median, without the profiler where that is known" }, "step time"),
            h("th", { class: "number", title: "of the step, on the busiest device" }, "device busy"),
            h("th", { class: "number", title: "what the window took from the job" }, "cost"),
            h("th", { class: "notes" }, "notes"),
            h("th", { class: "number" }, "published"),
          ),
        ),
        body,
      ),
    ),
    foot,
  );
  let windows = [];
  let older = 0;
  let total = 0;
  let at = 0;
  const checked = [];

  async function refresh() {
    try {
      const page = await get("list", { run });
      const last = page.windows.at(-1)?.step ?? -1;
      windows = [...joined(page), ...windows.filter((one) => one.step < last)];
      total = page.total;
      older = total - windows.length;
      draw();
    } catch (error) {
      fill(foot, h("span", { class: "is-red" }, error.message));
    }
  }

  async function more() {
    const page = await get("list", { run, before: windows.at(-1).step });
    windows = [...windows, ...joined(page)];
    older = page.older;
    draw();
  }

  function draw() {
    title.textContent = `Windows, ${count(total)}`;
    fill(body, windows.map(row));
    fill(foot, older > 0 && h("button", { class: "more", onclick: more }, `show older windows (${count(older)} left)`));
    const names = checked.map((one) => count(one.step));
    compare.disabled = checked.length !== 2;
    compare.textContent = checked.length === 2 ? `compare step ${names[0]} with step ${names[1]}` : "compare two windows";
  }

  function row(one) {
    const box = h("input", { type: "checkbox", "aria-label": `compare step ${one.step}`, onchange: () => check(one) });
    box.checked = checked.some((other) => other.name === one.name);
    const click = (event) => {
      if (event.metaKey || event.ctrlKey || event.button) return;
      event.preventDefault();
      open(one.name);
    };
    const notes = [
      one.trigger && one.trigger !== "schedule" && one.trigger,
      one.partial && "cut short",
      one.lost_events > 0 && `${count(one.lost_events)} events lost`,
      one.label && !one.unprofiled && "traced step time",
      one.problem,
    ].filter(Boolean);
    return h(
      "tr",
      { onclick: (event) => event.target.closest("a, input") || open(one.name), class: "opens" },
      h("td", { class: "check" }, box),
      h("td", { class: "number" }, h("a", { href: link({ run, window: one.name }), target: "_parent", onclick: click }, count(one.step))),
      h("td", {}, one.label && verdict(one.label, one.confidence)),
      h("td", { class: "number" }, one.step_us != null && duration(one.step_us), h("span", { class: `change ${styleOf(one.change)}` }, textOf(one.change))),
      h("td", { class: "number" }, one.busy != null && share(one.busy)),
      h("td", { class: "number" }, one.cost_us != null && duration(one.cost_us)),
      h("td", { class: "notes muted", title: notes.join(", ") }, notes.join(", ")),
      h("td", { class: "number muted", title: new Date(1000 * one.recorded).toLocaleString() }, ago(one.recorded)),
    );
  }

  function check(one) {
    const place = checked.findIndex((other) => other.name === one.name);
    if (place >= 0) checked.splice(place, 1);
    else checked.push(one);
    if (checked.length > 2) checked.shift();
    checked.sort((a, b) => a.step - b.step);
    draw();
    body.querySelector(`[aria-label="compare step ${one.step}"]`)?.focus();
  }

  function compareChecked() {
    const [before, after] = checked;
    go({ run, window: after.name, before_run: run, before_window: before.name });
  }

  function step(by) {
    const rows = [...body.querySelectorAll("a")];
    const here = rows.indexOf(document.activeElement);
    at = here < 0 ? (by > 0 ? 0 : at) : Math.min(rows.length - 1, Math.max(0, here + by));
    rows[at]?.focus();
    rows[at]?.scrollIntoView({ block: "nearest" });
  }

  return { element, refresh, keys: { j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1) } };
}

// Each window with its change against the one before it, as the server judges it.
const joined = (page) => page.windows.map((one, place) => ({ ...one, change: page.changes[place] }));
