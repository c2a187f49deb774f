// The changes that an operator can make: the fields of each, what it sends and what it shows for confirmation. Each holds on this replica.
import { el, exact, number, limitText, rateText, duration, untilText, several, isolated } from "./dom.js";
import { field, numeric, textual, select, choice, checkbox, numberOf, atMost } from "./fields.js";
import { change } from "./dialog.js";
import { get, named } from "./api.js";
import { here, now } from "./replica.js";

const longestKey = 4096; // bytes
const longestName = 128; // bytes of a rate's name or unit
const everyOne = "all limiters";

// replicas changes the replica count that some limiters use, by name. all are those of the process.
export function replicas(names, all, done) {
  const label = (list) => (list.length === all.length && all.length > 1 ? everyOne : several(list));
  change({
    title: `Change the replica count of ${names.length > 3 && names.length < all.length ? `${names.length} limiters` : label(names)} ${here()}`,
    about: "This replica divides each limit by it, at once. Other replicas keep theirs.",
    query: {},
    done,
    edit({ limiters }) {
      const there = Object.keys(limiters).sort();
      const mine = names.filter((n) => there.includes(n));
      const lists = [mine, there, ...there.map((n) => [n])].filter(unlike());
      const first = limiters[lists[0][0]].pool;
      const whose = select(lists.map((list, i) => [String(i), label(list)]), "0");
      const most = 1_000_000;
      const count = numeric(first.replicas, { whole: true, low: 1, high: most });
      const total = () => (Number.isInteger(numberOf(count)) ? Math.max(1, numberOf(count)) : most);
      const weight = numeric(first.weight > 1 ? first.weight : "", { whole: true, low: 1, high: total, optional: true });
      const last = () => Math.max(1, total() - (Number.isInteger(numberOf(weight)) ? numberOf(weight) : 1) + 1);
      const ordinal = numeric(first.ordinal || "", { whole: true, low: 1, high: last, optional: true });
      const minutes = numeric("", { low: 0.001, high: 525_600, optional: true });
      const nodes = [
        field("limiter", "For", whose),
        field("replicas", "Replicas", count, "Running processes that share the limits, each by its weight."),
        field("weight", "This one counts as", weight, "Optional: its weight, 1 to replicas. Empty: 1."),
        field("ordinal", "This is replica number", ordinal, "Optional: 1 to replicas, the first of its weight. Empty: unknown."),
        field("ttl_seconds", "For how many minutes", minutes, "Optional. Afterwards the followed or configured count is used again."),
      ];
      const collect = () => poolChange(limiters, lists[Number(whose.value)], label(lists[Number(whose.value)]), numberOf(count), numberOf(weight), numberOf(ordinal), numberOf(minutes));
      return { nodes: lists.length > 1 ? nodes : nodes.slice(1), focus: count, collect };
    },
  });
}

// unlike returns a filter that leaves out empty lists, and those that came before.
function unlike() {
  const seen = new Set([""]);
  return (list) => seen.size < seen.add(list.join()).size;
}

function poolChange(limiters, names, label, count, weight, ordinal, minutes) {
  const pools = names.map((n) => limiters[n].pool);
  const seconds = minutes === undefined ? undefined : minutes * 60;
  const whose = label === everyOne ? label : names.join(", "); // the review has them all
  const listed = (texts) => [...new Set(texts)].join(", ");
  return {
    path: "replicas",
    targets: names.map((n) => ({ limiter: n, etag: limiters[n].etag })),
    body: { replicas: count, weight, ordinal, ttl_seconds: seconds },
    rows: [
      ["Limiters", whose, whose],
      ["Replicas", listed(pools.map((p) => exact(p.replicas))), exact(count)],
      ["Counts as", listed(pools.map((p) => exact(p.weight))), exact(weight ?? 1)],
      ["This is replica", listed(pools.map((p) => (p.ordinal ? exact(p.ordinal) : "unknown"))), ordinal ? exact(ordinal) : "unknown"],
      ["Source", listed(pools.map((p) => p.source)), seconds ? `an operator, for ${exact(minutes)} min` : "an operator, until it is changed"],
    ],
    done: `Replica count of ${label} set to ${exact(count)}.`,
  };
}

// limit changes the limit of a limiter.
export function limit(name, done) {
  change({
    title: `Change the limit of ${name} ${here()}`,
    about: "The limit of one key over all replicas together. Other replicas keep their limit until it is changed there too.",
    query: { limiter: name },
    done,
    edit(seen) {
      const old = seen.limiters[name].limit;
      const editor = limitEditor(old, kinds("Limit"), kindOf(old));
      const etag = seen.limiters[name].etag;
      const collect = () => ({ path: "limit", targets: [{ limiter: name, etag }], body: editor.value(), rows: limitRows(old, editor.value()), done: `Limit of ${name} changed.` });
      return { nodes: editor.nodes, collect };
    },
  });
}

