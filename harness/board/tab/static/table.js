// A table that is sorted by its headings, searched, and shown a page at a time.

import { fill, h } from "./dom.js";
import { isNumber, show } from "./format.js";

const PAGE = 100;

// data: {columns: [{title, kind, help}], rows, sorted_by, left_out}; onSpot(spot) for columns of places in the timeline.
export function table(data, { search = "", label = "", onSpot = null } = {}) {
  let sorted = { column: data.sorted_by, down: true };
  let shown = PAGE;
  let wanted = search;
  const columns = data.columns.map((column, place) => ({ ...column, place })).filter((c) => c.kind !== "spot" || onSpot);
  const largest = Object.fromEntries(
    columns
      .filter((column) => column.kind === "share")
      .map((column) => [column.place, Math.max(...data.rows.map((row) => Math.abs(row[column.place] ?? 0)), 0)]),
  );
  const head = h("tr");
  const body = h("tbody");
  const foot = h("div", { class: "table-foot" });
  const element = h(
    "div",
    { class: "table-box" },
    h("table", { class: "data", "aria-label": label }, h("thead", {}, head), body),
    foot,
  );

  function found() {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = columns.filter((column) => column.kind === "name" || column.kind === "text");
    const rows = data.rows.filter((row) => {
      const text = texts.map((column) => row[column.place] ?? "").join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    return rows.sort((a, b) => (sorted.down ? -1 : 1) * compare(a[sorted.column], b[sorted.column]));
  }

  function draw() {
    fill(head, columns.map(heading));
    const rows = found();
    fill(body, rows.slice(0, shown).map((row) => h("tr", {}, columns.map((column) => cell(column, row[column.place])))));
    const left = rows.length - Math.min(shown, rows.length);
    fill(
      foot,
      rows.length === 0 && h("span", {}, wanted ? `nothing matches “${wanted}”` : "nothing"),
      left > 0 && h("button", { onclick: () => ((shown += 5 * PAGE), draw()) }, `show more (${left} rows left)`),
      data.left_out > 0 && h("span", {}, ` ${data.left_out} smaller rows are left out; harness report has them all`),
    );
  }

  function heading(column) {
    const here = sorted.column === column.place;
    const sort = here ? (sorted.down ? "descending" : "ascending") : "none";
    if (column.kind === "spot") return h("th", { class: "spot", "aria-label": "timeline" });
    const by = () => {
      sorted = { column: column.place, down: here ? !sorted.down : isNumber(column.kind) };
      draw();
      head.children[columns.indexOf(column)].querySelector("button").focus();
    };
    return h(
      "th",
      { "aria-sort": sort, class: isNumber(column.kind) ? `number ${column.kind}` : column.kind, title: column.help || null },
      h("button", { class: "heading", onclick: by }, h("span", {}, column.title), h("span", { class: "arrow" }, here ? (sorted.down ? "▼" : "▲") : "")),
    );
  }

  function cell(column, value) {
    if (column.kind === "spot") {
      const go = () => onSpot(value);
      return h("td", { class: "spot" }, h("button", { class: "quiet", title: column.help, onclick: go }, "timeline"));
    }
    const text = show(column.kind, value);
    if (column.kind === "share") {
      const width = largest[column.place] ? (100 * Math.abs(value ?? 0)) / largest[column.place] : 0;
      return h("td", { class: "number share" }, h("span", { class: "meter", style: { width: `${width}%` } }), h("span", {}, text));
    }
    if (isNumber(column.kind)) return h("td", { class: `number ${column.kind}` }, text);
    return h("td", { class: column.kind, title: text.length > 24 ? text : null }, text);
  }

  draw();
  return {
    element,
    search(text) {
      wanted = text;
      shown = PAGE;
      draw();
    },
  };
}

function compare(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
