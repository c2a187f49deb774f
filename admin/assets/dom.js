// Small helpers that make elements and text. Text only ever becomes text: nothing here parses markup.

const svgSpace = "http://www.w3.org/2000/svg";

// el makes an element. The props "on…" are listeners, "class", "text" and "data" have their usual sense, the rest are attributes;
// an attribute of null or false is left out, of true is empty.
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

// svg makes an element of a picture, with attributes as el does.
export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS(svgSpace, name), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// setText changes a node's text only where it differs, so that selections and screen readers are left in peace.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

let ids = 0;
export function newID(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

// number writes a number short enough for a table: 0.05, 12.3, 1,234, 1.2M.
export function number(n) {
  if (!Number.isFinite(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e6) return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(n);
  const digits = size >= 100 || Number.isInteger(n) ? 0 : size >= 1 ? 1 : 3;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(n);
}

// pace writes events a second or a period: three an hour are 0.00083 a second, and not 0.
function pace(n) {
  return n > 0 && n < 1e-3 ? String(Number(n.toPrecision(2))) : number(n);
}

// exact writes a number as an operator typed it, with separators.
export function exact(n) {
  if (!Number.isFinite(n)) return "–"; // an older replica has not said it
  if (n !== 0 && Math.abs(n) < 1e-3) return String(n);
  return new Intl.NumberFormat("en", { maximumFractionDigits: 9 }).format(n);
}

// isolated keeps the direction of a name's letters from the rest of a sentence.
export function isolated(name) {
  return `\u2068${name}\u2069`;
}

// several writes names, the first dozen of many.
export function several(names) {
  const most = 12;
  return names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${exact(names.length - most)} more`;
}

// duration writes seconds in the largest unit that keeps them readable.
export function duration(seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

// untilText writes when something ends, as seen at the instant now, in seconds of the service's clock.
export function untilText(until, now) {
  const left = Date.parse(until) / 1000 - now;
  return `in ${duration(Math.max(0, left))}, at ${new Date(until).toLocaleTimeString()}`;
}

// period writes the length of a rate's period as the part behind "per".
export function period(seconds) {
  const names = { 1: "s", 60: "min", 3600: "h", 86400: "day" };
  return names[seconds] ?? (seconds < 1 ? `${exact(seconds * 1000)} ms` : `${exact(seconds)} s`);
}

// rateText and limitText write a limit in words.
export function rateText(rate) {
  const unit = rate.unit ? ` ${rate.unit}` : "";
  const more = [];
  if (rate.kind !== "bucket") more.push(rate.kind.replace("-", " "));
  else if (rate.burst) more.push(`burst ${exact(rate.burst)}`);
  if (rate.no_turns) more.push("no turns");
  if (rate.zone) more.push(rate.zone);
  return `${exact(rate.events)}${unit} / ${period(rate.per_seconds)}${more.length ? ` (${more.join(", ")})` : ""}`;
}

// ruleText writes what a rule allows: the limit as it was configured, or the share of it. Slots are no rate.
export function ruleText(rule) {
  const unit = rule.unit ? ` ${rule.unit}` : "";
  if (!rule.window_seconds) return { limit: `${exact(rule.limit)} slots`, share: `${exact(rule.share)} slots` };
  const per = `${unit}/${period(rule.window_seconds)}`;
  return { limit: exact(rule.events) + per, share: pace(rule.share * rule.window_seconds) + per };
}

// paceText writes what a policy has learned: a pace, or a number of slots.
export function paceText({ unit, pace: learned }) {
  return unit === "in-flight" ? `${number(learned)} slots` : `${pace(learned)}${unit ? ` ${unit}` : ""}/s`;
}

export function limitText(limit) {
  if (limit.denies || limit.deny) return "deny everything";
  const parts = (limit.rates ?? []).map(rateText);
  if (limit.in_flight) parts.push(`${exact(limit.in_flight)} in flight`);
  return parts.join(" and ") || noLimit;
}

export const noLimit = "no limit";

// words writes a refusal's reason without its underscores.
export function words(reason) {
  return reason.replaceAll("_", " ");
}

// table makes a table. It scrolls by itself where it is too wide; its box can have the focus, so that keys scroll it.
// With cards each row becomes a card on a phone, and nothing scrolls: see labelled.
export function table(caption, columns, body, { cards = false } = {}) {
  const box = cards ? { class: "cards" } : { class: "scroll", role: "group", "aria-label": caption, tabindex: "0" };
  return el("div", box,
    el("table", {}, el("caption", { class: "hidden", text: caption }), el("thead", {}, headOf(columns)), body));
}

// headOf makes the row of a table's column names; "" is a column without a name.
export function headOf(columns) {
  return el("tr", {}, ...columns.map((text) => (text === "" ? el("td") : el("th", { scope: "col", text }))));
}

// labelled gives each cell of a row the name of its column, which a card shows.
export function labelled(columns, row) {
  [...row.cells].forEach((cell, i) => {
    if (i > 0 && columns[i]) cell.dataset.label = columns[i];
  });
  return row;
}
