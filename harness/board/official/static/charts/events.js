/** Listeners of a chart: `addListener(chart, "select", call)`. */

const listeners = new WeakMap();

export function addListener(chart, name, call) {
  if (!listeners.has(chart)) listeners.set(chart, []);
  listeners.get(chart).push({ name, call });
}

/** Call what listens to `name` of a chart with `detail`. */
export function tell(chart, name, detail) {
  for (const listener of listeners.get(chart) ?? []) {
    if (listener.name === name) listener.call(detail);
  }
}
