// One limiter on the page: a line with its name, badges and key figures, which opens to its charts, rules, plans, hottest keys and overrides.
import { el, svg, setText, table, labelled, number, exact, limitText, untilText, paceText, ruleText } from "./dom.js";
import { Chart, Spark } from "./chart.js";
import { HotKeys } from "./keys.js";
import { Together } from "./together.js";
import * as changes from "./changes.js";

const span = 120; // seconds that are kept
const most = 600; // samples that are kept, whatever the interval
const lately = 60; // seconds for which trouble counts
export const calm = 4; // trouble of a limiter without any

const ruleColumns = ["Rule", "Limit", "Share here", "Burst here"]; // the limit is of all replicas
const planColumns = ["Plan", "Limit", "Share here", "Admitted", "Refused", ""];
const overrideColumns = ["Key", "Limit", "Ends", ""];

export class LimiterView {
  // choice is whether the operator has opened or closed it before, undefined for neither; onChoice is called with a new one.
  constructor(name, done, choice, onChoice) {
    this.name = name;
    this.done = done;
    this.choice = choice;
    this.onChoice = onChoice;
    this.open = false;
    this.samples = [];
    this.seen = null;
    this.differs = "";
    this.shownRules = "";
    this.shownPlans = "";
    this.planCells = new Map(); // those of rates, by plan
    this.planRates = new Map(); // a second, by plan
    this.shownOverrides = "";
    this.ends = []; // cells of overrides that end, and when
    this.inSight = false;
    this.figures = { inFlight: figure("in flight"), waiting: figure("waiting"), refused: figure("refused"), admitted: figure("admitted") };
    this.spark = new Spark();
    this.together = new Together();
    this.build();
    this.unfold(choice === true);
  }

  build() {
    const id = `limiter-${this.name}`;
    const { name, done } = this;
    const button = (text, onclick, kind = "") => el("button", { type: "button", "data-writes": true, class: kind, text, onclick });
    this.fold = el("button", { type: "button", class: "fold", "aria-controls": `body-${name}`, onclick: () => this.choose(!this.open) }, chevron(), el("span", { text: name }));
    this.badges = {
      dry: badge("Dry run", "dry", "Everything is admitted"),
      denies: badge("", "denies"),
      differs: badge("Differs from the file", "dry"),
      learning: badge("Learning", "learning", "Its policy learns a pace for each key"),
    };
    this.buttons = el("div", { class: "buttons" },
      button("Change limit", () => changes.limit(name, done)),
      button("Override a key", () => changes.override(name, null, done)),
      (this.dryButton = button("Turn dry run on", () => changes.dryRun(name, !this.state.dry_run, done))));
    this.line = el("div", { class: "figures" }, this.spark.node, ...Object.values(this.figures).map((f) => f.node));
    this.node = el("section", { id, class: "limiter", tabindex: "-1", "aria-labelledby": `title-${name}` },
      el("header", {},
        el("div", { class: "title" }, el("h2", { id: `title-${name}` }, this.fold), ...Object.values(this.badges), this.together.badge),
        this.line, this.buttons),
      (this.body = el("div", { id: `body-${name}`, class: "body" })));
  }

  // fill makes what a limiter opens to, when it first does: there may be a thousand of them.
  fill() {
    this.filled = true;
    this.tiles = { waiting: tile("Waiting"), inFlight: tile("In flight"), used: tile("Hottest key"), keys: tile("Keys") };
    this.charts = {
      admitted: new Chart("Admitted", "per second", "good"),
      refused: new Chart("Refused", "per second", "bad"),
      waiting: new Chart("Waiting", "callers", "plain"),
      inFlight: new Chart("In flight", "requests", "plain"),
      throttled: new Chart("Upstream 429s", "per second", "bad"),
    };
    this.keys = new HotKeys(this.name, this.done, (use) => this.showUse(use));
    this.mark = el("p", { class: "differs", hidden: true });
    this.rules = el("tbody");
    this.plans = el("tbody");
    this.planNote = el("p", { class: "empty", text: "No plan: each key has the limiter's limit or one of its own." });
    this.planTable = table("Plans: classes of keys, and the limit of each key in them", planColumns, this.plans, { cards: true });
    this.overrides = el("tbody");
    this.overrideNote = el("p", { class: "empty" });
    this.overrideTable = table("Overrides: keys with a limit of their own", overrideColumns, this.overrides, { cards: true });
    const ruleTable = table("Rules of the limit, of all replicas and on this one", ruleColumns, this.rules, { cards: true });
    const add = el("button", { type: "button", "data-writes": true, class: "small add", text: "Add a plan", onclick: () => changes.plan(this.name, "", this.done) });
    this.graphs = el("div", { class: "charts" }, ...Object.values(this.charts).map((c) => c.node));
    this.numbers = el("div", { class: "tiles" }, ...Object.values(this.tiles).map((t) => t.node));
    this.body.append(
      this.mark,
      this.numbers,
      this.graphs,
      this.together.node,
      el("div", { class: "pair" }, part("Rules", ruleTable), part("Plans", this.planTable, this.planNote, add)),
      this.keys.node,
      part("Overrides", this.overrideTable, this.overrideNote),
    );
  }

