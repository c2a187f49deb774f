// Fields of a form: each with a label, a hint and room for an error that is tied to it.
import { el, newID, exact } from "./dom.js";

// field makes a labelled control. name is the path of the field in the request, which errors are matched against.
export function field(name, label, control, hint = "") {
  const id = newID("field");
  control.id = id;
  control.dataset.field = name;
  control.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: id, text: label }),
    control,
    el("p", { id: `${id}-hint`, class: "hint", text: hint, hidden: hint === "" }),
    el("p", { id: `${id}-error`, class: "error" }),
  );
}

// checks are by control: each returns what is wrong with what stands there, "" for nothing.
const checks = new WeakMap();

// numeric makes a field for a number. bounds are { low, high }, both allowed, and { above } in place of low, where it is not; whole numbers
// only with whole; empty only with optional. A bound may be a function. more, which may be left out, returns what else is wrong with a number.
export function numeric(value, bounds, more = () => "") {
  const control = el("input", { type: "text", inputmode: "decimal", autocomplete: "off", value: value ?? "" });
  checks.set(control, () => (fits(numberOf(control), bounds) ? more(numberOf(control)) : wanted(bounds)));
  return control;
}

const now = (bound) => (typeof bound === "function" ? bound() : bound);

function fits(n, { low, high, above, whole, optional }) {
  if (n === undefined) return Boolean(optional);
  if (typeof n !== "number" || (whole && !Number.isInteger(n))) return false;
  return n <= now(high) && (above === undefined ? n >= now(low) : n > now(above));
}

function wanted({ low, high, above, whole, optional }) {
  const kind = whole ? "a whole number" : "a number";
  const range = above === undefined ? `from ${exact(now(low))} to ${exact(now(high))}` : `above ${exact(now(above))}, at most ${exact(now(high))}`;
  return `Enter ${kind} ${range}${optional ? ", or leave it empty" : ""}.`;
}

// textual makes a field for a text. check, which may be left out, returns what is wrong with one.
export function textual(value, check) {
  const control = el("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", value: value ?? "" });
  if (check) checks.set(control, () => check(control.value));
  return control;
}

// atMost is a check of a text's length, in bytes.
export function atMost(bytes) {
  return (text) => (new TextEncoder().encode(text).length <= bytes ? "" : `Enter at most ${exact(bytes)} bytes.`);
}

// validFields reports whether all fields hold what they should. Each wrong field shows its mistake, and the first of them has the focus.
export function validFields(root) {
  const bad = [...root.querySelectorAll("input")].filter((control) => !control.closest("[hidden]") && sayWrong(control, checks.get(control)?.() ?? ""));
  bad[0]?.focus();
  return bad.length === 0;
}

// sayWrong puts a message next to a field. It reports whether there is one.
function sayWrong(control, message) {
  if (message === "") return false;
  document.getElementById(`${control.id}-error`).textContent = message;
  control.setAttribute("aria-invalid", "true");
  return true;
}

// select makes a list to choose from; options are [value, label].
export function select(options, chosen) {
  return el("select", {}, ...options.map(([value, text]) => el("option", { value, text, selected: value === chosen })));
}

// choice makes a group of radio buttons; options are [value, label], and true for one that is in red.
export function choice(name, legend, options, chosen, onChange) {
  const group = newID("choice");
  const radios = options.map(([value, label, bad = false]) => {
    const input = el("input", { type: "radio", name: group, value, checked: value === chosen, onchange: () => onChange(value) });
    input.dataset.field = name;
    return el("label", { class: "option" }, input, el("span", { class: bad ? "bad" : null, text: label }));
  });
  return el("fieldset", { class: "choice" }, el("legend", { text: legend }), ...radios);
}

export function checkbox(name, label, checked) {
  const input = el("input", { type: "checkbox", checked });
  input.dataset.field = name;
  return { input, node: el("label", { class: "option" }, input, el("span", { text: label })) };
}

// numberOf returns the content of a control as a number, or unchanged if it is not a number. Commas are taken out only
// where they stand between groups of three digits: "1,5" is no number, and surely not 15. Nothing at all is undefined, which leaves the field
// out of the request.
export function numberOf(control) {
  const text = control.value.trim();
  if (text === "") return undefined;
  const n = Number(/^-?\d{1,3}(,\d{3})+(\.\d+)?$/.test(text) ? text.replaceAll(",", "") : text);
  return Number.isFinite(n) ? n : text;
}

// plain brings two spellings of a field's path together: "limit.rates[0].per_seconds" and "Rates[0].PerSeconds".
function plain(path) {
  return path.toLowerCase().replace(/^limit\./, "").replaceAll("_", "");
}

// showFieldError puts a message next to the field with that path and moves there. It reports whether there is such a field.
export function showFieldError(root, path, message) {
  const wanted = plain(path ?? "");
  const controls = [...root.querySelectorAll("[data-field]")];
  const control = controls.find((c) => plain(c.dataset.field) === wanted) ?? controls.find((c) => plain(c.dataset.field).endsWith(`.${wanted}`));
  if (!control || !document.getElementById(`${control.id}-error`)) return false;
  sayWrong(control, message);
  control.focus();
  return true;
}

export function clearFieldErrors(root) {
  for (const error of root.querySelectorAll(".error")) error.textContent = "";
  for (const control of root.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
}
