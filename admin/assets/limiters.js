// The list of limiters: those in trouble first, those that are calm as one line each, and a filter by name.
import { el, setText, exact } from "./dom.js";
import { LimiterView, calm } from "./limiter.js";

const at = (id) => document.getElementById(id);
const list = at("limiters");
const filter = at("filter");
const views = new Map(); // by limiter
let notice = () => {};

// Only what can be seen draws and requests keys.
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (views.get(entry.target.view.name) !== entry.target.view) continue; // it was dropped meanwhile
    entry.target.view.visible = entry.isIntersecting;
    entry.target.view.look(entry.isIntersecting && !document.hidden);
  }
}, { rootMargin: "100px" });
document.addEventListener("visibilitychange", () => {
  for (const view of views.values()) view.look(Boolean(view.visible) && !document.hidden);
});

// showLimiters shows the limiters of a state of the instant t, in seconds. differs says by name what differs from the file.
export function showLimiters({ limiters, leases, history }, t, differs, say) {
  notice = say;
  const names = Object.keys(limiters);
  const fresh = views.size === 0;
  const changed = match(names);
  for (const name of names) {
    if (history && Object.hasOwn(history.limiters, name)) views.get(name).past(history.limiters[name], history.age_seconds, t);
    views.get(name).take(limiters[name], t, differs.get(name) ?? "");
  }
  arrange(fresh || !held());
  if (changed) choose();
  at("bar").hidden = names.length < 2 && filter.value === ""; // a filter must be seen to be cleared
  at("none").hidden = names.length > 0 || Boolean(leases);
}

// gap notes that nothing is known of the limiters until the next state.
export function gap() {
  for (const view of views.values()) view.gap();
}

// restart forgets what another process has counted.
export function restart() {
  for (const view of views.values()) view.restart();
}

// match makes a view for each new limiter, drops those of limiters that are gone, and reports whether there was any.
function match(names) {
  const known = new Set(names);
  let changed = false;
  for (const [name, view] of views) {
    if (known.has(name)) continue;
    sight.unobserve(view.node);
    view.look(false);
    view.node.remove();
    views.delete(name);
    changed = true;
  }
  for (const name of names.sort()) {
    if (views.has(name)) continue;
    const view = new LimiterView(name, (text, undo) => notice(text, undo), choices.get(name), (open) => remember(name, open));
    view.node.view = view;
    views.set(name, view);
    list.append(view.node);
    sight.observe(view.node);
    changed = true;
  }
  return changed;
}

// held reports whether the pointer or the focus is in a limiter, or on the button that leads to one: then none may move, open or close by
// itself. A finger leaves no pointer behind.
let pointed = false;
list.addEventListener("pointerover", ({ pointerType }) => { pointed = pointerType !== "touch"; });
function held() {
  return list.matches(":focus-within") || unseen.matches(":focus, :hover") || (pointed && list.matches(":hover"));
}

// unseen leads to the limiters in trouble that would be higher up if the order were not kept, and that cannot be seen.
const unseen = at("unseen").firstElementChild;
let missed = [];
function showUnseen(sorted) {
  const place = new Map([...list.children].map((node, i) => [node, i]));
  missed = sorted.filter((view, i) => view.trouble < calm && place.get(view.node) > i && !view.node.hidden && !view.visible);
  unseen.hidden = missed.length === 0;
  const who = missed.length === 1 ? `limiter ${missed[0].name} is` : `${exact(missed.length)} limiters are`;
  if (missed.length > 0) setText(unseen, `Out of sight: ${who} in trouble`);
}
unseen.addEventListener("click", () => {
  const [{ node }] = missed;
  node.scrollIntoView({ block: "center" });
  node.focus({ preventScroll: true });
});

// arrange puts limiters in trouble first, by the kind of trouble and then by name. The first of them open, and those that are calm fold. A
// limiter that is alone stays open.
const mostOpened = 20; // without the operator: a thousand open ones would stop the browser
function arrange(free) {
  const sorted = [...views.values()].sort((a, b) => a.trouble - b.trouble || (a.name < b.name ? -1 : 1));
  const moved = sorted.some((view, i) => list.children[i] !== view.node);
  at("held").hidden = free || !moved;
  showUnseen(free || !moved ? [] : sorted);
  if (!free) return;
  for (const [i, view] of sorted.entries()) view.settle(views.size === 1, i < mostOpened);
  if (!moved) return;
  sorted.forEach((view, i) => {
    if (list.children[i] !== view.node) list.insertBefore(view.node, list.children[i]);
  });
}

// choose shows the limiters that the filter names.
function choose() {
  const wanted = filter.value.trim().toLowerCase();
  let shown = 0;
  for (const view of views.values()) {
    view.node.hidden = !view.name.toLowerCase().includes(wanted);
    if (!view.node.hidden) shown += 1;
  }
  setText(at("count"), `${exact(shown)} of ${exact(views.size)}`);
  at("nothing").hidden = shown > 0 || views.size === 0;
}

filter.addEventListener("input", choose);
filter.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.preventDefault();
  filter.value = "";
  choose();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (at("bar").hidden || event.target.closest("input, select, textarea, dialog[open]")) return;
  event.preventDefault();
  filter.focus();
  filter.select();
});

// The operator's choices to open or close a limiter are kept for the tab, by name: the newest hundred.
const kept = "quotient-open";
const most = 100;
const choices = recall();

function recall() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(kept) ?? "[]"));
  } catch {
    return new Map(); // storage is forbidden here, or holds something else
  }
}

function remember(name, open) {
  choices.delete(name);
  choices.set(name, open);
  for (const old of choices.keys()) if (choices.size > most) choices.delete(old);
  try {
    sessionStorage.setItem(kept, JSON.stringify([...choices]));
  } catch {
    // Storage is forbidden here: the choices hold until the page is closed.
  }
}