  // look notes whether the view can be seen; only then it draws and requests keys.
  look(inSight) {
    this.inSight = inSight;
    this.keys?.look(inSight && this.open);
    if (inSight && this.state) this.draw();
  }

  // choose opens or closes it for good.
  choose(open) {
    this.choice = open;
    this.onChoice(open);
    this.unfold(open);
  }

  // settle opens a limiter in trouble that is one of the first, or one that is alone, and closes others, unless the operator has chosen.
  settle(alone, first) {
    const open = this.choice ?? (alone || (first && this.trouble < calm));
    if (open !== this.open) this.unfold(open);
  }

  unfold(open) {
    this.open = open;
    if (open && !this.filled) {
      this.fill();
      if (this.state) this.layOut();
    }
    this.fold.setAttribute("aria-expanded", String(open));
    this.body.hidden = !open;
    this.buttons.hidden = !open;
    this.line.hidden = open;
    this.look(this.inSight);
  }

  // past takes what the service has sampled while the page was not there: a number for each of the last ages, in seconds.
  past(history, ages, t) {
    const first = ages.length - history.admitted.length;
    if (this.seen || first >= ages.length) return;
    const before = this.samples.filter((s) => s.t < t - ages[first]);
    const sampled = history.admitted.map((admitted, i) => ({
      t: t - ages[first + i],
      admitted: { "": admitted },
      refused: Object.fromEntries(Object.entries(history.refused).map(([reason, n]) => [reason, n[i]])),
      throttled: { "": history.throttled[i] },
      waiting: { "": history.waiting[i] },
      inFlight: { "": history.in_flight[i] },
    }));
    this.samples = [...before, ...sampled];
  }

  // take adds the limiter's state at an instant of the service's clock, in seconds, and what differs from the file.
  take(state, t, differs) {
    this.differs = differs;
    const before = this.seen;
    this.state = state;
    this.together.take(state, t);
    this.seen = { t, admitted: state.admitted, throttled: state.throttled, refused: state.refused, plans: new Map(state.plans.map((one) => [one.name, one])) };
    if (before && t - before.t > 0.2) {
      this.samples.push({ t, ...rates(before, this.seen, state) });
      this.planRates = ratesOfPlans(before, this.seen);
    } else if (before) this.seen = before; // too close for a rate: it is counted with the next one
    while (this.samples.length > most || (this.samples.length && this.samples[0].t < t - span)) this.samples.shift();
    this.now = t;
    this.trouble = this.judge();
    this.layOut();
    if (this.inSight) this.draw();
  }

  // judge returns the kind of the limiter's trouble: the lower, the worse.
  judge() {
    const { state } = this;
    const short = (s) => s.t >= this.now - lately && s.refused && (total(s.refused) > 0 || total(s.waiting) > 0);
    if (state.waiting > 0 || this.samples.some(short)) return 0;
    if (state.dry_run) return 1;
    if (this.differs !== "") return 2;
    if (state.demand && !state.demand.fresh) return 3;
    return calm;
  }

