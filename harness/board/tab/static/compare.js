// Two windows side by side: what grew, what shrank, and what of it is more than noise.

import { get } from "./api.js";
import { copyLink } from "./copy.js";
import { empty, fill, h } from "./dom.js";
import { count, duration, share, size, stepOf } from "./format.js";
import { go, note } from "./state.js";
import { verdict } from "./verdict.js";

const TITLES = {
  operators: "Operators",
  kernels: "Kernels",
  phases: "Phases",
  device: "Device's time",
  idle: "Idle device",
  memory: "Memory",
};
const SHOWN = 25;
const DOUBTED_SHOWN = 10;

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
    const known = parts();
    if (!known.length) {
      fill(tabs);
      fill(body, empty("Nothing differs", "No operator, kernel, phase, reason to be idle or allocation differs."));
      return;
    }
    if (!known.includes(group)) group = data.largest;
    fill(tabs, known.map((name) => h("button", { role: "tab", "aria-selected": String(name === group), onclick: () => choice(name) }, TITLES[name], " ", tally(data.groups[name]))));
    const kind = group === "memory" ? { value: size, whole: "of the peak" } : { value: duration, whole: "of the step" };
    const of = (grew) => [data.groups[group], data.noise[group]].map((lines) => (lines || []).filter((line) => line.change > 0 === grew));
    fill(
      body,
      h("div", { class: "columns" }, half("What grew", ...of(true), kind, "is-red"), half("What shrank", ...of(false), kind, "is-green")),
      data.warnings.map((warning) => h("p", { class: "muted warning" }, `${warning[0].toUpperCase()}${warning.slice(1)}.`)),
    );
  }

  function choice(name) {
    group = name;
    note({ group });
    draw();
  }

  const parts = () => Object.keys(TITLES).filter((name) => data?.groups[name] || data?.noise[name]);
  const keys = { Escape: () => go({ run: state.run, window: state.window }), x: swap };
  [..."123456"].forEach((key, place) => (keys[key] = () => parts()[place] && choice(parts()[place])));
  return { key: `compare ${Object.values(pair()).join(" ")}`, element, keys, move() {} };
}

const label = (name) => (name === "newest" ? "newest window" : `step ${count(stepOf(name))}`);

// Of no interest to who cannot see it: the tab's name is its part's.
const tally = (changed) => h("span", { class: "muted", "aria-hidden": "true" }, count(changed?.length || 0));

function heads({ before, after, unprofiled, head }) {
  const line = (title, show, key) => {
    const [a, b] = [before[key], after[key]];
    if (a === null || b === null) return null;
    return h("tr", {}, h("th", {}, title), h("td", { class: "number" }, show(a)), h("td", { class: "number" }, show(b)), judged(head[key]));
  };
  return h(
    "table",
    { class: "plain", "aria-label": "the two sides" },
    h("thead", {}, h("tr", {}, h("th"), h("th", { class: "number" }, `step ${count(before.step)}`), h("th", { class: "number" }, `step ${count(after.step)}`), h("th", { class: "number" }, "change"))),
    h(
      "tbody",
      {},
      before.run !== after.run && h("tr", {}, h("th", {}, "run"), h("td", { class: "number" }, before.run), h("td", { class: "number" }, after.run), h("td")),
      h("tr", {}, h("th", {}, "verdict"), h("td", { class: "number" }, verdict(before.label, before.confidence)), h("td", { class: "number" }, verdict(after.label, after.confidence)), h("td")),
      line(unprofiled ? "step, without the profiler" : "step, profiled", duration, "step_us"),
      unprofiled && line("step, profiled", duration, "profiled_us"),
      line("device busy", share, "busy"),
      line("peak memory", size, "peak_bytes"),
    ),
  );
}

// What the comparison makes of a figure: the change, and whether it is one.
function judged(line) {
  if (!line) return h("td");
  const change = line.ratio === null || !line.change ? "" : percent(line.ratio - 1);
  const said = isChange(line) && change ? "" : line.said;
  return h("td", { class: `number ${isChange(line) ? (line.worse ? "is-red" : "is-green") : "is-dim"}`, title: interval(line) }, [change, said].filter(Boolean).join(", "));
}

function half(title, changed, doubted, kind, style) {
  return h(
    "section",
    { class: "card" },
    h("h3", {}, title),
    changed.length === 0 ? h("p", { class: "muted" }, doubted.length ? "nothing that is more than noise" : "nothing") : lines(title, changed, kind, style, SHOWN),
    doubted.length > 0 && [
      h("h4", { class: "muted" }, "Not more than noise, or too little"),
      lines(`${title}, not more than noise`, doubted, kind, "is-dim", DOUBTED_SHOWN),
    ],
  );
}

function lines(title, rows, { value, whole }, style, shown) {
  const most = Math.max(...rows.map((row) => Math.abs(row.change)), 0);
  return [
    h(
      "div",
      { class: "table-box" },
      h(
        "table",
        { class: "data changes-table", "aria-label": title },
        h("thead", {}, h("tr", {}, ["name", "before", "after", "change", whole].map((one, place) => h("th", { class: place ? "number" : "name" }, one)))),
        h(
          "tbody",
          {},
          rows.slice(0, shown).map((row) =>
            h(
              "tr",
              { title: row.name },
              h("td", { class: "name" }, row.name),
              h("td", { class: "number" }, value(row.before)),
              h("td", { class: "number" }, value(row.after)),
              h(
                "td",
                { class: `number share ${style}`, title: told(row) },
                h("span", { class: "meter", style: { width: `${(100 * Math.abs(row.change)) / most}%` } }),
                h("span", {}, signed(row.change, value)),
              ),
              h("td", { class: "number" }, row.share === null ? "" : signed(row.share, share)),
            ),
          ),
        ),
      ),
    ),
    rows.length > shown && h("p", { class: "muted" }, `and ${rows.length - shown} smaller ones`),
  ];
}

const isChange = (line) => line.outcome !== "same" && line.outcome !== "unknown";
const percent = (change) => `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)} %`;
const interval = (line) => (line.low === null ? null : `${percent(line.low)} to ${percent(line.high)}, with a confidence of 95 %`);
const told = (line) => [line.said, line.ratio !== null && `${line.ratio.toFixed(2)} times`, interval(line)].filter(Boolean).join("; ");
const signed = (value, show) => {
  const text = show(Math.abs(value));
  return text.startsWith("<") ? text : `${value > 0 ? "+" : "−"}${text}`;
};
