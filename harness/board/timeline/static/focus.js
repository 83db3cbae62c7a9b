// Shows a spot of the trace, its slice selected and some room to both sides; or all of it.

const ROOM = 2n;
const PANEL_OPENS_MS = 300;

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

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

async function select(trace, spot) {
  const found = (await trace.engine.query(query(spot))).iter({id: 0});
  if (!found.valid()) return;
  trace.selection.selectSqlEvent('slice', found.id, {switchToCurrentSelectionTab: true});
  // The panel with the slice's arguments takes some of the rows' room.
  await after(PANEL_OPENS_MS);
  trace.selection.scrollToSelection();
}

export async function focus(trace, spot) {
  const {start, end} = trace.traceInfo;
  if (!spot) {
    trace.selection.clearSelection();
    trace.timeline.setViewportTime(start, end);
    return;
  }
  await select(trace, spot);
  const [ts, dur] = [BigInt(spot.ts), BigInt(spot.dur)];
  const room = dur * ROOM + 1000n;
  const [low, high] = [ts - room < start ? start : ts - room, ts + dur + room > end ? end : ts + dur + room];
  if (low < high) trace.timeline.setViewportTime(low, high);
}
