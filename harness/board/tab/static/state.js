// What is shown, kept in TensorBoard's own address as `#windows&p.windows.<key>=<value>`, so that it can be shared.

const PREFIX = "p.windows.";
const host = window.parent;
const listeners = new Set();

export function read() {
  const found = {};
  for (const piece of host.location.hash.slice(1).split("&")) {
    const [name, value] = piece.split("=").map(decode);
    if (name.startsWith(PREFIX) && value) found[name.slice(PREFIX.length)] = value;
  }
  return found;
}

// The address of a state, for a link.
export function link(state) {
  const url = new URL(host.location.href);
  const pieces = url.hash.slice(1).split("&").filter((piece) => !decode(piece).startsWith(PREFIX));
  if (pieces[0]?.includes("=")) pieces.unshift("");
  pieces[0] = "windows";
  for (const [name, value] of Object.entries(state)) {
    if (value !== null && value !== undefined && value !== "") {
      pieces.push(`${encodeURIComponent(PREFIX + name)}=${encodeURIComponent(value)}`);
    }
  }
  url.hash = pieces.join("&");
  return url.toString();
}

// Show another state; "back" returns to this one.
export function go(state) {
  host.history.pushState(host.history.state, "", link(state));
  latest = read();
  listeners.forEach((listener) => listener());
}

// Note a detail of what is shown, as a search, without a place in the history.
export function note(changes) {
  if (!isHere()) return;
  host.history.replaceState(host.history.state, "", link({ ...read(), ...changes }));
  latest = read();
}

// Whether the address is this tab's; another one may be in front.
function isHere() {
  return host === window || decode(host.location.hash.slice(1).split("&")[0]) === "windows";
}

export function onChange(listener) {
  listeners.add(listener);
}

let latest = read();

function moved() {
  if (!isHere()) return;
  // TensorBoard forgets the state when it comes back from another tab.
  if (!Object.keys(read()).length) note(latest);
  listeners.forEach((listener) => listener());
}
host.addEventListener("popstate", moved);
window.addEventListener("pagehide", () => host.removeEventListener("popstate", moved));

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
