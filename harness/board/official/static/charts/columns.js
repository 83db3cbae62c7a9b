/** Columns, stacked where the options say so. */

import { Plot, axis, hovers, short } from "./plot.js";

export class BarChart extends Plot {
  draw(table, options) {
    const places = table.rows.map((_, row) => row);
    const series = table.series();
    const traces = series.map((one) => ({
      type: "bar",
      name: short(one.label),
      x: places,
      y: table.values(one.column),
      hovertext: hovers(table, one),
      hoverinfo: "text",
      textposition: "none",
    }));
    this.show(
      traces,
      {
        barmode: options.isStacked ? "relative" : "group",
        bargap: this.gap(places.length),
        xaxis: { ...axis(options.hAxis), ...categories(table) },
      },
      options,
    );
    this.selectOnClick(series);
  }

  gap(count) {
    return count > 20 ? 0.05 : 0.4;
  }
}

/** An axis of the table's first column. Two rows of one name stay two places. */
export function categories(table) {
  const names = table.values(0).map((name) => short(name, 20));
  const every = Math.max(1, Math.ceil(names.length / 30));
  const shown = names.map((_, row) => row).filter((row) => row % every === 0);
  return { tickmode: "array", tickvals: shown, ticktext: shown.map((row) => names[row]), zeroline: false };
}
