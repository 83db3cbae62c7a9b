// The whole page: runs on the left, on the right a run, a window, or two windows side by side.

import { watch } from "./api.js";
import { compareView } from "./compare.js";
import { empty, fill, h } from "./dom.js";
import { listen } from "./keys.js";
import { runView } from "./run.js";
import { sidebar } from "./runs.js";
import { go, note, onChange, read } from "./state.js";
import { windowView } from "./window.js";

const NEWS_MS = 3000;

export function start(body) {
  const main = h("main", { tabindex: "-1" });
  const trouble = h("div", { class: "trouble", role: "alert", hidden: true });
  const news = watch("runs");
  let found = null;
  let view = null;

  const side = sidebar((run) => go({ run }));
  fill(body, h("div", { class: "app" }, side.element, main, trouble));
  fill(main, h("div", { class: "loading" }, "looking for runs …"));

  async function look() {
    if (found !== null && (document.hidden || document.documentElement.clientWidth === 0)) return;
    try {
      const changed = await news();
      trouble.hidden = true;
      if (changed === null) return;
      found = changed;
      side.show(found.runs, chosen()?.id);
      if (view === null || view.waits) show();
      else view.news?.(chosen());
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = error.message;
    }
  }

  // The run of the address; where it names none, the first with windows.
  function chosen() {
    const { run } = read();
    if (run) return found.runs.find((one) => one.id === run);
    return found.runs.find((one) => one.windows) || found.runs[0];
  }

  function show() {
    if (found === null) return;
    const run = chosen();
    if (run && !read().run) note({ run: run.id });
    const state = read();
    side.show(found.runs, run?.id);
    const next = build(state, run);
    if (view?.key === next.key && view.move) {
      view.move(state);
      return;
    }
    view?.close?.();
    view = next;
    fill(main, view.element);
    main.scrollTop = 0;
  }

  function build(state, run) {
    if (!run) return { key: "none", element: nothing(state, found), waits: true };
    if (state.window && state.before_window) return compareView(state, found.runs);
    if (state.window) return windowView({ ...state, run: run.id }, run);
    return runView({ ...state, run: run.id }, run);
  }

  onChange(show);
  listen(document, () => view);
  look();
  setInterval(look, NEWS_MS);
}

function nothing(state, found) {
  if (state.run) {
    return empty("This run is not here", `There is no run ${state.run} below ${found.logdirs.join(", ")}.`);
  }
  return empty(
    "No run yet",
    `Nothing below ${found.logdirs.join(", ") || "the logdir"} was written by harness train or harness.record.Profiler.`,
    "Start one: harness train. It appears here by itself.",
  );
}
