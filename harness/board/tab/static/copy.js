// "Copy link": the address of what is shown.

import { h } from "./dom.js";
import { link, read } from "./state.js";

export function copyLink(state = read) {
  const button = h("button", { class: "quiet copy", title: "copy the address of what you see", onclick: copy }, "copy link");
  async function copy() {
    const text = link(state());
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without permission for the clipboard, as over plain http from another host.
      const field = h("textarea", { class: "offscreen" });
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy link"), 1500);
  }
  return button;
}
