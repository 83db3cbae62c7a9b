// The Perfetto timeline of a window in a frame, opened at the spot that was asked for.

import { address, get } from "./api.js";
import { empty, h } from "./dom.js";
import { duration, size } from "./format.js";
import { go } from "./state.js";

export function timeline(data, state) {
  if (!data.files.length) {
    return { element: empty("The trace is gone", "profiler.keep has removed it; the findings of this window stay.") };
  }
  const file = h("select", { "aria-label": "trace" }, data.files.map((one) => h("option", { value: one.name }, `${one.name}, ${size(one.bytes)}`)));
  const where = h("span", { class: "muted where", "aria-live": "polite" });
  const frame = h("iframe", { class: "timeline", title: "timeline" });
  let shown = null;

  const to = (spot, at) => go({ run: state.run, window: state.window, part: "timeline", spot, at, file: spot ? "" : file.value });
  file.value = state.file || data.source;
  if (!file.value) file.selectedIndex = 0;
  file.addEventListener("change", () => to("", ""));
  const steps = (data.tables.steps?.rows || []).map((row) => row[0]).sort((a, b) => a - b);
  const element = h(
    "div",
    { class: "timeline-part" },
    h(
      "div",
      { class: "timeline-head" },
      file,
      h("button", { class: "quiet", onclick: () => to("", "") }, "whole window"),
      data.tables.gaps && h("button", { class: "quiet", onclick: () => to("gap", "0") }, "longest gap"),
      steps.slice(0, 8).map((step) => h("button", { class: "quiet", onclick: () => to("step", step) }, `step ${step}`)),
      where,
    ),
    frame,
  );

  async function move(now) {
    const wanted = { run: now.run || state.run, window: data.summary.name, file: now.file || "" };
    state = { ...state, ...now };
    let place = {};
    where.textContent = "";
    if (now.spot) {
      try {
        place = await get("spot", { ...wanted, kind: now.spot, value: now.at });
        where.textContent = `${now.spot} ${now.at}, ${duration(place.dur / 1000)}`;
        where.title = where.textContent;
      } catch (error) {
        where.textContent = error.message;
      }
    }
    file.value = place.file || now.file || data.source;
    if (!file.value) file.selectedIndex = 0;
    const { ts, dur, pid, tid } = place;
    const source = address("timeline/view.html", { ...wanted, file: file.value, ts, dur, pid, tid });
    if (source === shown) return;
    shown = source;
    // Without an entry in the history, which "back" would stop at.
    if (frame.contentWindow && frame.isConnected) frame.contentWindow.location.replace(source);
    else frame.src = source;
  }

  return { element, move };
}
