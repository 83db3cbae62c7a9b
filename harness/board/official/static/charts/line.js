/** Curves over a number. Dragging zooms, a double click shows all; the page reads the visible range. */

import { Plot, amount, asText, axis, hovers, short } from "./plot.js";

export class LineChart extends Plot {
  draw(table, options) {
    const x = table.values(0);
    this.table = table;
    const traces = table.series().map((one) => ({
      type: "scatter",
      mode: "lines",
      name: short(one.label),
      x,
      y: table.values(one.column),
      hovertext: hovers(table, one).map((text, row) => text.replace(/^[^<]*/, `${asText(options.hAxis?.title ?? "")} ${amount(x[row])}`)),
      hoverinfo: "text",
    }));
    traces.push({
      type: "scatter",
      mode: "markers",
      marker: { size: 10, color: "#ff725c", line: { color: "white", width: 1 } },
      x: [],
      y: [],
      hoverinfo: "skip",
      showlegend: false,
    });
    const range = x.length ? [Math.min(...ends(x)), Math.max(...ends(x))] : [0, 1];
    this.show(
      traces,
      {
        dragmode: "zoom",
        xaxis: { ...axis(options.hAxis), range },
        yaxis: { ...axis(options.vAxis), fixedrange: true, rangemode: "tozero" },
      },
      options,
    );
  }

  /** Mark points, as the page does with allocation and release of what the mouse is on. */
  setSelection(selection) {
    super.setSelection(selection);
    if (!this.table || !this.container.data) return;
    const x = this.selection.map(({ row }) => this.table.values(0)[row]);
    const y = this.selection.map(({ row, column }) => this.table.values(column)[row]);
    window.Plotly.restyle(this.container, { x: [x], y: [y] }, [this.container.data.length - 1]);
  }

  getChartLayoutInterface() {
    const { xaxis, yaxis } = this.container._fullLayout;
    return {
      getChartAreaBoundingBox: () => ({
        left: xaxis._offset,
        width: xaxis._length,
        top: yaxis._offset,
        height: yaxis._length,
      }),
      getHAxisValue: (pixel) => {
        const [from, to] = xaxis.range;
        return from + ((pixel - xaxis._offset) / xaxis._length) * (to - from);
      },
    };
  }
}

/** Of a curve in order of time. */
function ends(values) {
  return [values[0], values.at(-1)];
}
