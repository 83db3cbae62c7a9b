// Shows a spot of the trace, its slice selected and some room to both sides; or all of it.

const ROOM = 2n;
const PANEL = '.pf-details-shell';
const SETTLED_FRAMES = 5;
const PANEL_OPENS_MS = 10_000;

const drawn = (perfetto) => new Promise((resolve) => perfetto.requestAnimationFrame(resolve));

// The panel with the slice's arguments takes some of the rows' room: once it stands where it will stay.
async function panelOpen(perfetto) {
  const limit = perfetto.performance.now() + PANEL_OPENS_MS;
  let [top, same] = [null, 0];
  while (same < SETTLED_FRAMES && perfetto.performance.now() < limit) {
    await drawn(perfetto);
    const now = perfetto.document.querySelector(PANEL)?.getBoundingClientRect().top ?? null;
    same = now !== null && now === top ? same + 1 : 0;
    top = now;
  }
}

const text = (value) => (value === null ? 'null' : `'${value.replaceAll("'", "''")}'`);

// What the file calls the thread stands in the description of its tracks.
function query({ts, dur, pid, tid, category}) {
  const thread = pid === null || tid === null ? null : `pid ${pid}, tid ${tid}`;
  return `
    select slice.id as id from slice join track on slice.track_id = track.id
    where slice.ts = ${BigInt(ts)} and slice.dur = ${BigInt(dur)}
    order by
      extract_arg(track.source_arg_set_id, 'description') = ${text(thread)} desc,
      slice.category = ${text(category)} desc,
      slice.id
    limit 1`;
}

async function select(perfetto, spot) {
  const {trace} = perfetto.app;
  const found = (await trace.engine.query(query(spot))).iter({id: 0});
  if (!found.valid()) return;
  trace.selection.selectSqlEvent('slice', found.id, {switchToCurrentSelectionTab: true});
  await panelOpen(perfetto);
  trace.selection.scrollToSelection();
}

// In the window of the UI, which has a trace open.
export async function focus(perfetto, spot) {
  const {trace} = perfetto.app;
  const {start, end} = trace.traceInfo;
  if (!spot) {
    trace.selection.clearSelection();
    trace.timeline.setViewportTime(start, end);
    return;
  }
  await select(perfetto, spot);
  const [ts, dur] = [BigInt(spot.ts), BigInt(spot.dur)];
  const room = dur * ROOM + 1000n;
  const [low, high] = [ts - room < start ? start : ts - room, ts + dur + room > end ? end : ts + dur + room];
  if (low < high) trace.timeline.setViewportTime(low, high);
}
