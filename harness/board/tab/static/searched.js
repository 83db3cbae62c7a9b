// A table with a search box and, where there are shapes, a switch to group by them; both stand in the address.

import { fill, h } from "./dom.js";
import { note } from "./state.js";
import { table } from "./table.js";

export function searched(label, plain, shaped, state, onSpot) {
  const box = h("div");
  const search = h("input", { type: "search", class: "search", placeholder: `find ${label} ( / )`, "aria-label": `find ${label}` });
  const byShape = h("input", { type: "checkbox", disabled: !shaped });
  search.value = state.q || "";
  byShape.checked = Boolean(shaped && state.shapes);
  let shown = null;

  function draw() {
    shown = table(byShape.checked ? shaped : plain, { search: search.value, label, onSpot });
    fill(box, shown.element);
  }

  search.addEventListener("input", () => {
    shown.search(search.value);
    note({ q: search.value });
  });
  byShape.addEventListener("change", () => {
    note({ shapes: byShape.checked ? "yes" : "" });
    draw();
  });
  draw();
  const shapes =
    label !== "kernels" &&
    h("label", { class: "check", title: shaped ? null : "the window was recorded without shapes (profiler.record_shapes)" }, byShape, " group by input shapes");
  return {
    element: h("section", { class: "card" }, h("div", { class: "card-head" }, search, shapes), box),
    // The search belongs to the part that is looked at.
    move: () => note({ q: search.value, shapes: byShape.checked ? "yes" : "" }),
  };
}
