// The page: the Perfetto UI starts while the trace is prepared and fetched, then shows it at the spot that matters.

import {focus} from './focus.js';
import {openPerfetto, recolour, show} from './perfetto.js';
import {done, doing, failed, tell} from './state.js';
import {follow} from './theme.js';

// What the address says before and after its #. A change of what stands after it moves the view, and loads nothing anew.
const said = () => new URLSearchParams([location.search, location.hash.slice(1)].flatMap((part) => [...new URLSearchParams(part)]));

async function asked(name) {
  const response = await fetch(`${name}?${said()}`);
  if (response.ok) return response;
  const {error} = await response.json().catch(() => ({error: response.statusText}));
  throw new Error(error);
}

async function bytes(response) {
  const pieces = [];
  let received = 0;
  const reader = response.body.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    pieces.push(read.value);
    received += read.value.length;
    doing(`Loading the trace: ${(received / 1e6).toFixed(1)} MB …`);
  }
  return new Blob(pieces).arrayBuffer();
}

const fail = (error) => failed(error.message);

async function move(frame) {
  const facts = await (await asked('facts')).json();
  tell(facts);
  await focus(frame, facts.spot);
}

async function open() {
  const colours = document.documentElement.classList;
  let shown = null;
  follow((dark) => {
    colours.toggle('dark', dark);
    if (shown) recolour(shown, dark);
  });
  doing('Preparing the trace …');
  const perfetto = openPerfetto(document.getElementById('perfetto'), colours.contains('dark'));
  const where = location.hash;
  const [facts, buffer] = await Promise.all([
    asked('facts').then((response) => response.json()),
    asked('trace').then(bytes),
  ]);
  tell(facts);
  doing('Starting Perfetto …');
  const frame = await perfetto;
  doing('Perfetto reads the trace …');
  await show(frame, buffer, facts.title);
  shown = frame;
  recolour(shown, colours.contains('dark'));
  if (facts.spot) await focus(frame, facts.spot);
  if (location.hash !== where) await move(frame);
  window.addEventListener('hashchange', () => move(frame).catch(fail));
  done();
}

open().catch(fail);
