// Two windows side by side: what grew, what shrank.

import { get } from "./api.js";
import { copyLink } from "./copy.js";
import { empty, fill, h } from "./dom.js";
import { count, duration, share, size, stepOf } from "./format.js";
import { go, note } from "./state.js";
import { verdict } from "./verdict.js";

const TITLES = { operators: "Operators", kernels: "Kernels", phases: "Phases", idle: "Idle device", memory: "Memory" };
const SHOWN = 25;

export function compareView(state, runs) {
  const sides = { before: picker("before", "before_run", "before_window"), after: picker("after", "run", "window") };
  const figures = h("div", { class: "sides" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "part" });
  let data = null;
  let group = state.group;

  const element = h(
    "div",
    { class: "compare-view" },
    h(
      "header",
      {},
      h("h1", {}, "Compare"),
      sides.before.element,
      h("button", { class: "quiet", title: "swap the two", onclick: swap }, "⇄"),
      sides.after.element,
      h("span", { class: "spacer" }),
      copyLink(),
    ),
    figures,
    tabs,
    body,
  );
  fill(body, h("div", { class: "loading" }, "comparing …"));
  get("compare", { run: state.run, window: state.window, before_run: state.before_run, before_window: state.before_window })
    .then((found) => {
      data = found;
      fill(figures, heads(data));
      draw();
    })
    .catch((error) => fill(body, empty("These two cannot be compared", error.message)));

  function picker(title, runKey, windowKey) {
    const run = h("select", { "aria-label": `${title}: run` }, runs.filter((one) => one.windows).map((one) => h("option", { value: one.id }, one.title)));
    const window = h("select", { "aria-label": `${title}: window` }, h("option", { value: state[windowKey] }, label(state[windowKey])));
    run.value = state[runKey];
    run.addEventListener("change", () => choose({ [runKey]: run.value, [windowKey]: "newest" }));
    window.addEventListener("change", () => choose({ [windowKey]: window.value }));
    get("life", { run: state[runKey] })
      .then((life) => {
        const options = life.windows.map((name, place) => h("option", { value: name }, `step ${count(life.steps[place])}, ${life.labels[place]}`));
        fill(window, h("option", { value: "newest" }, "newest window"), options.reverse());
        window.value = state[windowKey];
      })
      .catch(() => {});
    return { element: h("span", { class: "picker" }, h("span", { class: "muted" }, title), run, window) };
  }

  const pair = () => ({ run: state.run, window: state.window, before_run: state.before_run, before_window: state.before_window });
  const choose = (changes) => go({ ...pair(), ...changes, group });
  function swap() {
    go({ run: state.before_run, window: state.before_window, before_run: state.run, before_window: state.window, group });
  }

  function draw() {
    const known = Object.keys(data.groups);
    if (!known.length) {
      fill(tabs);
      fill(body, empty("Nothing differs", "No operator, kernel, phase or reason differs by a thousandth of the step."));
      return;
    }
    if (!known.includes(group)) group = data.largest;
    fill(tabs, known.map((name) => h("button", { role: "tab", "aria-selected": String(name === group), onclick: () => choice(name) }, TITLES[name])));
    const rows = data.groups[group];
    const value = group === "memory" ? size : duration;
    const whole = group === "memory" ? "of the peak" : "of the step";
    fill(
      body,
      h(
        "div",
        { class: "columns" },
        half("What grew", rows.filter((row) => row.change > 0), value, "is-red", whole),
        half("What shrank", rows.filter((row) => row.change < 0), value, "is-green", whole),
      ),
    );
  }

  function choice(name) {
    group = name;
    note({ group });
    draw();
  }

  const names = () => Object.keys(data?.groups || {});
  const keys = { Escape: () => go({ run: state.run, window: state.window }), x: swap };
  [..."12345"].forEach((key, place) => (keys[key] = () => names()[place] && choice(names()[place])));
  return { key: `compare ${Object.values(pair()).join(" ")}`, element, keys, move() {} };
}

const label = (name) => (name === "newest" ? "newest window" : `step ${count(stepOf(name))}`);

function heads({ before, after, unprofiled }) {
  const line = (title, show, key) => {
    const [a, b] = [before[key], after[key]];
    return a === null || b === null ? null : h("tr", {}, h("th", {}, title), h("td", { class: "number" }, show(a)), h("td", { class: "number" }, show(b)));
  };
  return h(
    "table",
    { class: "plain", "aria-label": "the two sides" },
    h("thead", {}, h("tr", {}, h("th"), h("th", { class: "number" }, `step ${count(before.step)}`), h("th", { class: "number" }, `step ${count(after.step)}`))),
    h(
      "tbody",
      {},
      before.run !== after.run && h("tr", {}, h("th", {}, "run"), h("td", { class: "number" }, before.run), h("td", { class: "number" }, after.run)),
      h("tr", {}, h("th", {}, "verdict"), h("td", { class: "number" }, verdict(before.label, before.confidence)), h("td", { class: "number" }, verdict(after.label, after.confidence))),
      line(unprofiled ? "step, without the profiler" : "step, profiled", duration, "step_us"),
      unprofiled && line("step, profiled", duration, "profiled_us"),
      line("device busy", share, "busy"),
      line("peak memory", size, "peak_bytes"),
    ),
  );
}

function half(title, rows, value, style, whole) {
  const most = Math.max(...rows.map((row) => Math.abs(row.change)), 0);
  return h(
    "section",
    { class: "card" },
    h("h3", {}, title),
    rows.length === 0
      ? h("p", { class: "muted" }, "nothing")
      : h(
          "div",
          { class: "table-box" },
          h(
            "table",
            { class: "data changes-table", "aria-label": title },
            h("thead", {}, h("tr", {}, ["name", "before", "after", "change", whole].map((one, place) => h("th", { class: place ? "number" : "name" }, one)))),
            h(
              "tbody",
              {},
              rows.slice(0, SHOWN).map((row) =>
                h(
                  "tr",
                  { title: row.name },
                  h("td", { class: "name" }, row.name),
                  h("td", { class: "number" }, value(row.before)),
                  h("td", { class: "number" }, value(row.after)),
                  h(
                    "td",
                    { class: `number share ${style}`, title: row.ratio === null ? "was not there" : `${row.ratio.toFixed(2)} times` },
                    h("span", { class: "meter", style: { width: `${(100 * Math.abs(row.change)) / most}%` } }),
                    h("span", {}, signed(row.change, value)),
                  ),
                  h("td", { class: "number" }, row.share === null ? "" : signed(row.share, share)),
                ),
              ),
            ),
          ),
        ),
    rows.length > SHOWN && h("p", { class: "muted" }, `and ${rows.length - SHOWN} smaller changes`),
  );
}

const signed = (value, show) => `${value > 0 ? "+" : "−"}${show(Math.abs(value))}`;
