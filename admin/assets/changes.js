// The changes that an operator can make: what each asks for, sends and shows for confirmation.
import { el, exact, number, limitText, rateText, duration } from "./dom.js";
import { field, numeric, textual, select, choice, checkbox, numberOf } from "./fields.js";
import { change } from "./dialog.js";
import { get, named } from "./api.js";

// replicas changes the pool size, of the limiter of that name or, where it is "", of all.
export function replicas(name, done) {
  change({
    title: "Change replicas",
    about: "Every key's share follows at once.",
    query: {},
    done,
    edit({ limiters }) {
      const names = Object.keys(limiters).sort();
      const first = limiters[name || names[0]].pool;
      const whose = select([["", "All limiters"], ...names.map((n) => [n, n])], name);
      const count = numeric(first.replicas);
      const weight = numeric(first.weight > 1 ? first.weight : "");
      const ordinal = numeric(first.ordinal || "");
      const minutes = numeric("");
      const nodes = [
        field("limiter", "For", whose),
        field("replicas", "Replicas", count, "Live processes that share the limits, each by its weight."),
        field("weight", "This one counts as", weight, "Optional: its weight, 1 to replicas. Empty: 1."),
        field("ordinal", "This is replica number", ordinal, "Optional: 1 to replicas, the first of its weight. Empty: unknown."),
        field("ttl_seconds", "For how many minutes", minutes, "Optional. Afterwards the size that is followed or configured counts again."),
      ];
      const collect = () => poolChange(limiters, whose.value, numberOf(count), numberOf(weight), numberOf(ordinal), numberOf(minutes));
      return { nodes: names.length > 1 ? nodes : nodes.slice(1), focus: count, collect };
    },
  });
}

function poolChange(limiters, name, count, weight, ordinal, minutes) {
  const names = name === "" ? Object.keys(limiters).sort() : [name];
  const pools = names.map((n) => limiters[n].pool);
  const seconds = typeof minutes === "number" ? minutes * 60 : minutes;
  const listed = (texts) => [...new Set(texts)].join(", ");
  return {
    path: "replicas",
    targets: names.map((n) => ({ limiter: n, etag: limiters[n].etag })),
    body: { replicas: count, weight, ordinal, ttl_seconds: seconds },
    rows: [
      ["Limiters", name || "all", name || "all"],
      ["Replicas", listed(pools.map((p) => exact(p.replicas))), shown(count)],
      ["Counts as", listed(pools.map((p) => exact(p.weight))), weight === undefined ? "1" : shown(weight)],
      ["This is replica", listed(pools.map((p) => (p.ordinal ? exact(p.ordinal) : "unknown"))), ordinal ? shown(ordinal) : "unknown"],
      ["Said by", listed(pools.map((p) => p.source)), seconds ? `an operator, for ${typeof seconds === "number" ? duration(seconds) : seconds}` : "an operator, until it is changed"],
    ],
    done: `Replicas set to ${shown(count)}.`,
  };
}

function shown(value) {
  return typeof value === "number" ? exact(value) : value === undefined ? "nothing" : String(value);
}

// limit changes the limit of a limiter.
export function limit(name, done) {
  change({
    title: "Change the limit",
    about: `Of limiter ${name}: what one key may do over the whole fleet.`,
    query: { limiter: name },
    done,
    edit(seen) {
      const old = seen.limiters[name].limit;
      const editor = limitEditor(old, [["limit", "Limit"], ["deny", "Deny everything"]], old.denies ? "deny" : "limit");
      const etag = seen.limiters[name].etag;
      const collect = () => ({ path: "limit", targets: [{ limiter: name, etag }], body: editor.value(), rows: limitRows(old, editor.value()), done: `Limit of ${name} changed.` });
      return { nodes: editor.nodes, collect };
    },
  });
}

// plan sets, changes or takes off a plan's limit. which is its name, "" where the operator has yet to name it.
export function plan(name, which, done) {
  change({
    title: which === "" ? "Add a plan" : "Change a plan",
    about: `In limiter ${name}: what each key of the plan may do over the whole fleet, in place of the limiter's limit.`,
    query: { limiter: name },
    done,
    edit(seen) {
      const state = seen.limiters[name];
      const old = planLimit(state, which);
      const options = [["limit", "Limit"], ["deny", "Deny everything"]];
      if (old) options.push(["remove", "Remove the plan"]);
      const editor = limitEditor(old ?? state.limit, options, old?.denies ? "deny" : "limit");
      const box = textual(which);
      box.readOnly = which !== "";
      const collect = () => planChange(name, state, box.value, editor.value());
      return { nodes: [field("plan", "Plan", box), ...editor.nodes], collect };
    },
  });
}

