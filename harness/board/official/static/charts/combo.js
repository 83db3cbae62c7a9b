/** Columns on the left axis and lines on the right one. */

import { categories } from "./columns.js";
import { Plot, axis, hovers, short } from "./plot.js";

export class ComboChart extends Plot {
  draw(table, options) {
    const places = table.rows.map((_, row) => row);
    const series = table.series();
    const traces = series.map((one, index) => {
      const line = options.series?.[index]?.type === "line";
      return {
        type: line ? "scatter" : "bar",
        mode: line ? "lines+markers" : undefined,
        yaxis: options.series?.[index]?.targetAxisIndex === 1 ? "y2" : "y",
        name: short(one.label),
        x: places,
        y: table.values(one.column),
        hovertext: hovers(table, one),
        hoverinfo: "text",
        textposition: line ? undefined : "none",
      };
    });
    this.show(
      traces,
      {
        barmode: "group",
        xaxis: { ...axis(options.hAxis), ...categories(table) },
        yaxis: { ...axis(options.vAxis), title: { text: "µs" }, rangemode: "tozero" },
        yaxis2: { overlaying: "y", side: "right", showgrid: false, rangemode: "tozero", title: { text: "trend, µs" } },
      },
      options,
    );
    this.selectOnClick(series);
  }
}
