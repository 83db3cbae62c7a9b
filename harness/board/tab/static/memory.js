// Memory in the course of a window, from the trace's allocator events.

import { get } from "./api.js";
import { draw } from "./charts.js";
import { fill, h } from "./dom.js";
import { size } from "./format.js";
import { tone } from "./theme.js";

export function memoryChart(data, state) {
  const note = h("span", { class: "muted" }, "reading the trace …");
  const charts = h("div", { class: "memory-charts" }, h("div", { class: "chart" }));
  const element = h("section", { class: "card" }, h("div", { class: "card-head" }, h("h3", {}, "Memory over the window"), note), charts);
  if (!data.files.length) {
    note.textContent = "the trace, which profiler.keep has removed, would tell";
    return element;
  }
  get("memory", { run: state.run, window: state.window })
    .then((curves) => {
      const worth = curves.filter((curve) => curve.device_type === "device");
      const shown = worth.length ? worth : curves;
      note.textContent = shown.length ? "allocated, and reserved by the allocator" : "no allocation was recorded";
      fill(charts, shown.map((curve) => one(curve)));
    })
    .catch((error) => (note.textContent = error.message));
  return element;
}

function one(curve) {
  const chart = h("div", { class: "chart" });
  const where = curve.device_type === "cpu" ? "CPU" : `GPU ${curve.index}`;
  const most = Math.max(...curve.allocated_bytes);
  const [power, unit] = most >= 1024 ** 3 ? [3, "GiB"] : most >= 1024 ** 2 ? [2, "MiB"] : [1, "KiB"];
  const trace = (key, name, drawn, fillTo) => ({
    type: "scatter",
    mode: "lines",
    x: curve.time_us.map((us) => us / 1000),
    y: curve[key].map((bytes) => bytes / 1024 ** power),
    text: curve[key].map(size),
    hovertemplate: "%{text}",
    name,
    line: { shape: "hv", width: 1.4, color: drawn.now() },
    fill: fillTo,
  });
  draw(chart, () => ({
    traces: [
      ...(curve.reserved_bytes.some((bytes) => bytes > 0) ? [trace("reserved_bytes", "reserved", tone("muted"), "none")] : []),
      trace("allocated_bytes", "allocated", tone("series-0"), "tozeroy"),
    ],
    layout: { xaxis: { ticksuffix: " ms" }, yaxis: { rangemode: "tozero", ticksuffix: ` ${unit}` }, margin: { l: 72, r: 10, t: 8, b: 26 } },
  }));
  return h("figure", {}, h("figcaption", {}, h("span", { class: "chart-title" }, where)), chart);
}