// removePlan takes a plan off.
export function removePlan(name, which, done) {
  change({
    title: "Remove a plan",
    about: `In limiter ${name}: the keys of plan ${which} come under the limiter's own limit. Asks that still name the plan are refused.`,
    query: { limiter: name },
    done,
    edit(seen) {
      return { collect: () => planChange(name, seen.limiters[name], which, null) };
    },
  });
}

function planLimit(state, which) {
  return state.plans.find((one) => one.name === which)?.limit ?? null;
}

function planChange(name, state, which, value) {
  const old = planLimit(state, which);
  const text = (limit) => (limit ? limitText(limit) : "no such plan");
  return {
    path: "plan",
    targets: [{ limiter: name, etag: state.etag }],
    body: { plan: which, limit: value },
    rows: [["Plan", which, which], ...ownRows(old, value, text)],
    done: value ? `Plan ${which} set.` : `Plan ${which} removed.`,
  };
}

// ownRows compares a limit that a plan or a key has of its own with another one, or with none.
function ownRows(old, value, text) {
  return value && old && !old.denies && !value.deny ? limitRows(old, value) : [["Limit", text(old), text(value)]];
}

// ownLimit is the limit that a key has of its own, or null. The state shows the first thousand only; what the service explains is right for all.
async function ownLimit(name, key) {
  const { overridden, limit } = await get("explain", { limiter: name, ...named(key) });
  return overridden ? limit : null;
}

// override sets, changes or takes off one key's own limit. key, { key, key_base64 }, is null where the operator has yet to name it.
export function override(name, key, done) {
  change({
    title: key === null ? "Override a key" : "Change an override",
    about: `In limiter ${name}: a limit for one key, in place of the limiter's.`,
    query: { limiter: name },
    done,
    async edit(seen) {
      const state = seen.limiters[name];
      const old = key === null ? null : await ownLimit(name, key);
      const options = [["limit", "Its own limit"], ["deny", "Deny everything"]];
      if (old) options.push(["remove", "Remove the override"]);
      const editor = limitEditor(old ?? state.limit, options, old?.denies ? "deny" : "limit");
      const box = textual(key === null ? "" : key.key);
      if (key !== null) box.readOnly = true;
      const collect = async () => {
        const value = editor.value();
        const which = key ?? { key: box.value };
        return overrideChange(name, state.etag, which, await ownLimit(name, which), value);
      };
      return { nodes: [field("key", "Key", box), ...editor.nodes], collect };
    },
  });
}

// remove takes a key's override off.
export function remove(name, key, done) {
  change({
    title: "Remove an override",
    about: `In limiter ${name}, for key ${key.key}: the limiter's own limit holds again.`,
    query: { limiter: name },
    done,
    edit(seen) {
      const { etag } = seen.limiters[name];
      return { collect: async () => overrideChange(name, etag, key, await ownLimit(name, key), null) };
    },
  });
}

function overrideChange(name, etag, key, old, value) {
  return {
    path: "override",
    targets: [{ limiter: name, etag }],
    body: { ...named(key), limit: value },
    rows: [["Key", key.key, key.key], ...ownRows(old, value, limitText)],
    done: value ? `Override of ${key.key} set.` : `Override of ${key.key} removed.`,
  };
}

// reset forgives a key: it starts fresh. There is nothing to fill in.
export function reset(name, key, done) {
  change({
    title: "Reset a key",
    about: `In limiter ${name}, on this replica: the key starts fresh. Its requests in flight, those that wait and its own limit stay.`,
    query: { limiter: name },
    done,
    edit(seen) {
      const { etag } = seen.limiters[name];
      const collect = async () => ({
        path: "reset",
        targets: [{ limiter: name, etag }],
        body: named(key),
        rows: [["Key", key.key, key.key], ...resetRows(await get("explain", { limiter: name, ...named(key) }))],
        done: `Key ${key.key} starts fresh.`,
      });
      return { collect };
    },
  });
}

// resetRows says where a key stands, and what of that a reset changes.
function resetRows(about) {
  const fresh = (old) => (about.remembered ? "as of a key never seen" : old);
  const rates = about.rules.slice(0, about.limit.rates.length).map((rule) => {
    const left = `${number(rule.tokens)} left${rule.resets_seconds > 0 ? `, full in ${duration(rule.resets_seconds)}` : ""}`;
    return [rule.name, left, fresh(left)];
  });
  const learned = about.learned.filter((law) => law.forgotten_in_seconds > 0).map((law) => [`Learned${law.unit ? ` of ${law.unit}` : ""}`, `${number(law.pace)} / s`, "forgotten"]);
  const waiting = exact(about.waiting);
  return [
    ["Remembered", about.remembered ? "yes" : "no", about.remembered ? "yes" : "no"],
    ...rates,
    ...learned,
    ["In flight", exact(about.in_flight), exact(about.in_flight)],
    ["Waiting", waiting, about.remembered && about.waiting > 0 ? "those go for whom there is room then" : waiting],
  ];
}

