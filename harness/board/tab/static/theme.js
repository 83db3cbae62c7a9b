// Light or dark, as TensorBoard is; by itself the page follows the system.

const listeners = new Set();

export function follow() {
  const body = window.parent.document.body;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const dark = window.parent === window ? system.matches : body.classList.contains("dark-mode");
    const theme = dark ? "dark" : "light";
    if (document.documentElement.dataset.theme === theme) return;
    document.documentElement.dataset.theme = theme;
    listeners.forEach((listener) => listener());
  };
  new MutationObserver(apply).observe(body, { attributes: true, attributeFilter: ["class"] });
  system.addEventListener("change", apply);
  apply();
}

export const onTheme = (listener) => listeners.add(listener);

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const SERIES = 12;
const slug = (name) => name.toLowerCase().replace(/[^a-z]+/g, "-");

// A colour of the style sheet: for elements, which follow the theme, and as it is now, for charts.
export const tone = (name) => ({ css: `var(--${name})`, now: () => colour(name) });

// What a verdict, a reason to be idle or a kind of work is drawn in; for any other name the n-th of a series.
export function toneOf(name, place = 0) {
  const meaning = `is-${slug(name)}`;
  return tone(colour(meaning) ? meaning : `series-${place % SERIES}`);
}
