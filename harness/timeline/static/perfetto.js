// The Perfetto UI in its frame: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui

import {IDLE} from './plugins.js';

const EXPANDED = [{id: 'dev.perfetto.ExpandTracksByRegex', args: ['.*']}];
const EVERY_MS = 30;

const soon = () => new Promise((resolve) => setTimeout(resolve, EVERY_MS));

// What the UI reads as it starts, among it what its user chose.
function keep(name, changed) {
  localStorage.setItem(name, JSON.stringify(changed(JSON.parse(localStorage.getItem(name) ?? '{}'))));
}

// Starts the UI; resolves to its window once it listens.
export async function openPerfetto(frame, dark) {
  keep('perfettoSettings', (own) => ({timestampFormat: 'milliseconds', ...own, theme: dark ? 'dark' : 'light'}));
  keep('perfettoFeatureFlags', (own) => ({...IDLE, ...own}));
  const commands = encodeURIComponent(JSON.stringify(EXPANDED));
  frame.src = `perfetto/index.html#!/viewer?mode=embedded&hideSidebar=true&startupCommands=${commands}`;
  let listens = false;
  const heard = (event) => {
    listens ||= event.source === frame.contentWindow && event.data === 'PONG';
  };
  window.addEventListener('message', heard);
  while (!listens) {
    await soon();
    if (frame.contentDocument?.readyState === 'complete') frame.contentWindow.postMessage('PING', location.origin);
  }
  window.removeEventListener('message', heard);
  return frame.contentWindow;
}

// Opens a trace; resolves once its tracks are there.
export async function show(perfetto, buffer, title) {
  const message = {perfetto: {buffer, title, fileName: title, localOnly: true, keepApiOpen: true}};
  perfetto.postMessage(message, location.origin, [buffer]);
  while (!perfetto.document.querySelector('.pf-track')) {
    const said = perfetto.document.querySelector('.pf-modal-dialog')?.innerText;
    if (said) throw new Error(said.slice(0, 500));
    await soon();
  }
}

// Changes the colours of a UI that shows a trace; its view stays.
export function recolour(perfetto, dark) {
  perfetto.app.settings.get('theme').set(dark ? 'dark' : 'light');
  perfetto.app.raf.scheduleFullRedraw();
}
