// Bars of parts that sum to a whole, with a legend that says each part's time and share.

import { h } from "./dom.js";
import { duration, share } from "./format.js";
import { toneOf } from "./theme.js";

const LEAST = 0.004;

export function bar({ title, parts }) {
  const colours = parts.map((part, place) => toneOf(part.name, place).css);
  return h(
    "div",
    { class: "bar-row" },
    h("div", { class: "bar-title" }, title),
    h(
      "div",
      { class: "bar", role: "img", "aria-label": `${title}: ${parts.map((p) => `${p.name} ${share(p.share)}`).join(", ")}` },
      parts.map((part, place) =>
        part.share < LEAST
          ? null
          : h("span", {
              style: { "flex-grow": String(part.share), background: colours[place] },
              title: `${part.name}: ${duration(part.us)}, ${share(part.share)}`,
            }),
      ),
    ),
    h(
      "ul",
      { class: "legend" },
      parts.map((part, place) =>
        h(
          "li",
          {},
          h("span", { class: "dot", style: { background: colours[place] } }),
          h("span", { class: "legend-name", title: part.name }, part.name),
          h("span", { class: "legend-value" }, `${duration(part.us)} · ${share(part.share)}`),
        ),
      ),
    ),
  );
}
