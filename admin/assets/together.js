// The limiters of one name report this to each other: totals of all replicas, keys that are short, the age of the reports.
import { el, setText, exact, number } from "./dom.js";

const span = 10; // seconds over which rates are taken

export class Together {
  constructor() {
    this.seen = []; // the states of the last seconds
    this.badge = el("span", { class: "badge dry", hidden: true });
    this.facts = new Map();
    this.list = el("dl", { class: "facts" });
    this.node = el("div", { class: "part", hidden: true }, el("h3", { text: "Together with the other replicas" }), this.list);
  }

  // take adds a state at an instant of the service's clock, in seconds.
  take(state, t) {
    const { demand, fleet } = state;
    if (!demand || t <= this.seen.at(-1)?.t) this.seen = [];
    if (!demand) return;
    const refused = Object.values(state.refused).reduce((a, b) => a + b, 0);
    this.seen.push({ t, fleet, demand, own: { admitted: state.admitted, refused } });
    while (this.seen[0].t < t - span) this.seen.shift();
  }

  // restart forgets what another process has counted.
  restart() {
    this.seen = [];
  }

  draw(state) {
    const { demand, fleet, pool } = state;
    this.node.hidden = !demand;
    this.badge.hidden = !demand || demand.fresh;
    if (!demand) return;
    setText(this.badge, demand.missing ? "Reports are missing: each replica keeps to its share" : "Reports are old: each replica keeps to its share");
    this.put("Admitted", this.both("admitted"));
    this.put("Refused", this.both("refused"));
    this.put("In flight", `${exact(state.in_flight)} here, ${total(fleet, fleet.in_flight)}`);
    this.put("Waiting", `${exact(state.waiting)} here, ${total(fleet, fleet.waiting)}`);
    this.put("Counted", `${exact(fleet.replicas)} of ${exact(pool.replicas)} replicas`);
    this.put("Keys reported", demand.keys > 0 ? `${exact(demand.keys)}, ${exact(demand.named)} by this replica` : "none is short");
    this.put("Borrowed here", demand.lent === 1 ? "of 1 key" : `of ${exact(demand.lent)} keys`);
    this.put("Oldest report", `${demand.missing ? "missing" : `${number(demand.age_seconds)} s`}, at most ${exact(demand.max_age_seconds)} s`);
    this.put("Traffic of all limiters", `${this.bytes("sent_bytes")} out, ${this.bytes("received_bytes")} in`);
  }

  put(name, text) {
    if (!this.facts.has(name)) {
      const dd = el("dd");
      this.facts.set(name, dd);
      this.list.append(el("div", {}, el("dt", { text: name }), dd));
    }
    setText(this.facts.get(name), text);
  }

  both(name) {
    const last = this.seen.at(-1);
    const other = this.seen.findLastIndex(({ fleet }) => fleet.missing || fleet.replicas !== last.fleet.replicas);
    const same = this.seen.slice(other + 1); // the counts of a replica come and go with it, which is no rate
    const words = (n) => (n === null ? "–" : `${number(n)}/s`);
    const fleet = last.fleet.missing ? "all replicas unknown" : `all replicas ${words(rate(same, (s) => s.fleet[name]))}`;
    return `${words(rate(this.seen, (s) => s.own[name]))} here, ${fleet}`;
  }

  bytes(name) {
    const n = rate(this.seen, (s) => s.demand[name]);
    return n === null ? "–" : n >= 1024 ? `${number(n / 1024)} KiB/s` : `${number(Math.round(n))} B/s`;
  }
}

// rate is how much a figure has grown a second over some states; null where there is only one.
function rate(seen, figure) {
  const first = seen[0];
  const last = seen.at(-1);
  return first === last ? null : Math.max(0, figure(last) - figure(first)) / (last.t - first.t);
}

function total(fleet, n) {
  return fleet.missing ? "all replicas unknown" : `all replicas ${exact(n)}`;
}