  // can returns which figures the limiter can have at all: no slots are in flight where none bounds them, and nothing waits where nothing ever has.
  can() {
    const { state } = this;
    const had = (name) => this.samples.some((s) => s[name] && total(s[name]) > 0);
    const slots = [state.limit, ...state.plans.map((p) => p.limit), ...state.overrides.map((o) => o.limit)].some((l) => l.in_flight > 0);
    const bound = state.rules.length > 0 || state.limit.denies || state.plans.length > 0 || state.override_count > 0;
    return {
      admitted: true,
      refused: bound || state.learns || had("refused"),
      waiting: state.waited > 0 || state.waiting > 0 || had("waiting"),
      inFlight: slots || state.learns || state.in_flight > 0 || had("inFlight"),
      throttled: state.learns || state.throttled > 0,
    };
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

  // layOut shows badges, and leaves out what the limiter cannot have. It goes before what can be seen is drawn, so that nothing moves when it is.
  layOut() {
    const { state, badges } = this;
    const can = this.can();
    for (const [name, { node }] of Object.entries(this.figures)) node.classList.toggle("never", !can[name]);
    badges.dry.hidden = !state.dry_run;
    badges.denies.hidden = !state.limit.denies;
    setText(badges.denies, denial(state));
    badges.denies.classList.toggle("denies", denial(state) === deniesAll);
    badges.differs.hidden = this.differs === "";
    badges.learning.hidden = !state.learns;
    this.together.draw(state);
    if (!this.filled) return;
    this.keys.can = { ...can, learned: state.learns };
    this.keys.share = state.pool.weight / state.pool.replicas;
    for (const [name, { node }] of Object.entries(this.charts)) node.hidden = !can[name];
    this.graphs.dataset.count = String(Object.values(can).filter(Boolean).length);
    this.tiles.waiting.node.hidden = !can.waiting;
    this.tiles.inFlight.node.hidden = !can.inFlight;
    this.numbers.dataset.count = String(2 + Number(can.waiting) + Number(can.inFlight));
  }

  draw() {
    const { state } = this;
    if (!this.open) {
      this.drawLine();
      return;
    }
    setText(this.mark, this.differs === "" ? "" : `Differs from the file: ${this.differs}`);
    this.mark.hidden = this.differs === "";
    setText(this.dryButton, state.dry_run ? "Turn dry run off" : "Turn dry run on");
    this.drawTiles();
    for (const [name, chart] of Object.entries(this.charts)) {
      if (!chart.node.hidden) chart.draw(this.samples.map((s) => ({ t: s.t, values: s[name] })), this.now);
    }
    this.drawRules();
    this.drawPlans();
    this.drawOverrides();
  }

  // drawLine shows the key figures of a limiter that is closed.
  drawLine() {
    const { state, figures } = this;
    const last = this.samples.at(-1);
    const rate = (name) => (last?.[name] ? `${number(total(last[name]))}/s` : "–");
    setText(figures.admitted.value, rate("admitted"));
    setText(figures.refused.value, rate("refused"));
    setText(figures.waiting.value, exact(state.waiting));
    setText(figures.inFlight.value, exact(state.in_flight));
    figures.refused.node.classList.toggle("bad", Boolean(last?.refused) && total(last.refused) > 0);
    this.spark.draw(this.samples.map((s) => ({ t: s.t, value: s.admitted?.[""] })), this.now);
  }

  drawTiles() {
    const { state, tiles } = this;
    setText(tiles.waiting.value, exact(state.waiting));
    setText(tiles.inFlight.value, exact(state.in_flight));
    setText(tiles.keys.value, number(state.keys));
    setText(tiles.keys.note, `of at most ${number(state.max_keys)}`);
    setText(tiles.waiting.note, state.waiting > 0 ? "callers in queues" : "no queue");
    setText(tiles.inFlight.note, state.in_flight > 0 ? "slots in use" : "no slot in use");
  }

  // showUse shows the use of the hottest key: of its pace, where the policy has learned one that is used more than its share is.
  showUse(use) {
    setText(this.tiles.used.value, use === null ? "–" : `${Math.round(use.used * 100)} %`);
    const pace = use?.learned?.find((l) => l.used >= use.used);
    setText(this.tiles.used.note, use === null ? "no key yet" : pace ? `of its pace of ${paceText(pace)} used` : "of its share used");
  }

  drawRules() {
    const shown = JSON.stringify([this.state.rules, this.state.limit.denies && denial(this.state)]);
    if (shown === this.shownRules) return;
    this.shownRules = shown;
    const line = (rule) => labelled(ruleColumns, el("tr", {},
      el("th", { scope: "row", text: rule.name }),
      el("td", { text: ruleText(rule).limit }),
      el("td", { text: ruleText(rule).share }),
      el("td", { text: rule.burst ? number(rule.burst) : "–" })));
    const none = el("tr", {}, el("td", { colspan: 4, text: this.state.limit.denies ? `${denial(this.state)}.` : "No rule: everything is admitted." }));
    this.rules.replaceChildren(...(this.state.rules.length ? this.state.rules.map(line) : [none]));
  }

  drawPlans() {
    const { plans } = this.state;
    const shown = JSON.stringify(plans.map(({ name, limit, rules }) => [name, limit, rules]));
    if (shown !== this.shownPlans) {
      this.shownPlans = shown;
      this.planTable.hidden = plans.length === 0;
      this.planNote.hidden = plans.length > 0;
      this.planCells.clear();
      this.plans.replaceChildren(...plans.map((one) => this.planLine(one)));
    }
    for (const [name, cells] of this.planCells) {
      cells.forEach((cell, i) => setText(cell, this.planRates.has(name) ? `${number(this.planRates.get(name)[i])}/s` : "–"));
    }
  }

  planLine({ name, limit, rules }) {
    const act = (text, run) => el("button", { type: "button", "data-writes": true, class: "small", text, "aria-label": `${text} the plan ${name}`, onclick: run });
    this.planCells.set(name, [el("td"), el("td")]);
    return labelled(planColumns, el("tr", {},
      el("th", { scope: "row", class: "key", text: name }),
      el("td", { text: limitText(limit) }),
      el("td", { text: rules.map((rule) => ruleText(rule).share).join(", ") || "–" }),
      ...this.planCells.get(name),
      el("td", { class: "acts" },
        act("Change", () => changes.plan(this.name, name, this.done)),
        act("Remove", () => changes.removePlan(this.name, name, this.done)))));
  }

  drawOverrides() {
    const { overrides, override_count: count } = this.state;
    const shown = JSON.stringify([overrides, count]);
    for (const [cell, one] of this.ends) setText(cell, endText(one, this.now));
    if (shown === this.shownOverrides) return;
    this.shownOverrides = shown;
    this.overrideTable.hidden = overrides.length === 0;
    this.ends = [];
    this.overrides.replaceChildren(...overrides.map((one) => this.overrideLine(one)));
    setText(this.overrideNote, overrides.length === 0 ? "No key has a limit of its own." : count > overrides.length ? `The first ${exact(overrides.length)} of ${exact(count)}.` : "");
    this.overrideNote.hidden = this.overrideNote.textContent === "";
  }

  overrideLine(one) {
    const { key, limit, until } = one;
    const end = el("td", { text: until ? endText(one, this.now) : "never" });
    if (until) this.ends.push([end, one]);
    const act = (text, run) => el("button", { type: "button", "data-writes": true, class: "small", text, "aria-label": `${text} the override of ${key}`, onclick: run });
    return labelled(overrideColumns, el("tr", {},
      el("th", { scope: "row", class: "key" }, el("bdi", { text: key === "" ? "(empty key)" : key })),
      el("td", { text: limitText(limit) }),
      end,
      el("td", { class: "acts" },
        act("Change", () => changes.override(this.name, one, this.done)),
        act("Remove", () => changes.remove(this.name, one, this.done)))));
  }
}

// endText writes when the limit of a key's own ends, and what the key comes back to unless that is the limiter's or a plan's.
function endText({ until, then }, now) {
  return untilText(until, now) + (then ? `, then ${limitText(then)}` : "");
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

// ratesOfPlans are what each plan admits and refuses a second; those that were not there before have none.
function ratesOfPlans(before, after) {
  const seconds = after.t - before.t;
  const of = ([name, now]) => ["admitted", "refused_calls"].map((what) => Math.max(0, now[what] - before.plans.get(name)[what]) / seconds);
  return new Map([...after.plans].filter(([name]) => before.plans.has(name)).map((one) => [one[0], of(one)]));
}

// denial says whom a limiter denies that has the limit to deny: there may be plans, or keys with a limit of their own, that it admits.
const deniesAll = "Denies everything";
function denial({ plans, overrides }) {
  const admits = ({ limit }) => !limit.denies;
  if (plans.some(admits)) return "Denies keys in no plan";
  return overrides.some(admits) ? "Denies keys without a limit of their own" : deniesAll;
}

function total(values) {
  return Object.values(values).reduce((a, b) => a + b, 0);
}

function badge(text, kind, title = null) {
  return el("span", { class: `badge ${kind}`, title, text, hidden: true });
}

// figure is one number on the line of a limiter.
function figure(name) {
  const value = el("b", { text: "–" });
  return { value, node: el("span", { class: "key-figure" }, value, " ", name) };
}

function chevron() {
  return svg("svg", { class: "chevron", viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: "M6 3.5 10.5 8 6 12.5" }));
}

function tile(name) {
  const value = el("dd", { class: "figure", text: "–" });
  const note = el("dd", { class: "muted" });
  return { value, note, node: el("dl", { class: "tile" }, el("dt", { text: name }), value, note) };
}

function part(title, ...content) {
  return el("div", { class: "part" }, el("h3", { text: title }), ...content);
}
