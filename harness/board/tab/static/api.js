// What the plugin's addresses answer. Paths are relative to the plugin, wherever TensorBoard is mounted.

export const BASE = new URL("..", import.meta.url);

export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url.toString();
}

export async function get(path, query = {}) {
  return (await ask(address(path, query))).json();
}

// News of one address: null where nothing has changed since the last time.
export function watch(path) {
  let tag = null;
  return async () => {
    const answer = await ask(address(path), tag ? { "If-None-Match": tag } : {});
    if (answer.status === 304) return null;
    tag = answer.headers.get("ETag");
    return answer.json();
  };
}

async function ask(url, headers = {}) {
  let answer;
  try {
    answer = await fetch(url, { headers, cache: "no-store" });
  } catch {
    throw new Error("TensorBoard does not answer; is it still running?");
  }
  if (answer.ok || answer.status === 304) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error || `TensorBoard answers ${answer.status} to ${new URL(url).pathname}`);
}
