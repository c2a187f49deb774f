// Talks to the service: plain requests, and the stream of states. All addresses are relative to the page.

// The token lives here and, so that a reload of the tab does not lose it, in the tab's session storage, under the page's own path. A browser
// that forbids storage only asks for it again.
const place = `quotient-token ${location.pathname}`;
let token = stored(() => sessionStorage.getItem(place)) ?? "";
let shut = false; // the service has refused the token, or wants one, and there is none since

function stored(access) {
  try {
    return access();
  } catch {
    return null; // Storage is forbidden here.
  }
}

export function setToken(text) {
  token = text;
  shut = false;
}

// keepToken stores the token, once the service has accepted it. It reports whether there is one.
export function keepToken() {
  if (token) stored(() => sessionStorage.setItem(place, token));
  return token !== "";
}

export function forgetToken() {
  token = "";
  stored(() => sessionStorage.removeItem(place));
}

// doors has an event "locked" when the service has refused the token, or wants one.
export const doors = new EventTarget();

// locked reports whether there is nothing to get until the operator gives a token.
export function locked() {
  return shut;
}

function headers(extra, sent) {
  return sent ? { ...extra, Authorization: `Bearer ${sent}` } : extra;
}

// Refused is an answer that is no success. problem is the service's own description, as far as there is one.
export class Refused extends Error {
  constructor(status, problem, sent = "") {
    super(problem.detail || `the service answered ${status}`);
    this.status = status;
    this.problem = problem;
    this.sent = sent; // the token, "" for none
  }
}

async function refused(response, sent) {
  const problem = await response.json().catch(() => ({}));
  const error = new Refused(response.status, problem && typeof problem === "object" ? problem : {}, sent);
  if (response.status === 401 && token === sent) {
    forgetToken();
    shut = true;
    doors.dispatchEvent(new CustomEvent("locked", { detail: error }));
  }
  return error;
}

function address(path, query) {
  const text = new URLSearchParams(query).toString();
  return text ? `${path}?${text}` : path;
}

async function answer(path, query, extra, options) {
  const sent = token;
  const response = await fetch(address(path, query), { headers: headers(extra, sent), cache: "no-store", ...options });
  if (!response.ok) throw await refused(response, sent);
  return response;
}

// get returns the answer's body.
export async function get(path, query = {}, signal = null) {
  return (await answer(path, query, {}, { signal })).json();
}

// put sends a change. etag is the one of what the operator saw.
export async function put(path, query, body, etag, method = "PUT") {
  const extra = { "Content-Type": "application/json", "If-Match": etag };
  return (await answer(path, query, extra, { method, body: JSON.stringify(body) })).json();
}

// validate throws what the service would refuse a change for, and changes nothing. etag is the one of what the operator saw.
export async function validate(path, query, body, etag) {
  const extra = { "Content-Type": "application/json", "If-Match": etag };
  await answer(path, { ...query, validate: 1 }, extra, { method: "PUT", body: JSON.stringify(body) });
}

// named is a key as a request names it: key_base64 where the service had to send that, since the key is no text.
export function named({ key, key_base64: coded }) {
  return coded === undefined ? { key } : { key_base64: coded };
}

// events reads the stream until it ends. It calls onState with each state, and resolves when the service ends the stream.
// It rejects when the connection breaks, when the service refuses, or when nothing has come for longer than it should.
export async function events(onState, abort) {
  const response = await answer("events", {}, { Accept: "text/event-stream" }, { signal: abort.signal });
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
