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
      note.textContent = shown.length ? "each allocation and each release" : "no allocation was recorded";
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
  // A level that hardly moves is looked at closely; else the axis begins at nothing.
  const close = Math.min(...curve.allocated_bytes) > 0.5 * most;
  const reserved = Math.max(...curve.reserved_bytes);
  draw(chart, () => ({
    traces: [
      {
        type: "scatter",
        mode: "lines",
        x: curve.time_us.map((us) => us / 1000),
        y: curve.allocated_bytes.map((bytes) => bytes / 1024 ** power),
        text: curve.allocated_bytes.map(size),
        hovertemplate: "%{text}",
        name: "allocated",
        line: { shape: "hv", width: 1.3, color: tone("series-0").now() },
        fill: close ? "none" : "tozeroy",
      },
    ],
    layout: {
      xaxis: { ticksuffix: " ms" },
      yaxis: { rangemode: close ? "normal" : "tozero", ticksuffix: ` ${unit}` },
      margin: { l: 80, r: 10, t: 8, b: 26 },
    },
  }));
  const beside = reserved > 0 ? `; the allocator has reserved up to ${size(reserved)}` : "";
  return h("figure", {}, h("figcaption", {}, h("span", { class: "chart-title" }, where), h("span", { class: "muted" }, ` allocated, up to ${size(most)}${beside}`)), chart);
}
