// TensorBoard imports this module into the tab's frame and calls render().

import { start } from "./app.js";
import { BASE } from "./api.js";
import { fetchPlotly } from "./charts.js";
import { h } from "./dom.js";
import { follow } from "./theme.js";

// TensorBoard's own policy lets styles and frames of other hosts in; this page needs none.
const POLICY = [
  "default-src 'self'",
  "connect-src 'self'",
  "frame-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data: blob:",
  "object-src 'none'",
  "form-action 'none'",
].join("; ");

export async function render() {
  document.documentElement.lang = "en";
  document.title = "Windows";
  document.head.append(h("meta", { "http-equiv": "Content-Security-Policy", content: POLICY }));
  const style = h("link", { rel: "stylesheet", href: new URL("static/style.css", BASE).toString() });
  await new Promise((resolve) => {
    style.onload = style.onerror = resolve;
    document.head.append(style);
  });
  fetchPlotly();
  follow();
  start(document.body);
}