// dryRun turns dry run on or off.
export function dryRun(name, on, done) {
  change({
    title: on ? "Turn dry run on" : "Turn dry run off",
    about: on ? `Limiter ${name} then decides and counts, but admits everything.` : `Limiter ${name} then refuses again what is beyond its limit.`,
    query: { limiter: name },
    done,
    edit(seen) {
      const words = (yes) => (yes ? "on: admits everything" : "off: enforces the limit");
      const { dry_run: old, etag } = seen.limiters[name];
      const rows = [["Dry run", words(old), words(on)]];
      return { collect: () => ({ path: "dry-run", targets: [{ limiter: name, etag }], body: { dry_run: on }, rows, done: `Dry run of ${name} is ${on ? "on" : "off"}.` }) };
    },
  });
}

// limitRows compares two limits rule by rule.
function limitRows(old, now) {
  if (old.denies || now.deny) return [["Limit", limitText(old), limitText(now)]];
  const rows = [];
  for (let i = 0; i < Math.max(old.rates.length, now.rates.length); i++) {
    const text = (rate) => (rate ? `${rate.name ? `${rate.name}: ` : ""}${rateText(rate)}` : "none");
    rows.push([`Rate ${i + 1}`, text(old.rates[i]), text(now.rates[i])]);
  }
  const slots = (n) => (n ? exact(n) : "no bound");
  rows.push(["In flight", slots(old.in_flight), typeof now.in_flight === "string" ? now.in_flight : slots(now.in_flight)]);
  return rows;
}

// limitEditor makes the fields of a limit. Its value is a limit, or null for "remove".
function limitEditor(old, options, chosen) {
  let kind = chosen;
  const rates = [];
  const list = el("div", { class: "rates" });
  const slots = numeric(old.in_flight || "");
  const renumber = () => rates.forEach((rate, i) => rate.number(i));
  const add = (values) => {
    const rate = rateEditor(values, () => {
      rates.splice(rates.indexOf(rate), 1);
      rate.node.remove();
      renumber();
      more.focus();
    });
    rates.push(rate);
    list.append(rate.node);
    renumber();
    return rate;
  };
  const more = el("button", { type: "button", text: "Add a rate", onclick: () => add({ per_seconds: 1 }).focus() });
  const details = el("div", { class: "own", hidden: kind !== "limit" }, list, more, field("in_flight", "In flight", slots, "Most requests at a time, over the fleet. Empty: no bound."));
  const radios = choice("kind", "What holds", options, kind, (value) => {
    kind = value;
    details.hidden = kind !== "limit";
  });
  old.rates.forEach(add);
  const value = () => {
    if (kind === "remove") return null;
    if (kind === "deny") return { deny: true };
    return { rates: rates.map((rate) => rate.value()), in_flight: numberOf(slots) ?? 0 };
  };
  return { nodes: [radios, details], value };
}

// rateEditor makes the fields of one rate.
function rateEditor(old, onRemove) {
  const controls = {
    events: numeric(old.events),
    per_seconds: numeric(old.per_seconds),
    burst: numeric(old.burst || ""),
    name: textual(old.name),
    unit: textual(old.unit),
  };
  const aligned = checkbox("aligned", "Aligned to the wall clock", old.aligned);
  const counted = checkbox("counted", "Counted over the fleet (aligned only)", old.counted);
  const turns = checkbox("no_turns", "No turns between replicas", old.no_turns);
  const legend = el("legend");
  const removeButton = el("button", { type: "button", class: "quiet", text: "Remove", onclick: onRemove });
  const labels = { events: "Events", per_seconds: "Per seconds", burst: "Burst", name: "Name", unit: "Unit" };
  const fields = Object.entries(controls).map(([name, control]) => field(name, labels[name], control));
  const node = el("fieldset", { class: "rate" }, legend, el("div", { class: "grid" }, ...fields), aligned.node, counted.node, turns.node, removeButton);
  return {
    node,
    focus: () => controls.events.focus(),
    number(i) {
      legend.textContent = `Rate ${i + 1}`;
      removeButton.setAttribute("aria-label", `Remove rate ${i + 1}`);
      for (const [name, control] of Object.entries({ ...controls, aligned: aligned.input, counted: counted.input, no_turns: turns.input })) control.dataset.field = `rates[${i}].${name}`;
    },
    value: () => ({
      name: controls.name.value,
      unit: controls.unit.value,
      events: numberOf(controls.events),
      per_seconds: numberOf(controls.per_seconds),
      burst: numberOf(controls.burst) ?? 0,
      aligned: aligned.input.checked,
      counted: counted.input.checked,
      no_turns: turns.input.checked,
    }),
  };
}