// plan sets, changes or takes off a plan's limit. which is its name, "" where the operator has yet to name it.
export function plan(name, which, done) {
  change({
    title: `${which === "" ? "Add a plan to" : `Change plan ${which} of`} ${name} ${here()}`,
    about: "The limit of each key of the plan over all replicas together, in place of the limiter's own.",
    query: { limiter: name },
    done,
    edit(seen) {
      const state = seen.limiters[name];
      const old = planLimit(state, which);
      const options = kinds("Limit", ...(old ? [["remove", "Remove the plan"]] : []));
      const editor = limitEditor(old ?? state.limit, options, old ? kindOf(old) : "limit");
      const box = textual(which, (text) => (/^[a-z0-9._-]{1,64}$/.test(text) ? "" : "Enter 1 to 64 of a-z, 0-9, dot, underscore and hyphen."));
      box.readOnly = which !== "";
      const collect = () => planChange(name, state, box.value, editor.value());
      return { nodes: [field("plan", "Plan", box), ...editor.nodes], collect };
    },
  });
}

// removePlan takes a plan off.
export function removePlan(name, which, done) {
  change({
    title: `Remove plan ${which} of ${name} ${here()}`,
    about: "The keys of the plan come under the limiter's own limit. Requests that still name the plan are refused.",
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
    rows: [["Plan", which, which], ...(old && value ? limitRows(old, value) : [["Limit", text(old), text(value)]])],
    done: value ? `Plan ${which} set.` : `Plan ${which} removed.`,
  };
}

// override sets, changes or takes off one key's own limit. key, { key, key_base64 }, is null where the operator has yet to name it. What the
// service explains of a key is right for all keys; the state shows the first thousand overrides only.
export function override(name, key, done) {
  change({
    title: `${key === null ? "Override a key" : "Change an override"} of ${name} ${here()}`,
    about: "A limit for one key, in place of the limiter's and of its plan's.",
    query: { limiter: name },
    done,
    async edit(seen) {
      const state = seen.limiters[name];
      const old = key === null ? { limit: state.limit } : await explained(name, key);
      const options = kinds("Its own limit", ...(old.overridden ? [["remove", "Remove the override"]] : []));
      const end = lasting(old.override_until);
      const start = old.overridden || (key !== null && old.limit.denies) ? kindOf(old.limit) : "limit";
      const editor = limitEditor(old.limit, options, start, end.nodes);
      const box = textual(key === null ? "" : key.key, atMost(longestKey));
      if (key !== null) box.readOnly = true;
      const collect = async () => {
        const which = key ?? { key: box.value };
        return overrideChange(name, state, which, await explained(name, which), editor.value(), end.seconds());
      };
      return { nodes: [field("key", "Key", box), ...editor.nodes], collect };
    },
  });
}

function explained(name, key) {
  return get("explain", { limiter: name, ...named(key) });
}

// remove takes a key's override off.
export function remove(name, key, done) {
  change({
    title: `Remove an override of ${name} ${here()}`,
    about: `Key ${isolated(key.key)} comes under the limit of its plan or of the limiter again.`,
    query: { limiter: name },
    done,
    edit(seen) {
      return { collect: async () => overrideChange(name, seen.limiters[name], key, await explained(name, key), null) };
    },
  });
}

// overrideChange gives a key a limit for some seconds, undefined for good, or takes its own off; old is what the service explains of it. The
// plan of a key is not known while it has a limit of its own, nor before its first request.
function overrideChange(name, state, key, old, value, seconds) {
  const unknown = old.plan === "" && state.plans.length > 0 && (old.overridden || !old.remembered);
  const others = unknown ? "that of its plan, or the limiter's own" : old.plan === "" ? "the limiter's own" : `that of plan ${old.plan}`;
  const was = old.overridden || !unknown ? old.limit : null;
  const after = value ?? (unknown ? null : state.limit);
  const body = (limit, ttl) => ({ ...named(key), limit, ttl_seconds: ttl });
  const before = old.override_until ? `ends ${untilText(old.override_until, now())}` : "for good";
  return {
    path: "override",
    targets: [{ limiter: name, etag: state.etag }],
    body: body(value, value ? seconds : undefined),
    rows: [
      ["Key", key.key, key.key],
      ["What holds", old.overridden ? "its own limit" : others, value ? "its own limit" : others],
      ...(was && after ? limitRows(was, after) : [["Limit", was ? limitText(was) : others, after ? limitText(after) : others]]),
      ["How long", old.overridden ? before : "–", !value ? "–" : seconds ? `for ${duration(seconds)}` : "for good"],
    ],
    done: value ? `Override of ${isolated(key.key)} set.` : `Override of ${isolated(key.key)} removed.`,
    back(was) {
      const rest = was?.until && Date.parse(was.until) / 1000 - now();
      const after = was?.then ? [body(asSent(was.then))] : []; // what stood beneath goes first, as one for good replaces both
      const bodies = was && !(rest < 0.001) ? [...after, body(asSent(was.limit), rest)] : after.length > 0 ? after : [body(null)];
      return { bodies, done: `Override of ${isolated(key.key)} is as it was.` };
    },
  };
}

// lasting makes the fields of how long an override counts, in seconds, undefined for good. Where one ends already, another limit does not
// change when.
function lasting(until) {
  const rest = () => Math.max(0.001, Date.parse(until) / 1000 - now());
  const spans = [["", "For good"], ["60", "For 1 minute"], ["600", "For 10 minutes"], ["3600", "For 1 hour"], ["other", "For another time"]];
  const list = select(until ? [["rest", `Until it ends, ${untilText(until, now())}`], ...spans] : spans);
  const minutes = numeric("", { low: 0.001, high: 525_600 });
  const other = field("ttl_seconds", "For how many minutes", minutes, "Afterwards the limit of its plan or of the limiter holds again.");
  const suit = () => (other.hidden = list.value !== "other");
  list.addEventListener("change", suit);
  suit();
  const seconds = () => ({ rest, other: () => numberOf(minutes) * 60, "": () => undefined })[list.value]?.() ?? (Number(list.value) || undefined);
  return { nodes: [field("for", "How long", list), other], seconds };
}

// reset forgives a key: it starts fresh. There is nothing to fill in.
export function reset(name, key, done) {
  change({
    title: `Reset a key of ${name} ${here()}`,
    about: "The key starts fresh. Its requests in flight, those that wait and its own limit stay.",
    query: { limiter: name },
    done,
    edit(seen) {
      const { etag } = seen.limiters[name];
      const collect = async () => ({
        path: "reset",
        targets: [{ limiter: name, etag }],
        body: named(key),
        rows: [["Key", key.key, key.key], ...resetRows(await get("explain", { limiter: name, ...named(key) }))],
        done: `Key ${isolated(key.key)} starts fresh.`,
      });
      return { collect };
    },
  });
}

// resetRows shows the state of a key, and what a reset changes of it.
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
    ["Waiting", waiting, about.remembered && about.waiting > 0 ? "those that fit then are admitted" : waiting],
  ];
}

