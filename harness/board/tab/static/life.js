// Curves over a run's life; a click opens the window.

import { get } from "./api.js";
import { draw, plain, plotly } from "./charts.js";
import { fill, h } from "./dom.js";
import { count } from "./format.js";
import { tone, toneOf } from "./theme.js";

export function lifeCharts(run, open) {
  const note = h("span", { class: "muted" }, "reading windows …");
  const boxes = {
    step: box("Step time", "ms"),
    busy: box("Device busy", "of the step"),
    idle: box("Why the device is idle", "ms a step"),
    operators: box("Operators, self time", "ms a step"),
  };
  const ribbon = h("div", { class: "ribbon", "aria-label": "verdicts over the run's life" });
  const names = h("ul", { class: "legend ribbon-legend" });
  const changes = h("details", { class: "changes" }, h("summary", {}, "What has changed"), h("ol"));
  const element = h(
    "section",
    { class: "card life" },
    h("div", { class: "card-head" }, h("h2", {}, "Over the job's life"), note),
    h("div", { class: "ribbon-row" }, ribbon, names),
    h("div", { class: "charts" }, Object.values(boxes).map((one) => one.element)),
    changes,
  );
  let closed = false;

  // The curves come after the list: plotly's start keeps the page busy for a while.
  async function refresh(listed) {
    try {
      listed.then(painted).then(plotly).catch(() => {});
      const [life] = await Promise.all([get("life", { run }), listed]);
      if (closed) return;
      show(life);
    } catch (error) {
      note.textContent = error.message;
    }
  }

  function show(life) {
    const verdicts = life.changes.filter((change) => change.label);
    note.textContent = life.steps.length
      ? `${count(life.steps.length)} windows, steps ${count(life.steps[0])} to ${count(life.steps.at(-1))}; click a curve to open its window`
      : "no window has findings";
    showRibbon(life);
    showChanges(life);
    const line = (tag, name, drawn) => ({
      type: "scatter",
      mode: life.steps.length > 60 ? "lines" : "lines+markers",
      x: life.steps,
      y: life.series[tag] || [],
      name,
      line: { color: drawn.now(), width: 1.6 },
      marker: { size: 4 },
    });
    const layout = (yaxis) => ({
      xaxis: { title: "", hoverformat: ",d", tickformat: ",d", range: life.steps.length === 1 ? [life.steps[0] - 1, life.steps[0] + 1] : undefined },
      yaxis: { rangemode: "tozero", ...yaxis },
      shapes: verdicts.map((change) => ({
        type: "line",
        x0: change.step,
        x1: change.step,
        yref: "paper",
        y0: 0,
        y1: 1,
        line: { color: toneOf(change.label).now(), width: 1.5, dash: "dot" },
      })),
    });
    const click = (place) => open(life.windows[place]);
    draw(
      boxes.step.chart,
      () => ({
        traces: [line(life.tags.profiled, "profiled", tone("series-7")), line(life.tags.unprofiled, "unprofiled", tone("series-0"))],
        layout: layout({ hoverformat: ".3~f" }),
      }),
      click,
    );
    legend(boxes.step, [["unprofiled", tone("series-0")], ["profiled", tone("series-7")]]);
    const device = life.tags.busy in life.series;
    boxes.busy.title.textContent = device ? "Device busy" : "Phases of the step";
    boxes.busy.unit.textContent = device ? "of the step" : "of the host's time";
    boxes.idle.element.hidden = !device;
    if (device) {
      draw(
        boxes.busy.chart,
        () => ({ traces: [line(life.tags.busy, "busy", tone("series-2"))], layout: layout({ tickformat: ".0%", hoverformat: ".1%", range: [0, 1.05] }) }),
        click,
      );
      areas(boxes.idle, life.tags.idle, (name) => life.reasons[name] || name, (name, place) => toneOf(`idle: ${name}`, place));
    } else {
      areas(boxes.busy, life.tags.phases, (name) => name, toneOf, { tickformat: ".0%", hoverformat: ".1%" });
    }
    areas(boxes.operators, life.tags.operators, (name) => name, (name, place) => (name === life.rest ? tone("rest") : toneOf("", place)));

    // Stacked, the largest at the bottom.
    function areas(into, prefix, nameOf, toneTo, yaxis = { hoverformat: ".3~f" }) {
      const tags = Object.keys(life.series).filter((tag) => tag.startsWith(prefix));
      const weight = (tag) => life.series[tag].reduce((sum, value) => sum + (value || 0), 0);
      const kept = tags.map((tag) => [tag, weight(tag)]).filter(([, weight]) => weight > 0).sort((a, b) => (a[0].endsWith(life.rest) - b[0].endsWith(life.rest)) || b[1] - a[1]);
      const series = kept.map(([tag], place) => {
        const name = nameOf(tag.slice(prefix.length));
        return { tag, name, drawn: toneTo(name, place) };
      });
      draw(
        into.chart,
        () => ({
          traces: series.map(({ tag, name, drawn }) => ({
            type: "scatter",
            mode: "lines",
            stackgroup: "one",
            x: life.steps,
            y: life.series[tag].map((value) => value ?? 0),
            name: plain(name, 40),
            line: { width: 0.5, color: drawn.now() },
            fillcolor: drawn.now(),
          })),
          layout: layout(yaxis),
        }),
        click,
      );
      legend(into, series.map(({ name, drawn }) => [name, drawn]));
    }
  }

  function showRibbon(life) {
    fill(ribbon, life.labels.map((label, place) =>
      h("button", {
        tabindex: "-1",
        title: `step ${count(life.steps[place])}: ${label}`,
        style: { background: toneOf(label).css },
        onclick: () => open(life.windows[place]),
      })));
    fill(names, [...new Set(life.labels)].map((label) =>
      h("li", {}, h("span", { class: "dot", style: { background: toneOf(label).css } }), h("span", { class: "legend-name" }, label))));
  }

  function showChanges(life) {
    changes.firstChild.textContent = life.changes.length
      ? `What has changed: ${life.changes.at(-1).text}${life.changes.length > 1 ? `, and ${life.changes.length - 1} earlier` : ""}`
      : "Nothing has changed that stands out of the noise";
    fill(changes.lastChild, [...life.changes].reverse().map((change) => {
      const place = life.steps.indexOf(change.step);
      const go = place < 0 ? null : () => open(life.windows[place]);
      return h("li", {}, go ? h("button", { class: "sentence", onclick: go }, change.text) : change.text);
    }));
  }

  return { element, refresh, close: () => (closed = true) };
}

const painted = () => new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve));

function box(title, unit) {
  const chart = h("div", { class: "chart" });
  const heading = h("span", { class: "chart-title" }, title);
  const units = h("span", { class: "muted" }, unit);
  const key = h("ul", { class: "legend chart-legend" });
  return { chart, title: heading, unit: units, key, element: h("figure", {}, h("figcaption", {}, heading, " ", units), chart, key) };
}

function legend(box, series) {
  fill(box.key, series.map(([name, drawn]) =>
    h("li", { title: name }, h("span", { class: "dot", style: { background: drawn.css } }), h("span", { class: "legend-name" }, name))));
}
