// Plotly, loaded once it is needed, in the page's colours. Charts are drawn one by one, those in view first.

import { address } from "./api.js";
import { h } from "./dom.js";
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

// The bundle on its way to the browser, so that it is there when it is needed.
export const fetchPlotly = () => document.head.append(h("link", { rel: "preload", as: "script", href: address("plotly.js") }));

// By element, what is drawn there or will be, and what a click on it does.
const charts = new Map();
const waiting = new Set();
let drawing = false;

const sight = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!charts.has(target)) sight.unobserve(target);
      else if (isIntersecting) soon(target);
    }
  },
  { rootMargin: "400px" },
);

// Draw into an element, which keeps its size, once it comes into view; again when the theme changes.
export function draw(element, build, onClick = null) {
  charts.set(element, { build, onClick });
  // Looked at anew, it is told of where it is.
  sight.unobserve(element);
  sight.observe(element);
}

function soon(element) {
  waiting.add(element);
  if (!drawing) drawAll().catch((error) => console.error(error));
}

// With room in between for what the reader does meanwhile.
async function drawAll() {
  drawing = true;
  try {
    const library = await plotly();
    for (const element of waiting) {
      waiting.delete(element);
      if (!element.isConnected) forget(element);
      else await render(library, element, charts.get(element));
      await new Promise((resolve) => setTimeout(resolve));
    }
  } finally {
    drawing = false;
  }
}

function forget(element) {
  sight.unobserve(element);
  charts.delete(element);
}

async function render(library, element, { build, onClick }) {
  sight.unobserve(element);
  const { traces, layout = {} } = build();
  await library.react(element, traces, { ...frame(), ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) }, {
    displayModeBar: false,
    responsive: true,
    scrollZoom: false,
  });
  element.removeAllListeners?.("plotly_click");
  if (onClick) element.on("plotly_click", (event) => onClick(event.points[0].pointIndex));
  element.dataset.drawn = "yes";
}

onTheme(() => {
  for (const element of charts.keys()) {
    if (!element.isConnected) forget(element);
    else if (element.dataset.drawn) soon(element);
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
