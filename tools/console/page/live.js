// What the server knows, kept current by its stream: one line of JSON for everything, then one for each change.

const RETRY = 1500;
const SAMPLES = 180;

/** How the server calls the time that a pod takes in all. */
export const LIFE = "from the queue to the node";

let token = "";

export const live = {
  nodes: new Map(), // by number: {id, flags, used, name, room}
  byName: new Map(),
  resources: [],
  labels: [],
  samples: [],
  lates: [], // seconds from the queue to the node, p99 of a minute, with each sample
  overview: { counts: {}, reasons: [], totals: [], problems: {}, listed: [0, 0], processes: [], durations: [], counters: [], findings: [] },
  connected: false,
  failure: "",
};

const listeners = new Set();

/** Calls `listener({reset, shaped, used})` after each message; returns a function that ends this. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(change) {
  for (const listener of [...listeners]) listener(change);
}

export async function get(path, parameters = {}) {
  return answered(await fetch(`${path}?${new URLSearchParams(parameters)}`, { headers: authorization() }));
}

export async function post(path, body) {
  return answered(await fetch(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...authorization() } }));
}

const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function answered(answer) {
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let problem = text.trim();
  try { problem = JSON.parse(text).problem ?? problem; } catch { /* plain text */ }
  throw Object.assign(new Error(problem || `the console answers ${answer.status}`), { status: answer.status });
}

/** Never returns. `askForToken` is called if the server wants one. */
export async function follow(askForToken) {
  for (;;) {
    try {
      await read();
      live.failure = "the console has ended the stream";
    } catch (error) {
      live.failure = error.status ? error.message : "the console does not answer";
      if (error.status === 401 || error.status === 403) token = await askForToken(error.message);
    }
    live.connected = false;
    tell({});
    await new Promise((done) => setTimeout(done, RETRY));
  }
}

async function read() {
  const answer = await fetch("/api/stream", { headers: authorization() });
  if (!answer.ok) await answered(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  }
}

function take(message) {
  const change = { reset: Boolean(message.full), shaped: Boolean(message.full), used: [] };
  live.connected = true;
  live.failure = "";
  if (message.full) {
    live.nodes.clear();
    live.byName.clear();
    live.samples = message.samples;
  } else if (message.sample) {
    live.samples.push(message.sample);
    if (live.samples.length > SAMPLES) live.samples.shift();
  }
  if (message.resources) live.resources = message.resources;
  if (message.labels) live.labels = message.labels;
  if (message.counts) live.overview = { ...live.overview, ...message };
  if (message.sample) {
    const life = live.overview.durations.find(([name]) => name === LIFE);
    live.lates.push(life ? life[2][2] : 0);
    if (live.lates.length > SAMPLES) live.lates.shift();
  }
  for (const id of message.gone ?? []) {
    const node = live.nodes.get(id);
    if (node) {
      live.nodes.delete(id);
      if (live.byName.get(node.name) === node) live.byName.delete(node.name);
      change.shaped = true;
    }
  }
  for (const [id, flags, used, name, room] of message.nodes ?? []) {
    const node = live.nodes.get(id);
    if (node) {
      Object.assign(node, { flags, used, room });
      change.used.push(node);
    } else {
      const made = { id, flags, used, name, room };
      live.nodes.set(id, made);
      live.byName.set(name, made);
      change.shaped = true;
    }
  }
  for (const [id, flags, used] of message.used ?? []) {
    const node = live.nodes.get(id);
    if (node) {
      Object.assign(node, { flags, used });
      change.used.push(node);
    }
  }
  tell(change);
}
