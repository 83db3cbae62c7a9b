// Numbers as people read them, in the words of harness/report/units.py.

function threeDigits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function duration(us) {
  const size = Math.abs(us);
  if (size < 999.5) return `${threeDigits(us)} µs`;
  if (size < 999.5e3) return `${threeDigits(us / 1e3)} ms`;
  return `${threeDigits(us / 1e6)} s`;
}

export function size(bytes) {
  if (Math.abs(bytes) < 1024) return `${count(bytes)} B`;
  for (const [power, unit] of [[1, "KiB"], [2, "MiB"], [3, "GiB"]]) {
    if (Math.abs(bytes) / 1024 ** power < 999.5) return `${threeDigits(bytes / 1024 ** power)} ${unit}`;
  }
  return `${threeDigits(bytes / 1024 ** 4)} TiB`;
}

export function share(fraction) {
  if (fraction !== 0 && Math.abs(fraction) < 0.0005) return "<0.1 %";
  return `${(100 * fraction).toFixed(1)} %`;
}

export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

export function rate(value, unit) {
  for (const [scale, prefix] of [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]]) {
    if (Math.abs(value) / scale < 999.5) return `${threeDigits(value / scale)} ${prefix}${unit}`;
  }
  return `${threeDigits(value / 1e15)} P${unit}`;
}

const BY_KIND = { us: duration, bytes: size, share, count, flops: (value) => rate(value, "FLOP") };

export const isNumber = (kind) => kind in BY_KIND;

export function show(kind, value) {
  if (value === null || value === undefined) return "";
  return isNumber(kind) ? BY_KIND[kind](value) : String(value);
}

export function ago(seconds) {
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (passed >= length) return `${Math.floor(passed / length)} ${unit} ago`;
  }
  return "just now";
}

// At which the window of this name began to record; no number for a name that is none of a window.
export const stepOf = (name) => Number(name.match(/_(\d+)$/)?.[1]);
