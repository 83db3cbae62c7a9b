// What the page is doing, what went wrong, what is to be known of the trace.

const at = (id) => document.getElementById(id);
const count = (number, one, many = one + 's') => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

export function doing(what) {
  at('doing').textContent = what;
}

export function done() {
  at('state').hidden = true;
  document.body.dataset.state = 'done';
}

export function failed(why) {
  at('state').hidden = false;
  at('state').classList.add('failed');
  at('state').setAttribute('role', 'alert');
  doing(`The timeline cannot be shown: ${why}`);
  document.body.dataset.state = 'failed';
}

export function tell(facts) {
  document.title = at('title').textContent = facts.title;
  const told = [count(facts.slices, 'slice')];
  if (facts.arrows) told.push(count(facts.arrows, 'arrow'));
  if (facts.moved) told.push(`${count(facts.moved, 'overlapping slice')} on lanes of their own`);
  if (facts.clipped) told.push(`${count(facts.clipped, 'Python frame')} cut short`);
  at('facts').textContent = told.join(' · ');
  const notes = at('notes');
  notes.hidden = !facts.notes.length;
  notes.querySelector('summary').textContent = facts.lost
    ? `damaged file: ${count(facts.lost, 'event')} lost`
    : count(facts.notes.length, 'note');
  notes.querySelector('ul').replaceChildren(
    ...facts.notes.map((note) => Object.assign(document.createElement('li'), {textContent: note})),
  );
}
