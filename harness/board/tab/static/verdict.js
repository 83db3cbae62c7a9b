// A verdict as a word in its colour.

import { h } from "./dom.js";
import { toneOf } from "./theme.js";

export function verdict(label, confidence = null) {
  const sure = confidence === null ? null : `confidence ${Math.round(100 * confidence)} %`;
  return h("span", { class: "verdict", title: sure, style: { "--verdict": toneOf(label).css } }, label);
}
