// The one dialog of the page: a change in two steps (fill in, confirm), or a text to read.
import { el, table, noLimit } from "./dom.js";
import { get, put, validate, Refused } from "./api.js";
import { showFieldError, clearFieldErrors, validFields } from "./fields.js";
import { here } from "./replica.js";

const dialog = document.getElementById("dialog");
const form = document.getElementById("dialog-form");
const title = document.getElementById("dialog-title");
const about = document.getElementById("dialog-about");
const alertBox = document.getElementById("dialog-alert");
const body = document.getElementById("dialog-body");
const actions = document.getElementById("dialog-actions");

let onSubmit = () => {};
let opener = null;
let visit = 0; // counts openings, so that an answer that comes late does not land in the next dialog

form.addEventListener("submit", (event) => {
  event.preventDefault();
  onSubmit();
});

dialog.addEventListener("close", () => {
  if (dialog.open) return; // it was opened again before this event came
  visit += 1;
  body.replaceChildren();
  const home = opener?.isConnected ? opener : document.getElementById("main");
  home.focus();
});

function open(heading, text) {
  opener = document.activeElement;
  visit += 1;
  show(heading, text, [], []);
  dialog.showModal();
  return visit;
}

function show(heading, text, content, buttons) {
  title.textContent = heading;
  about.textContent = text;
  about.hidden = text === "";
  warn(null);
  body.replaceChildren(...content);
  actions.replaceChildren(...buttons);
}

// warn shows a message above the form, or none. extra is a button that helps.
function warn(message, extra) {
  alertBox.hidden = message === null;
  alertBox.replaceChildren(...(message === null ? [] : [el("p", { text: message }), ...(extra ? [extra] : [])]));
}

function button(text, onclick, kind = "", writes = false) {
  return el("button", { type: "button", class: kind, text, onclick, "data-writes": writes });
}

const cancel = () => button("Cancel", () => dialog.close());

// read opens the dialog with something to read. load returns its nodes; Refresh calls it again. extra are buttons that lead to changes.
export async function read(heading, load, extra = []) {
  const mine = open(heading, `As it stands ${here()}.`);
  onSubmit = () => dialog.close();
  const refresh = async () => {
    try {
      const content = await load();
      if (mine !== visit) return;
      warn(null);
      body.replaceChildren(...content);
    } catch (problem) {
      if (mine === visit) warn(explain(problem));
    }
  };
  actions.replaceChildren(...extra.map(([text, act]) => button(text, () => instead(act), "", true)), button("Refresh", refresh), el("button", { class: "primary", text: "Close" }));
  title.focus();
  await refresh();
}

// instead closes the dialog for another one.
export function instead(act) {
  dialog.close();
  act();
}

// change opens the dialog for a change:
//   title, about  what is changed
//   query         the limiter whose state the operator sees, for GET state, or GET of what from names
//   edit(seen)    a promise, or not, of { nodes, focus, collect } of the form's fields; collect returns, or promises, { path, targets, body, rows, done }, and a method that is not PUT;
//                 back(was), where the change can be undone, returns { bodies, done } of what the answer says was there;
//                 targets are { limiter, etag } with the tag of what the operator saw, and no limiter where it is not about one; rows are [what, old, new]. Without nodes there is nothing to fill in, and the confirmation comes first.
export async function change(spec) {
  const mine = open(spec.title, spec.about);
  actions.replaceChildren(cancel());
  await start(spec, mine);
}

// start reads the state that the operator is going to change, with its version, and shows the form.
async function start(spec, mine) {
  try {
    const seen = await get(spec.from ?? "state", spec.query);
    if (mine !== visit) return;
    const editor = await spec.edit(seen);
    if (mine !== visit) return;
    if (editor.nodes) {
      edit(spec, editor, mine);
      return;
    }
    const wanted = await editor.collect();
    await judge(wanted);
    if (mine === visit) confirm(spec, editor, mine, wanted);
  } catch (problem) {
    if (mine === visit) warn(explain(problem), button("Try again", () => start(spec, mine)));
  }
}

function edit(spec, editor, mine) {
  const review = el("button", { class: "primary", text: "Review change" });
  show(spec.title, spec.about, editor.nodes, [cancel(), review]);
  onSubmit = async () => {
    clearFieldErrors(body);
    if (review.disabled || !validFields(body)) return;
    review.disabled = true;
    try {
      const wanted = await editor.collect();
      await judge(wanted);
      if (mine === visit) confirm(spec, editor, mine, wanted);
    } catch (problem) {
      if (mine === visit) failed(spec, editor, mine, problem, "");
    } finally {
      review.disabled = false;
    }
  };
  const first = editor.focus ?? body.querySelector('input[type="text"]:not([readonly])');
  first.focus();
  first.select();
}

