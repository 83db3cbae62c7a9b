// The report's document: sections of tables, facts, lists and paragraphs, as the terminal shows them.

import { h } from "./dom.js";

export const sections = (found) => found.map(section);

export function section({ title, blocks }) {
  return h("section", { class: "card" }, h("h3", { class: styleOf(title) }, textOf(title)), blocks.map(block));
}

export function block(one) {
  if (one.kind === "paragraph") return h("p", { class: styleOf(one) }, one.text);
  if (one.kind === "facts") {
    return h("dl", { class: "facts" }, one.items.map(([term, sentence]) => [h("dt", {}, term), h("dd", {}, sentence)]));
  }
  if (one.kind === "numbered") {
    return h("ol", { class: "advice" }, one.items.map(([what, why]) => h("li", {}, h("b", {}, what), h("span", {}, why))));
  }
  const kept = one.columns.map((_, place) => place).filter((place) => !one.rows.every((row) => isBar(textOf(row[place]))));
  return h(
    "div",
    { class: "table-box" },
    h(
      "table",
      { class: "plain" },
      h("thead", {}, h("tr", {}, kept.map((place) => h("th", { class: one.columns[place].right ? "number" : "" }, one.columns[place].title)))),
      h("tbody", {}, one.rows.map((row) => h("tr", {}, kept.map((place) => cell(one.columns[place], row[place]))))),
    ),
  );
}

function cell(column, value) {
  const kind = column.right ? "number" : column.code ? "name" : column.prose ? "prose" : "text";
  const text = textOf(value);
  return h("td", { class: `${kind} ${styleOf(value)}`, title: column.code ? text : null }, text);
}

export const textOf = (value) => (typeof value === "string" ? value : value.text);

// Rich's colours, as far as they mean something here.
export function styleOf(value) {
  const style = typeof value === "string" ? "" : value.style || "";
  return ["red", "green", "yellow", "dim"].filter((name) => style.includes(name)).map((name) => `is-${name}`).join(" ");
}

// Bars of block characters are for terminals.
const isBar = (text) => /^[█▏▎▍▌▋▊▉]*$/.test(text);
