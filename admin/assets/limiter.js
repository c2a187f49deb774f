// One limiter on the page: its numbers, charts, rules, plans, hottest keys and overrides.
import { el, setText, table, number, exact, limitText, ruleText } from "./dom.js";
import { Chart } from "./chart.js";
import { HotKeys } from "./keys.js";
import { Together } from "./together.js";
import * as changes from "./changes.js";

const span = 120; // seconds that are kept
const most = 600; // samples that are kept, whatever the interval

export class LimiterView {
  constructor(name, done) {
    this.name = name;
    this.samples = [];
    this.seen = null;
    this.differs = "";
    this.shownRules = "";
    this.shownPlans = "";
    this.shownOverrides = "";
    this.inSight = false;
    this.tiles = { waiting: tile("Waiting"), inFlight: tile("In flight"), used: tile("Hottest key uses"), keys: tile("Keys") };
    this.charts = {
      admitted: new Chart("Admitted", "per second", "good"),
      refused: new Chart("Refused", "per second", "bad"),
      waiting: new Chart("Waiting", "callers", "plain"),
      inFlight: new Chart("In flight", "requests", "plain"),
      throttled: new Chart("Upstream 429s", "per second", "bad"),
    };
    this.together = new Together();
    this.keys = new HotKeys(name, done, (use) => this.showUse(use));
    this.build(done);
  }

  build(done) {
    const id = `limiter-${this.name}`;
    const heading = el("h2", { id: `${id}-title`, text: this.name });
    this.dry = el("span", { class: "badge dry", text: "Dry run: admits everything", hidden: true });
    this.denies = el("span", { class: "badge denies", text: "Denies everything", hidden: true });
    this.dryButton = el("button", { type: "button", text: "Turn dry run on", onclick: () => changes.dryRun(this.name, !this.state.dry_run, done) });
    this.mark = el("p", { class: "differs", hidden: true });
    this.rules = el("tbody");
    this.plans = el("tbody");
    this.planNote = el("p", { class: "empty", text: "No plan: each key has the limiter's limit or one of its own." });
    this.planTable = table("Plans: classes of keys, and the limit of each key in them", ["Plan", "Limit over the fleet", "Share (here)", ""], this.plans);
    this.overrides = el("tbody");
    this.overrideNote = el("p", { class: "empty" });
    this.overrideTable = table("Overrides: keys with a limit of their own", ["Key", "Limit over the fleet", ""], this.overrides);
    const bar = el("div", { class: "buttons" },
      el("button", { type: "button", text: "Change limit", onclick: () => changes.limit(this.name, done) }),
      el("button", { type: "button", text: "Override a key", onclick: () => changes.override(this.name, null, done) }),
      this.dryButton);
    this.node = el("section", { id, class: "limiter", tabindex: "-1", "aria-labelledby": `${id}-title` },
      el("header", {}, el("div", { class: "title" }, heading, this.dry, this.denies, this.together.badge), bar),
      this.mark,
      el("div", { class: "tiles" }, ...Object.values(this.tiles).map((t) => t.node)),
      el("div", { class: "charts" }, ...Object.values(this.charts).map((c) => c.node)),
      this.together.node,
      part("Rules", table("Rules of the limit, over the fleet and on this replica", ["Rule", "Limit (fleet)", "Share (here)", "Burst (here)"], this.rules)),
      part("Plans", this.planTable, this.planNote,
        el("button", { type: "button", class: "small add", text: "Add a plan", onclick: () => changes.plan(this.name, "", done) })),
      this.keys.node,
      part("Overrides", this.overrideTable, this.overrideNote));
    this.done = done;
  }

  // look tells the view whether it can be seen; only then it draws and asks for keys.
  look(inSight) {
    this.inSight = inSight;
    this.keys.look(inSight);
    if (inSight && this.state) this.draw();
  }

  // take adds the limiter's state at an instant of the service's clock, in seconds, and what differs from the file.
  take(state, t, differs) {
    this.differs = differs;
    const before = this.seen;
    this.state = state;
    this.together.take(state, t);
    this.keys.share = state.pool.weight / state.pool.replicas;
    this.seen = { t, admitted: state.admitted, throttled: state.throttled, refused: state.refused };
    if (before && t - before.t > 0.2) this.samples.push({ t, ...rates(before, this.seen, state) });
    else if (before) this.seen = before; // too close for a rate: it is counted with the next one
    while (this.samples.length > most || (this.samples.length && this.samples[0].t < t - span)) this.samples.shift();
    this.now = t;
    if (this.inSight) this.draw();
  }

  // gap leaves a hole in the charts: nothing is known of the time until the next state.
  gap() {
    if (this.seen && this.samples.length) this.samples.push({ t: this.seen.t });
    this.seen = null;
  }

  // restart forgets what another process has counted.
  restart() {
    this.samples = [];
    this.seen = null;
    this.together.restart();
  }

