// The keyboard: what a key does is for the view that is shown to say.

import { h } from "./dom.js";

const HELP = [
  ["j, k, ↓, ↑", "the next and the previous window of the list; Enter opens it"],
  ["[, ]", "the window before, the next window"],
  ["1 … 7", "the parts of a window"],
  ["/", "search"],
  ["c", "compare with the window before"],
  ["x", "swap the two sides of a comparison"],
  ["Esc", "back"],
  ["?", "this help"],
];

export function listen(target, current) {
  target.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    if (field && field.type !== "checkbox") {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") help();
    else if (event.key === "/") document.querySelector("input.search, input.find-run:not([hidden])")?.focus();
    else if (current()?.keys?.[event.key]) current().keys[event.key]();
    else return;
    event.preventDefault();
  });
}

function help() {
  const close = () => dialog.remove();
  const dialog = h(
    "dialog",
    { "aria-label": "keys" },
    h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, HELP.map(([key, meaning]) => [h("dt", {}, key), h("dd", {}, meaning)])),
    h("button", { onclick: close }, "close"),
  );
  dialog.addEventListener("close", close);
  document.body.append(dialog);
  dialog.showModal();
}
