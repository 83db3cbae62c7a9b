// Plotly, loaded once it is needed, in the page's colours.

import { address } from "./api.js";
import { colour, onTheme } from "./theme.js";

let loading = null;

export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address("plotly.js");
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}

// Plotly reads some HTML in its texts; this makes it read none.
export function plain(text, most = 60) {
  const short = text.length > most ? `${text.slice(0, most / 2)}…${text.slice(-most / 2 + 1)}` : text;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

const drawn = new Map();

// Draw into an element, which keeps its size; again when the theme changes.
export async function draw(element, build, onClick = null) {
  drawn.set(element, build);
  const library = await plotly();
  if (drawn.get(element) !== build || !element.isConnected) return;
  await render(library, element, build);
  element.removeAllListeners?.("plotly_click");
  if (onClick) element.on("plotly_click", (event) => onClick(event.points[0].pointIndex));
  element.dataset.drawn = "yes";
}

async function render(library, element, build) {
  const { traces, layout = {} } = build();
  await library.react(element, traces, { ...frame(), ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) }, {
    displayModeBar: false,
    responsive: true,
    scrollZoom: false,
  });
}

onTheme(async () => {
  if (!loading) return;
  const library = await loading;
  for (const [element, build] of drawn) {
    if (element.isConnected) render(library, element, build);
    else drawn.delete(element);
  }
});

function frame() {
  return {
    autosize: true,
    margin: { l: 52, r: 10, t: 8, b: 26 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "inherit", size: 11, color: colour("muted") },
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: {
      bgcolor: colour("card"),
      bordercolor: colour("line"),
      font: { size: 11, color: colour("text") },
      namelength: 44,
    },
    dragmode: "zoom",
  };
}

function axis(given = {}) {
  return { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: false, ...given };
}
