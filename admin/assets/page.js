// The page: keeps the stream of states going and shows what it says.
import { setText, duration } from "./dom.js";
import { events, get, setToken, keepToken, forgetToken, doors } from "./api.js";
import { know, replicaName } from "./replica.js";
import { showLimiters, gap, restart } from "./limiters.js";
import { showFleet } from "./fleet.js";
import { showPeers } from "./peers.js";
import { showFile } from "./file.js";
import { showTables } from "./tables.js";
import { showLeases } from "./leases.js";

const at = (id) => document.getElementById(id);
let state = null;
let process = ""; // when the service's process started
let streamed = false; // the state is one of the stream

// Theme: what the system says, until the operator chooses.
const themes = ["system", "light", "dark"];
function themeNow() {
  return document.documentElement.dataset.theme ?? "system";
}
function showTheme() {
  setText(at("theme-name"), themeNow());
}
at("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(themeNow()) + 1) % themes.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("quotient-theme", next);
  } catch {
    // Storage is forbidden here: the choice holds until the page is closed.
  }
  showTheme();
});
showTheme();

// The latest change is shown for some seconds: for longer where it can be undone, and while the pointer or the focus is on the button.
let noticeTimer = 0;
function notice(text, undo) {
  setText(at("notice"), text);
  at("undo").hidden = !undo;
  at("undo").onclick = () => {
    notice("");
    at("main").focus({ preventScroll: true }); // the button has gone, and the focus must not go with it
    undo();
  };
  const end = () => {
    if (undo && at("undo").matches(":hover, :focus")) noticeTimer = setTimeout(end, 1000);
    else notice("");
  };
  clearTimeout(noticeTimer);
  if (text !== "") noticeTimer = setTimeout(end, undo ? 20_000 : 8000);
}

// The connection. Its state is one of connecting, live, lost.
const longest = 15; // seconds between two attempts
const wake = new EventTarget(); // "retry": do not wait any longer
let attempts = 0;
at("retry").addEventListener("click", () => wake.dispatchEvent(new Event("retry")));
addEventListener("online", () => wake.dispatchEvent(new Event("retry")));

function link(kind, text) {
  at("link").dataset.state = kind;
  setText(at("link-text"), text);
}

function alive() {
  if (at("link").dataset.state === "live") return;
  const again = document.body.classList.contains("stale");
  attempts = 0;
  link("live", "Live");
  at("banner").hidden = true;
  document.body.classList.remove("stale");
  at("forget").hidden = !keepToken();
  setText(at("status"), again ? "Connected again. The numbers are live." : "Connected. The numbers are live.");
  if (again) notice("Connected again.");
}

function lost(why) {
  if (!document.body.classList.contains("stale")) {
    setText(at("status"), "Connection lost. The numbers are no longer up to date.");
    gap();
  }
  setText(at("banner-title"), state ? "Connection lost." : "Not connected.");
  document.body.classList.add("stale");
  link("lost", "Offline");
  at("banner").hidden = false;
  at("retry").hidden = false;
  setText(at("banner-text"), why);
}

// The token can be forgotten. Then nothing is left on the page.
let stream = null; // the abort controller of what is being read
at("forget").addEventListener("click", () => {
  forgetToken();
  location.reload();
});

// Any request may be the first that is refused. The stream then stops waiting, and the page asks for a token.
let tokenRefused = false; // since the operator gave one
doors.addEventListener("locked", ({ detail }) => {
  tokenRefused ||= detail.sent !== "";
  stream?.abort(detail);
  wake.dispatchEvent(new Event("retry"));
});

// catchUp shows the state with what the service has kept of the last two minutes. The stream has no history.
const slowest = 30_000; // milliseconds that the answer may take
async function catchUp(abort) {
  const first = await get("state", { history: 1 }, AbortSignal.any([abort.signal, AbortSignal.timeout(slowest)]));
  if (steppedBack(first)) restart();
  streamed = false;
  show(first);
}

