// The ranks of one window side by side, as the findings across ranks tell; a trace that they do not tell of is analyzed
// when it is asked for.

import { get } from "./api.js";
import { sections } from "./document.js";
import { fill, h } from "./dom.js";
import { duration, share, size } from "./format.js";
import { verdict } from "./verdict.js";

const COLUMNS = [
  ["rank", (rank) => rank.rank],
  ["verdict", (rank) => verdict(rank.label, rank.confidence)],
  ["step, profiled", (rank) => rank.step_us != null && duration(rank.step_us)],
  ["host", (rank) => rank.host_us != null && duration(rank.host_us)],
  ["device busy", (rank) => rank.busy != null && share(rank.busy)],
  ["compute", (rank) => rank.compute_us != null && duration(rank.compute_us)],
  ["exposed communication", (rank) => rank.exposed_communication_us != null && duration(rank.exposed_communication_us)],
  ["exposed copies", (rank) => rank.exposed_memcpy_us != null && duration(rank.exposed_memcpy_us)],
  ["idle", (rank) => rank.idle_us != null && `${duration(rank.idle_us)}, most: ${rank.idle_most}`],
  ["peak memory", (rank) => rank.peak_bytes != null && size(rank.peak_bytes)],
];

export function ranks(data) {
  return [
    data.straggler && h("section", { class: "card straggler" }, h("h3", {}, "Who is late"), h("p", { class: "is-red" }, data.straggler)),
    sections(data.sections.ranks),
  ];
}

export function untold(data, state) {
  const readers = data.untold.map((file) => reader(file, state));
  const all = h("button", { class: "quiet", onclick: () => readAll() }, "analyze all");
  // What is in the window's own findings takes no analysis.
  readers.find((one) => one.file === data.source)?.read();
  return h(
    "section",
    { class: "card ranks" },
    h("div", { class: "card-head" }, h("h3", {}, "Traces that the findings across ranks do not tell of"), data.untold.length > 2 && all),
    h(
      "div",
      { class: "table-box" },
      h(
        "table",
        { class: "plain", "aria-label": "ranks" },
        h("thead", {}, h("tr", {}, COLUMNS.map(([title]) => h("th", { class: title === "verdict" ? "" : "number" }, title)))),
        h("tbody", {}, readers.map((one) => one.row)),
      ),
    ),
  );

  // One after the other: each takes the server's memory.
  async function readAll() {
    all.disabled = true;
    for (const one of readers) await one.read();
  }
}

function reader(file, state) {
  const row = h("tr", { title: file });
  const wide = (attributes, ...text) => fill(row, h("td", { colspan: COLUMNS.length, ...attributes }, text));
  let asked = false;
  wide({ class: "muted" }, h("button", { class: "quiet", onclick: read }, "analyze"), ` ${file}`);
  return { file, row, read };

  async function read() {
    if (asked) return;
    asked = true;
    wide({ class: "muted" }, `${file} …`);
    try {
      const rank = await get("rank", { run: state.run, window: state.window, file });
      fill(row, COLUMNS.map(([title, show]) => h("td", { class: title === "verdict" ? "" : "number" }, show(rank))));
    } catch (error) {
      wide({ class: "is-red" }, `${file}: ${error.message}`);
    }
  }
}
