// The replica count that each limiter of this process uses.
import { el, setText, exact, duration, several, untilText } from "./dom.js";
import { replicas } from "./changes.js";

// showFleet shows the replica count, once for all limiters that use the same. It comes from the same source for those.
const pools = new Map(); // tiles by what is believed
export function showFleet({ limiters, time }, notice) {
  document.getElementById("fleet").hidden = Object.keys(limiters).length === 0;
  const groups = new Map();
  for (const name of Object.keys(limiters).sort()) {
    const { pool } = limiters[name];
    const belief = JSON.stringify([pool.replicas, pool.weight, pool.ordinal, pool.source, pool.until ?? ""]);
    if (!groups.has(belief)) groups.set(belief, []);
    groups.get(belief).push(name);
  }
  const all = Object.keys(limiters);
  const beliefs = [...groups.keys()];
  if (beliefs.join() !== [...pools.keys()].join()) {
    const old = new Map(pools);
    pools.clear();
    for (const belief of beliefs) pools.set(belief, old.get(belief) ?? poolTile(notice));
    document.getElementById("pools").replaceChildren(...[...pools.values()].map((tile) => tile.node));
  }
  for (const [belief, names] of groups) pools.get(belief).show(limiters, names, all, Date.parse(time) / 1000);
}

const sources = {
  configured: "configured",
  set: "an operator",
  followed: "followed",
  awaited: "not known yet: nothing is admitted",
};

// poolTile shows one replica count and the limiters that use it.
function poolTile(notice) {
  const size = el("span", { class: "size" });
  const unit = el("span", { class: "of" });
  const whose = el("p", { class: "whose" });
  const facts = el("dl", { class: "facts" });
  const error = el("p", { class: "pool-error" });
  let names = [];
  let all = []; // limiters of the process
  const act = el("button", { type: "button", "data-writes": true, text: "Change replicas", onclick: () => replicas(names, all, notice) });
  const node = el("div", { class: "pool" }, el("div", { class: "big" }, el("p", {}, size, unit), whose), facts, error, act);
  const fact = new Map();
  const put = (name, value) => {
    if (!fact.has(name)) {
      const dd = el("dd");
      fact.set(name, { dd, row: el("div", {}, el("dt", { text: name }), dd) });
      facts.append(fact.get(name).row);
    }
    fact.get(name).row.hidden = value === "";
    setText(fact.get(name).dd, value);
  };
  const show = (limiters, of, every, now) => {
    names = of;
    all = every.toSorted();
    const each = of.map((name) => limiters[name].pool);
    const pool = each[0];
    setText(size, exact(pool.replicas));
    setText(unit, pool.replicas === 1 ? " replica" : " replicas");
    setText(whose, of.length === every.length ? (every.length === 1 ? `limiter ${every[0]}` : "all limiters") : several(of));
    const weight = pool.weight > 1 ? `, counts as ${exact(pool.weight)}` : "";
    put("This one", (pool.ordinal ? `number ${exact(pool.ordinal)}` : "number unknown") + weight);
    put("Source", sources[pool.source] ?? pool.source);
    put("Last report", pool.age_seconds >= 1 ? `${duration(pool.age_seconds)} ago` : pool.age_seconds > 0 ? "just now" : "");
    put("Ends", pool.until ? untilText(pool.until, now) : "");
    const errors = each.reduce((sum, p) => sum + p.errors + p.rejected, 0);
    put("Bad reports", errors > 0 ? exact(errors) : "");
    const last = each.map((p) => p.last_error).find((text) => text) ?? "";
    setText(error, last ? `Last error: ${last}` : "");
    error.hidden = last === "";
  };
  return { node, show };
}