// keepConnected reads one stream after the other. A stream that the service ends is opened again at once. A broken one
// is opened after a pause, which doubles from one second to fifteen, with a fifth of chance so that many pages do not come back together.
async function keepConnected() {
  for (;;) {
    const abort = new AbortController();
    const begun = performance.now();
    stream = abort;
    try {
      await catchUp(abort);
      await events(take, abort);
      if (performance.now() - begun > 5000) continue;
      await pause("The service ended the stream.");
    } catch (problem) {
      stream = null;
      if (problem.status === 401) await askForToken();
      else await pause(reason(problem));
    }
  }
}

function reason(problem) {
  if (problem.problem?.field === "streams") return "The service has too many pages open.";
  if (problem.problem?.detail) return `The service refused: ${problem.message}.`;
  if (problem.status !== undefined) return `The answer has the status ${problem.status}: a proxy may be in the way.`;
  return "The service cannot be reached.";
}

async function pause(why) {
  const seconds = Math.min(longest, 2 ** attempts) * (0.9 + 0.2 * Math.random());
  attempts += 1;
  const end = performance.now() + seconds * 1000;
  const tell = () => {
    const left = Math.max(1, Math.ceil((end - performance.now()) / 1000));
    lost(`${why} These numbers are from ${state ? new Date(state.time).toLocaleTimeString() : "before"}. Trying again in ${left} s.`);
  };
  tell();
  const timer = setInterval(tell, 250);
  await new Promise((resolve) => {
    setTimeout(resolve, seconds * 1000);
    wake.addEventListener("retry", resolve, { once: true });
  });
  clearInterval(timer);
  setText(at("banner-text"), "Trying again now.");
}

// askForToken resolves when the operator has given a token. Without one there is nothing to show.
async function askForToken() {
  const dialog = at("token-dialog");
  link("lost", "Locked");
  tokenError(tokenRefused ? "The service did not accept this token." : "");
  at("token").value = "";
  dialog.showModal();
  at("token").focus();
  dialog.onclose = () => dialog.showModal(); // Escape leads nowhere: there is nothing to see without a token
  const token = await new Promise((resolve) => {
    at("token-form").onsubmit = (event) => {
      event.preventDefault();
      const text = at("token").value.trim();
      if (/^[\w.~+/=-]+$/.test(text)) resolve(text);
      else tokenError("A token has letters, digits and -._~+/= only, and at least one of them.");
    };
  });
  setToken(token);
  tokenRefused = false;
  at("token").value = "";
  dialog.onclose = null;
  dialog.close();
}

// tokenError says what is wrong with the token, "" for nothing.
function tokenError(text) {
  setText(at("token-error"), text);
  at("token").setAttribute("aria-invalid", String(text !== ""));
}

// take shows a state of the stream.
function take(next) {
  if (streamed && steppedBack(next)) restart(); // the first of a stream may be older than the state before it
  streamed = true;
  show(next);
  alive();
}

// steppedBack reports whether the service's clock was set back. The samples so far would lie in the future.
function steppedBack(next) {
  return state !== null && Date.parse(next.time) < Date.parse(state.time);
}

function show(next) {
  const before = state;
  know(next); // a load balancer may lead the stream to another replica than the request before
  state = next;
  if (next.process.started !== process) {
    if (before) restart();
    process = next.process.started;
  }
  const t = Date.parse(next.time) / 1000;
  showProcess(next, t);
  showFleet(next, notice);
  showPeers(next);
  showTables(next);
  showLeases(next, notice);
  showLimiters(next, t, showFile(next), notice);
}

function showProcess({ process: about }, t) {
  const up = t - Date.parse(about.started) / 1000;
  const version = about.version && about.version !== "(devel)" ? `${about.version} · ` : "";
  setText(at("replica"), replicaName());
  setText(at("process"), `${version}${about.go} · up ${duration(Math.max(1, up))}`);
}

keepConnected();
