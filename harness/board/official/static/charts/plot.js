/** What all plotly charts share: one plot in a container, names as text, the colours. */

import { tell } from "./events.js";

export const COLOURS = [
  "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#ff8ab7", "#97bbf5", "#9c6b4e", "#9498a0",
];

const FONT = { family: "Roboto, Helvetica, Arial, sans-serif", size: 12, color: "#202124" };
const LONGEST_LABEL = 36;
const LINE = 100;

export class Plot {
  constructor(container) {
    // The page may draw late, when the view that had a place for it has been left: then nobody sees it.
    this.container = container ?? document.createElement("div");
    this.selection = [];
  }

  /** Draw `traces`; what the options say of size, title and axes holds for every kind of chart. */
  show(traces, layout, options) {
    const { Plotly } = window;
    const height = typeof options.height === "number" ? options.height : this.container.offsetHeight || 300;
    Plotly.newPlot(
      this.container,
      traces,
      {
        font: FONT,
        height,
        autosize: true,
        colorway: options.colors ?? COLOURS,
        hoverlabel: { align: "left", bgcolor: "white", bordercolor: "#9498a0", font: FONT, namelength: 0 },
        legend: { orientation: "h", y: -0.2, x: 0.5, xanchor: "center" },
        margin: { l: 70, r: 20, t: options.title ? 40 : 15, b: 50 },
        paper_bgcolor: "white",
        plot_bgcolor: "white",
        title: options.title ? { text: asText(options.title), font: { ...FONT, size: 14 } } : undefined,
        xaxis: axis(options.hAxis),
        yaxis: axis(options.vAxis),
        ...layout,
      },
      { displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"], responsive: true },
    );
    tell(this, "ready");
  }

  clearChart() {
    window.Plotly.purge(this.container);
    this.container.replaceChildren();
  }

  getSelection() {
    return this.selection;
  }

  setSelection(selection) {
    this.selection = selection ?? [];
  }

  /** Tell `select` of what is clicked, as row and column of the table. */
  selectOnClick(series) {
    this.container.on("plotly_click", ({ points }) => {
      this.selection = [{ row: points[0].pointNumber, column: series[points[0].curveNumber].column }];
      tell(this, "select");
    });
  }
}

export function axis(options) {
  return {
    title: options?.title ? { text: asText(options.title) } : undefined,
    automargin: true,
    gridcolor: "#e8eaed",
    zerolinecolor: "#9aa0a6",
  };
}

/** Text that plotly shows as it is: names of operators are no markup. */
export function asText(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A label that leaves room for the chart. */
export function short(text, longest = LONGEST_LABEL) {
  const whole = String(text);
  return asText(whole.length > longest ? `${whole.slice(0, longest - 1)}…` : whole);
}

/** A long name on several lines. */
export function wrapped(text) {
  return (String(text).match(new RegExp(`.{1,${LINE}}`, "gs")) ?? [""]).map(asText).join("<br>");
}

/** What a tooltip made of HTML says, line by line. The document is inert: nothing in it runs or loads. */
export function tooltipText(html) {
  const inert = new DOMParser().parseFromString(String(html).replaceAll(/<br\s*\/?>|\n/g, "\u2028"), "text/html");
  return inert.body.textContent.split("\u2028").map(wrapped).join("<br>");
}

/** Hover texts of a series: its tooltip column, or name, label and value. */
export function hovers(table, series) {
  const names = table.values(0);
  const values = table.values(series.column);
  if (series.tooltip >= 0) return table.values(series.tooltip).map(tooltipText);
  return values.map((value, row) => `${wrapped(names[row])}<br>${asText(series.label)}: ${amount(value)}`);
}

export function amount(value) {
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 3 }) : asText(value ?? "");
}
