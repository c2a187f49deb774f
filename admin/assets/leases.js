// The lease service: its semaphores, read every two seconds while they can be seen, the holders of each, and
// the way to break a lease.
import { el, setText, table, number, exact, duration, isolated } from "./dom.js";
import { get, Refused, locked } from "./api.js";
import { read, change, instead } from "./dialog.js";
import { field, textual } from "./fields.js";
import { here } from "./replica.js";

const pause = 2000;
const shownAtMost = 100; // semaphores on the page, and locks of each kind in the dialog
const hovers = matchMedia("(hover: hover)");
const section = document.getElementById("leases");
const facts = el("dl", { class: "facts" });
const values = new Map();
const body = el("tbody");
const sheet = table("Semaphores: most that is pending first", ["Semaphore", "Held", "Holders", "Pending", "Waiters", "Longest wait", "Level", ""], body);
const note = el("p", { class: "empty" });
const other = textual("");
const ask = el("form", { class: "ask", hidden: true, onsubmit: (event) => { event.preventDefault(); locks(other.value); } },
  field("semaphore", "Any semaphore", other), el("button", { text: "Holders" }));
let timer = null;
let asking = false;
let done = () => {};

// showLeases shows the section if the state has leases, and keeps it fresh. notice shows what has been done.
export function showLeases({ leases }, notice) {
  done = (text) => { notice(text); refresh(); };
  section.hidden = !leases;
  if (!leases || timer !== null) return;
  section.lastElementChild.append(facts, sheet, note, ask);
  timer = setInterval(refresh, pause);
  refresh();
}

// held reports whether a pointer is on a row: then the row must not move away under it.
function held() {
  return body.matches(":focus-within") || (hovers.matches && body.matches(":hover"));
}

async function refresh() {
  if (asking || section.hidden || document.hidden || locked()) return;
  asking = true;
  try {
    show(await get("leases", { top: shownAtMost }));
  } catch {
    // The stream reports when the service cannot be reached; the numbers stay as they were.
  } finally {
    asking = false;
  }
}

function show(state) {
  const { semaphores, more = 0 } = state;
  fact("This process", state.leads ? "grants leases" : "is on stand-by");
  fact("Leader", state.leads ? "" : state.leader || "not known");
  fact("Only restored for", state.grace_seconds > 0 ? duration(state.grace_seconds) : "");
  fact("Peers", exact(state.peers));
  fact("Semaphores", exact(semaphores.length + more));
  const paused = held();
  const left = more > 0 ? `${exact(more)} more semaphores are not shown.` : "";
  setText(note, paused ? "Not refreshed while you are in the table." : semaphores.length === 0 ? "No semaphore." : left);
  note.hidden = note.textContent === "";
  ask.hidden = more === 0; // all have a button
  if (paused) return;
  sheet.hidden = semaphores.length === 0;
  body.replaceChildren(...semaphores.map(line));
}

function fact(name, value) {
  if (!values.has(name)) {
    const dd = el("dd");
    values.set(name, { dd, row: el("div", {}, el("dt", { text: name }), dd) });
    facts.append(values.get(name).row);
  }
  values.get(name).row.hidden = value === "";
  setText(values.get(name).dd, value);
}

function line(s) {
  const percent = Math.round((100 * s.acquired) / s.max);
  const bar = el("meter", { min: 0, max: 100, high: 99, optimum: 0, value: Math.min(100, percent), "aria-hidden": "true" });
  return el("tr", {},
    el("th", { scope: "row", class: "key" }, el("bdi", { text: s.name }), s.gone ? el("span", { class: "badge", title: "no longer in the configuration, but held", text: "gone" }) : null),
    el("td", {}, el("span", { class: "use" }, bar, el("span", { text: `${exact(s.acquired)} of ${exact(s.max)}` }))),
    el("td", { text: exact(s.holders) }),
    el("td", { text: exact(s.pending) }),
    el("td", { text: exact(s.waiters) }),
    el("td", { text: s.waiters > 0 ? duration(s.longest_pending_seconds) : "–" }),
    el("td", { text: exact(s.level) }),
    el("td", { class: "acts" }, el("button", { type: "button", class: "small", text: "Holders", "aria-label": `Holders of ${s.name}`, onclick: () => locks(s.name) })));
}

// locks shows the holders of a semaphore and the peers that wait for it.
function locks(semaphore) {
  read(`Semaphore ${semaphore}`, async () => {
    const seen = await get("leases", { semaphore, top: shownAtMost });
    const now = Date.parse(seen.time);
    return [
      ...list("Holders", "Held for", seen.held, now, (lock) => instead(() => breakLease(semaphore, lock))),
      ...list("Waiters", "Waiting for", seen.pending, now, null),
    ];
  });
}

// list is a table of locks under a heading. onBreak is what the button of a lock does; null: there is none.
function list(title, age, of, now, onBreak) {
  const row = (lock) => el("tr", {},
    el("th", { scope: "row", class: "key" }, el("span", { text: lock.peer }), onBreak ? el("div", { class: "muted", text: `token ${lock.token}` }) : null),
    el("td", { text: exact(lock.count) }),
    el("td", { text: duration(lock.age_seconds) }),
    el("td", { text: duration(Math.max(0, (Date.parse(lock.expires) - now) / 1000)) }),
    el("td", { class: "acts" }, onBreak ? el("button", { type: "button", "data-writes": true, class: "small", text: "Break", "aria-label": `Break the lease of peer ${lock.peer}`, onclick: () => onBreak(lock) }) : null));
  const heading = el("h3", { text: of.length < shownAtMost ? title : `${title}: the oldest ${number(shownAtMost)}` });
  if (of.length === 0) return [heading, el("p", { class: "empty", text: "None." })];
  return [heading, table(`${title}, oldest first`, ["Peer", "Count", age, "Expires in", ""], el("tbody", {}, ...of.map(row)))];
}

// breakLease takes a lock from its holder. There is nothing to fill in.
function breakLease(semaphore, { peer, etag }) {
  change({
    title: `Break a lease ${here()}`,
    about: `Peer ${peer} loses its lock, and learns of it at its next heartbeat. Until then it may still use what the lock is for. Semaphore: ${isolated(semaphore)}`,
    from: "leases",
    query: { semaphore, top: 1000 },
    done,
    edit(seen) {
      const lock = seen.held.find((one) => one.etag === etag);
      if (!lock) throw new Refused(404, { detail: "The peer does not hold this lock any more" });
      const waiters = seen.pending.length;
      const rows = [
        [`Peer ${peer}`, `holds ${exact(lock.count)}, for ${duration(lock.age_seconds)}`, "holds nothing of it"],
        ["Waiters", exact(waiters), waiters > 0 ? "those that fit hold it, in their order" : exact(waiters)],
        ["Token", lock.token, lock.token],
      ];
      const sent = { semaphore, peer, token: lock.token };
      return { collect: () => ({ method: "POST", path: "leases/break", targets: [{ etag }], body: sent, rows, done: `The lease of peer ${peer} is broken.` }) };
    },
  });
}
