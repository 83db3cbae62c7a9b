// A run: its life in curves, and its windows.

import { empty, fill, h } from "./dom.js";
import { copyLink } from "./copy.js";
import { count } from "./format.js";
import { lifeCharts } from "./life.js";
import { windowList } from "./list.js";
import { go } from "./state.js";

export function runView(state, run) {
  const open = (name) => go({ run: run.id, window: name });
  const charts = lifeCharts(run.id, open);
  const list = windowList(run.id, open);
  const line = h("p", { class: "run-facts" });
  const body = h("div", { class: "run-body" });
  let windows = -1;

  function news(now) {
    if (!now) return;
    fill(line, facts(now));
    if (now.windows === windows && now.newest?.name === news.newest) return;
    windows = now.windows;
    news.newest = now.newest?.name;
    if (!windows) {
      fill(body, noWindow(now));
      return;
    }
    if (!list.element.isConnected) fill(body, charts.element, list.element);
    charts.refresh(list.refresh());
  }

  news(run);
  return {
    key: `run ${run.id}`,
    element: h(
      "div",
      { class: "run" },
      h("header", {}, h("h1", { title: run.title }, run.title), copyLink(() => ({ run: run.id }))),
      line,
      body,
    ),
    news,
    move() {},
    keys: list.keys,
    close: charts.close,
  };
}

function facts(run) {
  return [
    run.status && h("span", { class: `status is-${run.status}` }, run.status),
    run.step !== null && h("span", {}, `step ${count(run.step)} of ${count(run.max_steps)}`),
    run.device && h("span", {}, run.world_size > 1 ? `${run.world_size} × ${run.device}` : run.device),
    run.error && h("span", { class: "is-red", title: run.error }, run.error),
  ];
}

function noWindow(run) {
  if (run.status === "running" && run.first_window !== null) {
    return empty("No window yet", `The first comes at step ${count(run.first_window)}; the job is at step ${count(run.step)}.`);
  }
  if (run.first_window !== null) {
    return empty(
      "No window yet",
      `The first comes at step ${count(run.first_window)}, and the run ended at step ${count(run.step)}.`,
      "A shorter profiler.wait records earlier; harness trigger RUN records at once while a job runs.",
    );
  }
  return empty("No window yet", "The run was started without a profiler schedule, as with profiler=none.", "harness trigger RUN records a window of a running job.");
}
