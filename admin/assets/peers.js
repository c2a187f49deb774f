// The pods of the fleet, one row each, requested every two seconds while the page can be seen. The service asks them, and marks what one has
// otherwise than most.
import { el, setText, table, labelled, number, exact, duration } from "./dom.js";
import { get, locked } from "./api.js";

const pause = 2000;
const columns = ["Pod", "Replicas", "Share", "Admitted", "Refused", "Last report", "Up"];
const section = document.getElementById("peers");
const body = el("tbody");
const note = el("p", { class: "muted", role: "status" });
const error = el("p", { class: "pool-error", hidden: true });
const rows = []; // those of body, which change in place
let before = new Map(); // the pods of the look before, by process
let timer = null;
let shown = 0; // the time of the look that is shown
let asking = false;

// showPeers shows the pods, where the service knows of any.
export function showPeers({ peers = false }) {
  section.hidden = !peers;
  if (peers === (timer !== null)) return;
  clearInterval(timer);
  timer = peers ? setInterval(refresh, pause) : null;
  if (!peers) return;
  const label = "Pods, and what each believes and does";
  const box = el("div", { class: "scroll", role: "group", "aria-label": label, tabindex: "0" }, table(label, columns, body, { cards: true }));
  section.querySelector(".card").replaceChildren(error, box, note);
  refresh();
}

async function refresh() {
  if (asking || locked() || document.hidden) return;
  asking = true;
  try {
    show(await get("peers"));
  } catch {
    // The stream reports when the service cannot be reached; the rows stay as they were.
  } finally {
    asking = false;
  }
}

// show has those that need a look in front, since a fleet of hundreds is scrolled.
function show({ time, error: unread, pods: all }) {
  const rank = (pod) => (pod.error ? 0 : pod.differs.length ? 1 : 2);
  const pods = [...all].sort((a, b) => rank(a) - rank(b));
  const t = Date.parse(time) / 1000;
  if (t === shown) return; // a look serves for a second
  shown = t;
  while (rows.length > pods.length) rows.pop().node.remove();
  while (rows.length < pods.length) {
    rows.push(row());
    body.append(rows.at(-1).node);
  }
  const seen = new Map();
  for (const [i, pod] of pods.entries()) {
    const who = JSON.stringify([pod.name, pod.address, pod.started]);
    seen.set(who, { t, pod });
    rows[i].show(pod, t, before.get(who));
  }
  before = seen;
  setText(error, unread ? `The list of the pods cannot be read: ${unread}` : "");
  error.hidden = unread === "";
  const silent = pods.filter((pod) => pod.error).length;
  const odd = pods.filter((pod) => pod.differs.length).length;
  const known = pods.length === 1 ? "1 pod" : `${exact(pods.length)} pods`;
  setText(note, [known, silent && `${exact(silent)} without an answer`, odd && `${exact(odd)} with something that others have otherwise`].filter(Boolean).join(", "));
}

function row() {
  const name = el("bdi");
  const self = el("span", { class: "badge", text: "this one", hidden: true });
  const marks = { failed: el("span", { class: "badge denies", text: "no answer", hidden: true }), differs: el("span", { class: "badge dry", text: "differs", hidden: true }) };
  const why = el("p", { class: "why", hidden: true });
  const cells = columns.slice(1).map(() => el("td"));
  const node = labelled(columns, el("tr", {}, el("th", { scope: "row", class: "key" }, name, " ", self, " ", marks.failed, " ", marks.differs, why), ...cells));
  const show = (pod, t, last) => {
    setText(name, pod.name || pod.address || "(no name)");
    self.hidden = !pod.self;
    marks.failed.hidden = pod.error === "";
    marks.differs.hidden = pod.differs.length === 0;
    setText(why, pod.error || pod.differs.join("; "));
    why.hidden = why.textContent === "";
    why.classList.toggle("bad", pod.error !== "");
    texts(pod, t, last).forEach((text, i) => setText(cells[i], text));
  };
  return { node, show };
}

// texts are what stands in the cells of a pod. Rates are taken from one look to the next.
function texts(pod, t, last) {
  if (pod.error !== "") return columns.slice(1).map(() => "–");
  const rate = (what) => (last && t > last.t && !last.pod.error ? `${number(Math.max(0, pod[what] - last.pod[what]) / (t - last.t))}/s` : "–");
  const span = (from, to) => (from === to ? number(from) : `${number(from)} to ${number(to)}`);
  return [
    pod.limiters ? span(pod.replicas_from, pod.replicas_to) : "–",
    pod.limiters ? `${span(100 * pod.share_from, 100 * pod.share_to)} %` : "–",
    rate("admitted"),
    rate("refused"),
    pod.age_seconds > 0 ? `${duration(pod.age_seconds)} ago` : "–",
    pod.started ? duration(Math.max(0, t - Date.parse(pod.started) / 1000)) : "–",
  ];
}
