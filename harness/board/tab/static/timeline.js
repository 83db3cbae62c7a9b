// The Perfetto timeline of a window in a frame, opened at the spot that was asked for.

import { address } from "./api.js";
import { empty, h } from "./dom.js";
import { duration, size } from "./format.js";
import { go } from "./state.js";

const SPOTS = ["step", "kernel", "operator", "start_us", "duration_us"];

export function timeline(data, state) {
  if (!data.files.length) {
    return { element: empty("The trace is gone", "profiler.keep has removed it; the findings of this window stay.") };
  }
  const file = h("select", { "aria-label": "trace" }, data.files.map((one) => h("option", { value: one.name }, `${one.name}, ${size(one.bytes)}`)));
  const where = h("span", { class: "muted where", "aria-live": "polite" });
  const frame = h("iframe", { class: "timeline", title: "timeline" });
  let shown = null;
  let spot = {};

  const to = (changes) => go({ run: state.run, window: state.window, part: "timeline", file: file.value, ...changes });
  file.addEventListener("change", () => to({}));
  const spotsOf = (table) => (table ? table.rows.map((row) => row[table.columns.findIndex((one) => one.kind === "spot")]) : []);
  const [gap] = spotsOf(data.tables.gaps);
  const steps = spotsOf(data.tables.steps).sort((a, b) => a.step - b.step);
  const button = (text, changes) => h("button", { class: "quiet", onclick: () => to(changes) }, text);
  const element = h(
    "div",
    { class: "timeline-part" },
    h(
      "div",
      { class: "timeline-head" },
      file,
      button("whole window", {}),
      gap && button("longest gap", gap),
      steps.slice(0, 8).map((one) => button(`step ${one.step}`, one)),
      where,
    ),
    frame,
  );

  function move(now) {
    state = { ...state, ...now };
    spot = Object.fromEntries(SPOTS.filter((name) => now[name]).map((name) => [name, now[name]]));
    file.value = now.file || data.source;
    if (!file.value) file.selectedIndex = 0;
    where.textContent = where.title = words(spot);
    open();
  }

  function open() {
    const trace = address("timeline/view.html", { run: state.run, window: data.summary.name, file: file.value });
    // What stands behind the # only moves the view: the trace is loaded once.
    const source = `${trace}#${new URLSearchParams(spot)}`;
    if (source === shown) return;
    shown = source;
    // Without an entry in the history, at which "back" would stop.
    if (frame.contentWindow && frame.isConnected) frame.contentWindow.location.replace(source);
    else frame.src = source;
  }

  return { element, move };
}

function words({ step, kernel, operator, start_us, duration_us }) {
  if (step) return `step ${step}`;
  if (kernel || operator) return `the longest call of ${kernel || operator}`;
  return start_us ? `a gap of ${duration(Number(duration_us))} at ${duration(Number(start_us))}` : "";
}
