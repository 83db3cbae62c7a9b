// The ranks of one window side by side; each trace is read when its turn comes.

import { get } from "./api.js";
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

export function ranks(data, state) {
  const rows = data.files.map((file) => h("tr", {}, h("td", { colspan: COLUMNS.length, class: "muted" }, `${file.name} …`)));
  const element = h(
    "section",
    { class: "card ranks" },
    h("h3", {}, "Ranks side by side"),
    h(
      "div",
      { class: "table-box" },
      h("table", { class: "plain", "aria-label": "ranks" }, h("thead", {}, h("tr", {}, COLUMNS.map(([title]) => h("th", { class: title === "verdict" ? "" : "number" }, title)))), h("tbody", {}, rows)),
    ),
  );
  read();
  return element;

  async function read() {
    for (const [place, file] of data.files.entries()) {
      try {
        const rank = await get("rank", { run: state.run, window: state.window, file: file.name });
        rows[place].title = rank.file;
        fill(rows[place], COLUMNS.map(([title, show]) => h("td", { class: title === "verdict" ? "" : "number" }, show(rank))));
      } catch (error) {
        fill(rows[place], h("td", { colspan: COLUMNS.length, class: "is-red" }, `${file.name}: ${error.message}`));
      }
    }
  }
}