// judge throws what the service would refuse a change for now. A mistake for one limiter is one for all, but each may have changed since. A
// method other than PUT cannot be judged.
async function judge({ path, method, targets, body: sent }) {
  if (method) return;
  const [{ limiter, etag }] = targets;
  await validate(path, limiter === undefined ? {} : { limiter }, sent, etag);
  if (targets.length === 1) return;
  const { limiters } = await get("state");
  if (targets.some((one) => limiters[one.limiter]?.etag !== one.etag)) throw new Refused(412, {});
}

// confirm shows what would change, old beside new. Apply sends it.
function confirm(spec, editor, mine, wanted) {
  const back = editor.nodes ? button("Back", () => edit(spec, editor, mine)) : cancel();
  const apply = el("button", { class: "primary", text: "Apply change" });
  show(`Confirm: ${spec.title}`, spec.about, [comparison(wanted.rows)], [back, apply]);
  onSubmit = () => send(spec, editor, mine, wanted, apply);
  title.focus();
}

// send makes the change, limiter by limiter where there are several: each with the tag of what the operator saw of it. When the dialog is
// closed meanwhile, nothing more is sent, and the notice says what came of it.
async function send(spec, editor, mine, wanted, apply) {
  if (apply.disabled) return;
  apply.disabled = true;
  const changed = [];
  let answer = null;
  const closed = () => mine !== visit || !dialog.open;
  const outcome = () => (changed.length ? `Changed already: ${changed.join(", ")}.` : "Nothing was changed by you.");
  try {
    for (const { limiter, etag } of wanted.targets) {
      if (closed()) {
        spec.done(`${spec.title}: stopped. ${outcome()}`);
        return;
      }
      answer = await put(wanted.path, limiter === undefined ? {} : { limiter }, wanted.body, etag, wanted.method);
      changed.push(limiter);
    }
    if (!closed()) dialog.close();
    spec.done(wanted.done, wanted.back && (() => undo(spec, wanted, answer)));
  } catch (problem) {
    if (closed()) {
      spec.done(`${spec.title}: failed. ${explain(problem)} ${outcome()}`);
      return;
    }
    apply.disabled = false;
    failed(spec, editor, mine, problem, outcome());
  }
}

// undo sends back what was there before a change of one limiter, unless another client has changed it since.
async function undo({ done }, { path, targets: [{ limiter }], back }, { limiters }) {
  try {
    let { etag, was } = limiters[limiter];
    const { bodies, done: said } = back(was);
    for (const body of bodies) etag = (await put(path, { limiter }, body, etag)).limiters[limiter].etag;
    done(said);
  } catch (problem) {
    done(`Not undone: ${problem.status === 412 ? "it has ended, or was changed since." : explain(problem)}`);
  }
}

function failed(spec, editor, mine, problem, changed) {
  if (problem.status === 412) {
    actions.replaceChildren(cancel());
    const reload = button("Reload", () => start(spec, mine), "primary");
    warn(["Another client changed it after you opened this dialog.", changed, "Reload to see the present values."].filter(Boolean).join(" "), reload);
    reload.focus();
    return;
  }
  if (editor.nodes && problem.problem?.field) {
    edit(spec, editor, mine);
    if (showFieldError(body, problem.problem.field, sentence(problem.problem))) return;
  }
  warn(`${explain(problem)} ${changed}`);
}

function comparison(rows) {
  const line = ([what, old, now]) =>
    el("tr", { class: old === now ? "same" : "" },
      el("th", { scope: "row", text: what }),
      el("td", { text: old }),
      el("td", {}, el("span", { class: "arrow", "aria-hidden": "true", text: old === now ? "" : "→ " }), el("strong", { class: now === noLimit ? "bad" : null, text: old === now ? "unchanged" : now })));
  return table("What would change", ["Setting", "Now", "After"], el("tbody", { class: "compare" }, ...rows.map(line)));
}

// sentence says what the service did not like about a field.
function sentence(problem) {
  const detail = problem.detail || "not accepted";
  const got = problem.value && !detail.includes(problem.value) ? `, got ${problem.value}` : "";
  const want = problem.range ? ` Wanted: ${problem.range}.` : "";
  return `${detail[0].toUpperCase()}${detail.slice(1)}${got}.${want}`;
}

// explain states why a request failed, with the field's name.
function explain(problem) {
  if (problem.status === undefined) return "The service cannot be reached.";
  if (problem.status === 401) return "The service needs a token.";
  const name = problem.problem?.field;
  return name ? `${name}: ${sentence(problem.problem)}` : `${problem.message}.`;
}
