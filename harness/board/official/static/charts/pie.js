/** A ring of shares. */

import { tell } from "./events.js";
import { COLOURS, Plot, amount, short, wrapped } from "./plot.js";

export class PieChart extends Plot {
  draw(table, options) {
    const names = table.values(0);
    const values = table.values(1);
    const total = values.reduce((sum, value) => sum + value, 0);
    const hover = names.map(
      (name, row) => `${wrapped(name)}<br>${amount(values[row])} (${((100 * values[row]) / (total || 1)).toFixed(1)} %)`,
    );
    const palette = options.colors ?? COLOURS;
    const colours = names.map((_, row) => palette[row % palette.length]);
    const trace = {
      type: "pie",
      // Two long names may be short for the same: the place tells them apart.
      labels: names.map((_, row) => row),
      values,
      text: names.map((name) => short(name, 28)),
      hovertext: hover,
      hoverinfo: "text",
      hole: options.pieHole ?? 0,
      sort: false,
      direction: "clockwise",
      textinfo: "percent",
      textposition: "inside",
      showlegend: false,
      marker: { colors: colours, line: { color: "white", width: 1 } },
      domain: { x: [0, options.legend === "none" ? 1 : 0.5] },
    };
    const margin = { l: 10, r: 10, t: options.title ? 40 : 10, b: 10 };
    this.show([trace], { margin, annotations: options.legend === "none" ? [] : this.legend(names, options) }, options);
    this.container.on("plotly_hover", ({ points }) => tell(this, "onmouseover", { row: points[0].pointNumber }));
    this.container.on("plotly_unhover", () => tell(this, "onmouseout", {}));
  }

  /** The first names beside the ring, in its colours: plotly's own legend would show places. */
  legend(names, options) {
    const height = typeof options.height === "number" ? options.height : this.container.offsetHeight || 300;
    const letters = Math.max(12, Math.floor((this.container.offsetWidth * 0.42) / 7));
    const room = Math.max(1, Math.floor((height - 60) / 18));
    const colours = options.colors ?? COLOURS;
    return names.slice(0, room).map((name, row) => ({
      x: 0.55,
      y: 0.95 - (row * 18) / (height - 50),
      xref: "paper",
      yref: "paper",
      xanchor: "left",
      yanchor: "top",
      showarrow: false,
      align: "left",
      text: `<span style="color:${colours[row % colours.length]}">■</span> ${short(name, letters)}`,
      hovertext: wrapped(name),
    }));
  }
}