  draw() {
    const { state } = this;
    this.dry.hidden = !state.dry_run;
    this.denies.hidden = !state.limit.denies;
    setText(this.mark, this.differs === "" ? "" : `Differs from the file: ${this.differs}`);
    this.mark.hidden = this.differs === "";
    setText(this.dryButton, state.dry_run ? "Turn dry run off" : "Turn dry run on");
    setText(this.tiles.waiting.value, exact(state.waiting));
    setText(this.tiles.inFlight.value, exact(state.in_flight));
    setText(this.tiles.keys.value, number(state.keys));
    setText(this.tiles.keys.note, `of at most ${number(state.max_keys)}`);
    setText(this.tiles.waiting.note, state.waiting > 0 ? "callers in queues" : "nobody queues");
    setText(this.tiles.inFlight.note, state.in_flight > 0 ? "weight of permits" : "nothing is held");
    for (const [name, chart] of Object.entries(this.charts)) {
      chart.draw(this.samples.map((s) => ({ t: s.t, values: s[name] })), this.now);
    }
    this.together.draw(state);
    this.drawRules();
    this.drawPlans();
    this.drawOverrides();
  }

  showUse(use) {
    setText(this.tiles.used.value, use === null ? "–" : `${Math.round(use.used * 100)} %`);
    setText(this.tiles.used.note, use === null ? "no key yet" : "of its share");
  }

  drawRules() {
    const shown = JSON.stringify([this.state.rules, this.state.limit.denies]);
    if (shown === this.shownRules) return;
    this.shownRules = shown;
    const line = (rule) => el("tr", {},
      el("th", { scope: "row", text: rule.name }),
      el("td", { text: ruleText(rule).limit }),
      el("td", { text: ruleText(rule).share }),
      el("td", { text: rule.burst ? number(rule.burst) : "–" }));
    const none = el("tr", {}, el("td", { colspan: 4, text: this.state.limit.denies ? "Everything is denied." : "No rule: everything is admitted." }));
    this.rules.replaceChildren(...(this.state.rules.length ? this.state.rules.map(line) : [none]));
  }

  drawPlans() {
    const { plans } = this.state;
    const shown = JSON.stringify(plans);
    if (shown === this.shownPlans) return;
    this.shownPlans = shown;
    this.planTable.hidden = plans.length === 0;
    this.planNote.hidden = plans.length > 0;
    this.plans.replaceChildren(...plans.map((one) => this.planLine(one)));
  }

  planLine({ name, limit, rules }) {
    const act = (text, run) => el("button", { type: "button", class: "small", text, "aria-label": `${text} the plan ${name}`, onclick: run });
    return el("tr", {},
      el("th", { scope: "row", class: "key", text: name }),
      el("td", { text: limitText(limit) }),
      el("td", { text: rules.map((rule) => ruleText(rule).share).join(", ") || "–" }),
      el("td", { class: "acts" },
        act("Change", () => changes.plan(this.name, name, this.done)),
        act("Remove", () => changes.removePlan(this.name, name, this.done))));
  }

  drawOverrides() {
    const { overrides, override_count: count } = this.state;
    const shown = JSON.stringify([overrides, count]);
    if (shown === this.shownOverrides) return;
    this.shownOverrides = shown;
    this.overrideTable.hidden = overrides.length === 0;
    this.overrides.replaceChildren(...overrides.map((one) => this.overrideLine(one)));
    setText(this.overrideNote, overrides.length === 0 ? "No key has a limit of its own." : count > overrides.length ? `The first ${exact(overrides.length)} of ${exact(count)}.` : "");
    this.overrideNote.hidden = this.overrideNote.textContent === "";
  }

  overrideLine(one) {
    const { key, limit } = one;
    const act = (text, run) => el("button", { type: "button", class: "small", text, "aria-label": `${text} the override of ${key}`, onclick: run });
    return el("tr", {},
      el("th", { scope: "row", class: "key", text: key === "" ? "(empty key)" : key }),
      el("td", { text: limitText(limit) }),
      el("td", { class: "acts" },
        act("Change", () => changes.override(this.name, one, this.done)),
        act("Remove", () => changes.remove(this.name, one, this.done))));
  }
}

// rates makes what is drawn of two states: counts become events a second.
function rates(before, after, state) {
  const seconds = after.t - before.t;
  const each = (now, then) => Math.max(0, now - then) / seconds;
  const refused = {};
  for (const [reason, n] of Object.entries(after.refused)) refused[reason] = each(n, before.refused[reason] ?? 0);
  return {
    admitted: { "": each(after.admitted, before.admitted) },
    refused,
    throttled: { "": each(after.throttled, before.throttled) },
    waiting: { "": state.waiting },
    inFlight: { "": state.in_flight },
  };
}

function tile(name) {
  const value = el("dd", { class: "figure", text: "–" });
  const note = el("dd", { class: "muted" });
  return { value, note, node: el("dl", { class: "tile" }, el("dt", { text: name }), value, note) };
}

function part(title, ...content) {
  return el("div", { class: "part" }, el("h3", { text: title }), ...content);
}
