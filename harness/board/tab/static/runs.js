// The list of runs, newest first, each with its newest window.

import { fill, h } from "./dom.js";
import { count, duration, share } from "./format.js";
import { verdict } from "./verdict.js";
import { link } from "./state.js";

const TAIL = 18;

export function sidebar(onRun) {
  const list = h("ul", { class: "runs", role: "listbox", "aria-label": "runs" });
  const search = h("input", { type: "search", placeholder: "find a run", "aria-label": "find a run", class: "find-run" });
  const element = h("aside", { "aria-label": "runs" }, h("div", { class: "side-head" }, h("h2", {}, "Runs"), search), list);
  let rows = [];
  let selected = null;
  search.addEventListener("input", draw);

  function draw() {
    const wanted = search.value.toLowerCase();
    fill(list, rows.filter((row) => row.title.toLowerCase().includes(wanted)).map(item));
  }

  function item(row) {
    const newest = row.newest;
    const open = (event) => {
      if (event.metaKey || event.ctrlKey || event.button) return;
      event.preventDefault();
      onRun(row.id);
    };
    return h(
      "li",
      { role: "option", "aria-selected": String(row.id === selected) },
      h(
        "a",
        { href: link({ run: row.id }), target: "_parent", onclick: open, title: row.title },
        // Runs of a sweep differ at the end of their names.
        h("span", { class: "run-name" }, h("span", {}, row.title.slice(0, -TAIL)), h("span", {}, row.title.slice(-TAIL))),
        h(
          "span",
          { class: "run-line" },
          row.status && h("span", { class: `status is-${row.status}` }, row.status),
          h("span", {}, row.windows === 1 ? "1 window" : `${count(row.windows)} windows`),
          newest?.busy != null && h("span", { class: "end", title: "device busy, of the step" }, share(newest.busy)),
        ),
        h(
          "span",
          { class: "run-line" },
          newest?.label ? verdict(newest.label) : h("span", { class: "muted" }, newest ? "no findings" : "no window yet"),
          newest?.step_us != null && h("span", { class: "end", title: "step time" }, duration(newest.step_us)),
        ),
      ),
    );
  }

  return {
    element,
    show(found, id) {
      rows = found;
      selected = id;
      search.hidden = rows.length < 8;
      draw();
    },
  };
}
