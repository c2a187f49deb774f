// Talks to the service: plain requests, and the stream of states. All addresses are relative to the page.

let token = "";
export function setToken(text) {
  token = text;
}

function headers(extra) {
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

// Refused is an answer that is no success. problem is the service's own description, as far as there is one.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `the service answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

async function refused(response) {
  const problem = await response.json().catch(() => ({}));
  return new Refused(response.status, problem && typeof problem === "object" ? problem : {});
}

function address(path, query) {
  const text = new URLSearchParams(query).toString();
  return text ? `${path}?${text}` : path;
}

// get returns the answer's body.
export async function get(path, query = {}) {
  const response = await fetch(address(path, query), { headers: headers({}), cache: "no-store" });
  if (!response.ok) throw await refused(response);
  return response.json();
}

// put sends a change. etag is the one of what the operator saw.
export async function put(path, query, body, etag, method = "PUT") {
  const extra = { "Content-Type": "application/json", "If-Match": etag };
  const response = await fetch(address(path, query), { method, headers: headers(extra), body: JSON.stringify(body) });
  if (!response.ok) throw await refused(response);
  return response.json();
}

// named is a key as a request names it: key_base64 where the service had to send that, since the key is no text.
export function named({ key, key_base64: coded }) {
  return coded === undefined ? { key } : { key_base64: coded };
}

// events reads the stream until it ends. It calls onState with each state, and resolves when the service ends the stream.
// It rejects when the connection breaks, when the service refuses, or when nothing has come for longer than it should.
export async function events(onState, abort) {
  const response = await fetch("events", { headers: headers({ Accept: "text/event-stream" }), cache: "no-store", signal: abort.signal });
  if (!response.ok) throw await refused(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const watch = silence(abort);
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        watch.heard();
        const state = parse(block);
        if (state !== null) onState(state);
      }
    }
  } finally {
    watch.end();
  }
}

// parse returns the state that an event carries, or null for any other block.
function parse(block) {
  const lines = block.split("\n");
  if (!lines.includes("event: state")) return null;
  const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
  return JSON.parse(data.join("\n"));
}

// silence ends a stream that says nothing: a connection may be gone without a word. The service says something, be it a comment, every two
// seconds, however far apart the states are.
const patience = 8000; // milliseconds
function silence(abort) {
  let last = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - last > patience) abort.abort(new Error("nothing has come"));
  }, 500);
  return {
    heard() {
      last = performance.now();
    },
    end() {
      clearInterval(timer);
    },
  };
}
