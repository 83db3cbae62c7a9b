/** Areas in steps: stacked, they are columns without gaps; else a filled line in steps. */

import { BarChart, categories } from "./columns.js";
import { axis, hovers, short } from "./plot.js";

export class SteppedAreaChart extends BarChart {
  draw(table, options) {
    if (options.isStacked) {
      super.draw(table, options);
      return;
    }
    const places = table.rows.map((_, row) => row);
    const traces = table.series().map((one) => ({
      type: "scatter",
      mode: places.length > 1 ? "lines" : "markers",
      line: { shape: "hvh" },
      fill: "tozeroy",
      name: short(one.label),
      x: places,
      y: table.values(one.column),
      hovertext: hovers(table, one),
      hoverinfo: "text",
    }));
    this.show(traces, { xaxis: { ...axis(options.hAxis), ...categories(table) } }, options);
  }

  gap(count) {
    return count > 1 ? 0.02 : 0.6;
  }
}
