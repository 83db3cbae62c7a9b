// The parts of a window's page. Each is built once; `move` tells it that the address has changed.

import { bar } from "./bars.js";
import { block, sections } from "./document.js";
import { empty, h } from "./dom.js";
import { memoryChart } from "./memory.js";
import { ranks, untold } from "./ranks.js";
import { searched } from "./searched.js";
import { table } from "./table.js";
import { timeline } from "./timeline.js";

export const PARTS = [
  { id: "overview", title: "Overview", has: () => true, build: overview },
  { id: "operators", title: "Operators", has: (data) => data.tables.operators, build: operators },
  { id: "kernels", title: "Kernels", has: (data) => data.tables.kernels, build: kernels },
  { id: "memory", title: "Memory", has: () => true, build: memory },
  { id: "phases", title: "Phases", has: () => true, build: phases },
  { id: "devices", title: "Devices and ranks", has: () => true, build: devices },
  { id: "timeline", title: "Timeline", has: () => true, build: timeline },
];

function overview(data, state, jump) {
  const [finding] = data.sections.verdict;
  const [meaning, ...rest] = finding.blocks;
  const spots = data.files.length ? jump : null;
  return {
    element: h(
      "div",
      {},
      h(
        "section",
        { class: "card finding" },
        h("h3", {}, "What bounds the step"),
        h("p", { class: "meaning" }, meaning.text),
        h("div", { class: "columns" }, rest.map((one) => h("div", {}, one.kind === "numbered" && h("h4", {}, "What to do"), block(one)))),
      ),
      h("section", { class: "card" }, h("h3", {}, "Where the time went"), data.bars.length ? data.bars.map(bar) : h("p", {}, "The trace does not tell.")),
      sections(data.sections.idle),
      data.tables.gaps && card("The longest gaps", table(data.tables.gaps, { label: "gaps", onSpot: spots })),
      data.tables.steps && card("Steps", table(data.tables.steps, { label: "steps", onSpot: spots })),
      sections(data.sections.measured),
      sections(data.sections.trace),
    ),
  };
}

const card = (title, one) => h("section", { class: "card" }, h("h3", {}, title), one.element);

function operators(data, state, jump) {
  const { operators: plain, operators_by_shape: shaped } = data.tables;
  return searched("operators", plain, shaped, state, data.files.length ? jump : null);
}

function kernels(data, state, jump) {
  return searched("kernels", data.tables.kernels, null, state, data.files.length ? jump : null);
}

function memory(data, state) {
  if (!data.tables.memory) {
    return {
      element: empty(
        "No memory in this window",
        "It was recorded without profiler.profile_memory. harness trigger RUN --memory records a window with it.",
      ),
    };
  }
  const rows = searched("memory", data.tables.memory, data.tables.memory_by_shape, state, null);
  return { element: h("div", {}, sections(data.sections.memory), memoryChart(data, state), rows.element), move: rows.move };
}

function phases(data) {
  const host = data.bars.filter((one) => one.title === "host");
  const found = sections(data.sections.phases);
  if (!found.length) return { element: empty("No named spans", "Name the parts of a step with harness.record's span().") };
  return { element: h("div", {}, host.length > 0 && h("section", { class: "card" }, h("h3", {}, "The host's step by phase"), host.map(bar)), found) };
}

function devices(data, state) {
  const found = sections(data.sections.devices);
  const gpus = data.bars.filter((one) => one.title !== "host");
  return {
    element: h(
      "div",
      {},
      gpus.length > 0
        ? h("section", { class: "card" }, h("h3", {}, "Devices side by side"), gpus.map(bar))
        : h("section", { class: "card" }, h("h3", {}, "Devices"), h("p", {}, "No device was in use: the step is the host's own work.")),
      ranks(data),
      data.untold.length > 0 && untold(data, state),
      found,
    ),
  };
}
