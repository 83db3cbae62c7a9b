/** Spans in layers, one below the other. */

import { Plot, amount, axis, short, wrapped } from "./plot.js";

export class Timeline extends Plot {
  draw(table, options) {
    const column = (name) => table.columns.findIndex((one) => one.id === name);
    const layers = table.values(column("Layer")).map(Number);
    const names = table.values(column("Name"));
    const start = table.values(column("Start"));
    const end = table.values(column("End"));
    const tooltip = table.columns.findIndex((one) => one.role === "tooltip");
    const first = start.reduce((least, value) => Math.min(least, value), Infinity);
    const trace = {
      type: "bar",
      orientation: "h",
      y: layers,
      base: start.map((value) => value - first),
      x: start.map((value, row) => end[row] - value),
      text: names.map((name) => short(name)),
      textposition: "inside",
      insidetextanchor: "start",
      textangle: 0,
      hovertext: names.map((name, row) => (tooltip >= 0 ? wrapped(table.rows[row][tooltip]) : wrapped(name))),
      hoverinfo: "text",
      marker: { color: names.map(colour), line: { color: "white", width: 0.5 } },
      width: 0.94,
      showlegend: false,
    };
    const last = end.reduce((most, value) => Math.max(most, value), first) - first;
    this.show(
      [trace],
      {
        margin: { l: 20, r: 20, t: 10, b: 40 },
        barmode: "overlay",
        uniformtext: { minsize: 11, mode: "hide" },
        dragmode: "zoom",
        xaxis: { ...axis({ title: "ms from the first module's start" }), range: [0, last] },
        yaxis: { autorange: "reversed", fixedrange: true, showgrid: false, showticklabels: false, zeroline: false },
      },
      { ...options, height: Math.max(options.height ?? 0, 140) },
    );
    this.container.dataset.spans = amount(names.length);
  }
}

/** One colour for a name, whichever spans are shown. */
function colour(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 360;
  return `hsl(${hash}, 55%, 72%)`;
}