// dryRun turns dry run on or off.
export function dryRun(name, on, done) {
  change({
    title: `Turn dry run ${on ? "on" : "off"} for ${name} ${here()}`,
    about: on ? "The limiter then decides and counts, but admits everything." : "The limiter then refuses again what is beyond its limit.",
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

// kinds are what can be chosen for a limit: one by its fields, under this name, to deny everything, to bound nothing, and more.
function kinds(name, ...more) {
  return [["limit", name], ["deny", "Deny everything"], ["unlimited", "No limit", true], ...more];
}

// kindOf is the kind of a limit that is there.
function kindOf(limit) {
  if (limit.denies) return "deny";
  return limit.unlimited ? "unlimited" : "limit";
}

// asSent is a limit of a state as a change has it.
function asSent({ denies, unlimited, rates, in_flight }) {
  return denies ? { deny: true } : unlimited ? { unlimited } : { rates, in_flight };
}

// limitRows compares two limits rule by rule.
function limitRows(old, now) {
  if ([old, now].some((one) => one.denies || one.deny || one.unlimited)) return [["Limit", limitText(old), limitText(now)]];
  const rows = [];
  for (let i = 0; i < Math.max(old.rates.length, now.rates.length); i++) {
    const text = (rate) => (rate ? `${rate.name ? `${rate.name}: ` : ""}${rateText(rate)}` : "none");
    rows.push([`Rate ${i + 1}`, text(old.rates[i]), text(now.rates[i])]);
  }
  const slots = (n) => (n ? exact(n) : "no bound");
  rows.push(["In flight", slots(old.in_flight), slots(now.in_flight)]);
  return rows;
}

// limitEditor makes the fields of a limit, and shows more beside them. Its value is a limit, or null for "remove".
function limitEditor(old, options, chosen, more = []) {
  let kind = chosen;
  const rates = [];
  const list = el("div", { class: "rates" });
  const bounds = (n) => (n > 0 || rates.length > 0 ? "" : "Enter a number, add a rate, or choose “No limit”.");
  const slots = numeric(old.in_flight || "", { whole: true, low: 0, high: 2 ** 30, optional: true }, bounds);
  const renumber = () => rates.forEach((rate, i) => rate.number(i));
  const add = (values) => {
    const rate = rateEditor(values, () => {
      rates.splice(rates.indexOf(rate), 1);
      rate.node.remove();
      renumber();
      another.focus();
    });
    rates.push(rate);
    list.append(rate.node);
    renumber();
    return rate;
  };
  const another = el("button", { type: "button", text: "Add a rate", onclick: () => add({ per_seconds: 1 }).focus() });
  const details = el("div", { class: "own" }, list, another, field("in_flight", "In flight", slots, "Most requests at a time, over all replicas. Empty: no bound."));
  const warning = el("p", { class: "bad", text: "Every request is admitted, however many come." });
  const show = (value) => {
    kind = value;
    details.hidden = kind !== "limit";
    warning.hidden = kind !== "unlimited";
    beside.hidden = kind === "remove" || more.length === 0;
  };
  const beside = el("div", { class: "own" }, ...more);
  const radios = choice("kind", "What holds", options, kind, show);
  show(kind);
  old.rates.forEach(add);
  if (kindOf(old) !== "limit") add({ per_seconds: 1 }); // to be filled in when a limit is chosen
  const value = () => {
    if (kind === "remove") return null;
    if (kind === "deny") return { deny: true };
    if (kind === "unlimited") return { unlimited: true };
    return { rates: rates.map((rate) => rate.value()), in_flight: numberOf(slots) ?? 0 };
  };
  return { nodes: [radios, details, warning, beside], value };
}

const rateKinds = [
  ["bucket", "Token bucket"],
  ["paced", "Paced: evenly spaced"],
  ["window", "Window of the wall clock"],
  ["counted-window", "Window, counted over all replicas"],
];

// rateEditor makes the fields of one rate. Those that its kind does not have are out of sight.
function rateEditor(old, onRemove) {
  const controls = {
    events: numeric(old.events, { above: 0, high: 1e12 }),
    per_seconds: numeric(old.per_seconds, { low: 1e-9, high: 9.2e9 }),
    kind: select(rateKinds, old.kind),
    burst: numeric((old.kind === "bucket" && old.burst) || "", { whole: true, low: 0, high: 2 ** 40, optional: true }),
    name: textual(old.name, atMost(longestName)),
    unit: textual(old.unit, atMost(longestName)),
    zone: textual(old.zone ?? "", atMost(longestName)),
  };
  const turns = checkbox("no_turns", "No turns between replicas", old.no_turns);
  const legend = el("legend");
  const removeButton = el("button", { type: "button", class: "quiet", text: "Remove", onclick: onRemove });
  const labels = { events: "Events", per_seconds: "Per seconds", kind: "Kind", burst: "Burst", name: "Name", unit: "Unit", zone: "Zone of its days" };
  const fields = Object.entries(controls).map(([name, control]) => field(name, labels[name], control));
  const onlyOf = (kind, node) => (node.hidden = controls.kind.value !== kind);
  const inWindows = () => controls.kind.value.endsWith("window");
  const suit = () => {
    onlyOf("bucket", controls.burst.closest(".field"));
    onlyOf("paced", turns.node);
    controls.zone.closest(".field").hidden = !inWindows();
  };
  controls.kind.addEventListener("change", suit);
  suit();
  const node = el("fieldset", { class: "rate" }, legend, el("div", { class: "grid" }, ...fields), turns.node, removeButton);
  return {
    node,
    focus: () => controls.events.focus(),
    number(i) {
      legend.textContent = `Rate ${i + 1}`;
      removeButton.setAttribute("aria-label", `Remove rate ${i + 1}`);
      for (const [name, control] of Object.entries({ ...controls, no_turns: turns.input })) control.dataset.field = `rates[${i}].${name}`;
    },
    value: () => ({
      name: controls.name.value,
      unit: controls.unit.value,
      events: numberOf(controls.events),
      per_seconds: numberOf(controls.per_seconds),
      kind: controls.kind.value,
      burst: (controls.kind.value === "bucket" && numberOf(controls.burst)) || 0,
      no_turns: turns.input.checked,
      zone: (inWindows() && controls.zone.value) || undefined,
    }),
  };
}
