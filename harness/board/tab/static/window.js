// A window: its head, and the part of it that is looked at.

import { address, get } from "./api.js";
import { copyLink } from "./copy.js";
import { empty, fill, h } from "./dom.js";
import { count, show, size, stepOf } from "./format.js";
import { PARTS } from "./parts.js";
import { go, link } from "./state.js";
import { verdict } from "./verdict.js";

export function windowView(state, run) {
  const head = h("header", {});
  const figures = h("div", { class: "figures" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "part", role: "tabpanel" });
  const element = h("div", { class: "window" }, head, figures, tabs, body);
  let data = null;
  let part = null;
  let newest = run.newest?.name;
  // The trees of parts are kept, so that a look at another one loses neither sorting nor place.
  const built = new Map();

  fill(figures, h("div", { class: "loading" }, "reading the window …"));
  get("window", { run: state.run, window: state.window })
    .then((found) => {
      data = found;
      drawHead();
      fill(figures, data.figures.map(figure));
      move(state);
    })
    .catch((error) => {
      drawHead();
      fill(figures);
      fill(body, empty("This window cannot be shown", error.message));
    });

  function drawHead() {
    const step = data ? data.summary.step : stepOf(state.window);
    const other = (name, text, key) =>
      h("button", { class: "quiet", disabled: !name, title: `${text} (${key})`, onclick: () => to(name) }, key === "[" ? "◀" : "▶");
    const isNewest = !data || data.summary.name === newest;
    fill(
      head,
      h("a", { href: link({ run: state.run }), target: "_parent", class: "back", title: "back to the run (Esc)", onclick: back }, "◀ ", run.title),
      h("h1", {}, Number.isFinite(step) ? `step ${count(step)}` : state.window),
      data?.summary.label && verdict(data.summary.label, data.summary.confidence),
      h("span", { class: "spacer" }),
      h("button", { class: "quiet newest", disabled: isNewest, onclick: () => to(newest), title: "the newest window of this run" }, "newest"),
      other(data?.previous, "the window before", "["),
      other(data?.next, "the next window", "]"),
      h(
        "button",
        { class: "quiet", disabled: !data?.previous, title: "what has changed since the window before", onclick: compareWithPrevious },
        "compare",
      ),
      downloads(),
      copyLink(),
    );
  }

  function downloads() {
    if (!data?.files.length) return h("button", { class: "quiet", disabled: true, title: "profiler.keep has removed the trace" }, "no trace");
    const item = (file, text) =>
      h(
        "a",
        { class: "quiet button", download: file.name, title: `${file.name}, ${size(file.bytes)}`, href: address("trace", { run: state.run, window: data.summary.name, file: file.name }) },
        text,
      );
    if (data.files.length === 1) return item(data.files[0], `trace, ${size(data.files[0].bytes)}`);
    return h("details", { class: "menu" }, h("summary", { class: "quiet button" }, `${data.files.length} traces`), h("div", {}, data.files.map((file) => item(file, file.name))));
  }

  const to = (name) => name && go({ run: state.run, window: name, part: part?.id });
  const compareWithPrevious = () =>
    data?.previous && go({ run: state.run, window: data.summary.name, before_run: state.run, before_window: data.previous });

  function back(event) {
    if (event && (event.metaKey || event.ctrlKey || event.button)) return;
    event?.preventDefault();
    go({ run: state.run });
  }

  function move(now) {
    state = now.run ? now : { ...now, run: state.run };
    if (!data) return;
    const known = PARTS.filter((one) => one.has(data));
    part = known.find((one) => one.id === state.part) || known[0];
    fill(tabs, known.map((one, place) => tab(one, place)));
    if (!built.has(part.id)) built.set(part.id, part.build(data, state, jump));
    const shown = built.get(part.id);
    fill(body, shown.element);
    shown.move?.(state);
  }

  function tab(one, place) {
    return h(
      "button",
      { role: "tab", "aria-selected": String(one === part), title: `${one.title} (${place + 1})`, onclick: () => choose(one) },
      one.title,
    );
  }

  const choose = (one) => go({ run: state.run, window: state.window, part: one.id });
  // From a gap, a step or a kernel to its place in the timeline.
  const jump = (spot) => go({ run: state.run, window: state.window, part: "timeline", ...spot });

  const keys = { "[": () => to(data?.previous), "]": () => to(data?.next), Escape: () => back(null), c: compareWithPrevious };
  PARTS.forEach((_, place) => {
    keys[String(place + 1)] = () => {
      const known = data ? PARTS.filter((one) => one.has(data)) : [];
      if (known[place]) choose(known[place]);
    };
  });

  return {
    key: `window ${state.run} ${state.window}`,
    element,
    move,
    keys,
    news(now) {
      if (!now || now.newest?.name === newest) return;
      newest = now.newest?.name;
      // The next window may be there by now.
      get("window", { run: state.run, window: state.window }).then((found) => {
        if (data) data.next = found.next;
        drawHead();
      }).catch(() => {});
    },
  };
}

function figure(one) {
  return h("div", { class: "figure", title: one.note }, h("span", { class: "figure-name" }, one.name), h("span", { class: "figure-value" }, show(one.kind, one.value)), h("span", { class: "figure-note" }, one.note));
}
