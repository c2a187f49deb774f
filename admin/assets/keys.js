// The hottest keys of a limiter, or those that are refused most, requested every three seconds while they can be seen, and where one key stands.
import { el, setText, table, headOf, labelled, number, exact, duration, untilText, paceText, ruleText } from "./dom.js";
import { get, locked, named } from "./api.js";
import { read } from "./dialog.js";
import { override, reset } from "./changes.js";
import { now } from "./replica.js";
import { field, textual, select } from "./fields.js";

const pause = 3000;
const hovers = matchMedia("(hover: hover)");

export class HotKeys {
  // onUse is called with the hottest key, or null, whenever it changes.
  constructor(limiter, done, onUse) {
    this.limiter = limiter;
    this.done = done;
    this.onUse = onUse;
    this.timer = null;
    this.share = 1; // of each limit, by division
    this.can = { refused: true, waiting: true, inFlight: true, learned: false }; // what the limiter's keys can have
    this.columns = [];
    this.body = el("tbody");
    this.note = el("p", { class: "empty", text: "No key yet." });
    this.table = table("Keys, and what each was admitted and refused in the last minute", [], this.body, { cards: true });
    this.head = this.table.querySelector("thead");
    this.table.classList.add("keys");
    this.table.hidden = true;
    const key = textual("");
    const form = el("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); this.explain({ key: key.value }); } },
      field("key", "Any key", key), el("button", { class: "small", text: "Explain" }));
    this.by = select([["", "Hottest"], ["refused", "Most refused"]], "");
    this.by.setAttribute("aria-label", "Order of the keys");
    this.by.addEventListener("change", () => this.refresh());
    this.node = el("div", { class: "part" }, el("div", { class: "part-head" }, el("h3", { text: "Keys" }), this.by, form), this.table, this.note);
  }

  look(inSight) {
    if (inSight === (this.timer !== null)) return;
    if (!inSight) {
      clearInterval(this.timer);
      this.timer = null;
      return;
    }
    this.timer = setInterval(() => this.refresh(), pause);
    this.refresh();
  }

  // held reports whether a pointer is on a row: then the row must not move away under it.
  held() {
    return this.body.matches(":focus-within") || (hovers.matches && this.body.matches(":hover"));
  }

  async refresh() {
    if (this.asking || locked()) return;
    this.asking = true;
    try {
      const { value: by } = this.by;
      const { keys } = await get("keys", { limiter: this.limiter, top: 20, ...(by && { by }) });
      const hottest = by ? (await get("keys", { limiter: this.limiter, top: 20 })).keys : keys;
      this.onUse(hottest.length ? hottest.reduce((a, b) => (b.used > a.used ? b : a)) : null);
      this.show(keys);
    } catch {
      // The stream reports when the service cannot be reached; the keys stay as they were.
    } finally {
      this.asking = false;
    }
  }

  show(keys) {
    const paused = this.held();
    setText(this.note, paused ? "Not refreshed while you are in the table." : "No key yet.");
    this.note.hidden = keys.length > 0 && !paused;
    if (paused) return;
    this.table.hidden = keys.length === 0;
    const columns = ["Key", "Used", this.can.waiting && "Waiting", this.can.inFlight && "In flight", "Left", this.can.refused && "Admitted/min", this.can.refused && "Refused/min", this.can.learned && "Pace", ""].filter((name) => name !== false);
    if (columns.join() !== this.columns.join()) {
      this.columns = columns;
      this.head.replaceChildren(headOf(columns));
    }
    this.body.replaceChildren(...keys.map((use) => labelled(columns, this.line(use))));
  }

  line(use) {
    const cells = {
      Used: () => el("td", {}, meter(use.used)),
      Waiting: () => el("td", { text: exact(use.waiting) }),
      "In flight": () => el("td", { text: exact(use.in_flight) }),
      Left: () => el("td", { text: use.tokens.map(number).join(", ") || "–" }),
      "Admitted/min": () => el("td", { text: use.refused_last_minute > 0 ? exact(use.admitted_last_minute) : "–" }), // counting begins with a refusal
      "Refused/min": () => el("td", { class: use.refused_last_minute > 0 ? "bad" : null, text: exact(use.refused_last_minute) }),
      Pace: () => el("td", { class: "paces" }, ...paces(use)),
      "": () => el("td", { class: "acts" }, el("button", { type: "button", class: "small", text: "Explain", "aria-label": `Explain ${use.key}`, onclick: () => this.explain({ key: use.key, key_base64: use.key_base64 }) })),
    };
    const head = el("th", { scope: "row", class: "key" }, name(use.key), " ",
      use.overridden ? badge("override", "a limit of its own") : badge(use.plan, "its plan"), this.borrowed(use), learning(use));
    return el("tr", {}, head, ...this.columns.slice(1).map((column) => cells[column]()));
  }

  // borrowed is what of its limit a key has here while other replicas leave it; null for the share.
  borrowed({ part }) {
    const percent = (of) => `${number(of * 100)} %`;
    return part ? badge(`${percent(part)} of the limit, share ${percent(this.share)}`, "other replicas leave it to this one") : null;
  }

  // explain shows where a key stands: { key, key_base64 }.
  explain(key) {
    const load = async () => explanation(await get("explain", { limiter: this.limiter, ...named(key) }));
    read(`Key ${key.key === "" ? "(empty)" : key.key}`, load, [
      ["Override this key", () => override(this.limiter, key, this.done)],
      ["Reset this key", () => reset(this.limiter, key, this.done)],
    ]);
  }
}

function name(key) {
  return el("bdi", { text: key === "" ? "(empty key)" : key });
}

// badge says what limit a key has, "" for the limiter's.
function badge(text, title) {
  return text === "" ? null : el("span", { class: "badge", title, text });
}

function meter(share) {
  const percent = Math.round(share * 100);
  const bar = el("meter", { min: 0, max: 100, high: 80, optimum: 0, value: percent, "aria-hidden": "true" });
  return el("span", { class: "use" }, bar, el("span", { text: `${percent} %` }));
}

// learning is the badge of a key of which the policy has learned something.
function learning({ learned = [] }) {
  return learned.some((one) => one.forgotten_in_seconds > 0) ? el("span", { class: "badge learning", title: "the policy has learned its pace", text: "learning" }) : null;
}

// paces are what the policy allows a key, and how much of each is used.
function paces({ learned = [] }) {
  const line = (one) => el("span", { class: "pace" }, paceText(one), " ", el("span", { class: "muted", text: pauseText(one) || `${Math.round(one.used * 100)} % used` }));
  return learned.length ? learned.map(line) : ["–"];
}

function pauseText(one) {
  return one.paused_for_seconds > 0 ? `paused for ${duration(one.paused_for_seconds)}` : "";
}

function explanation(about) {
  const line = (rule) => el("tr", {},
    el("th", { scope: "row", text: rule.name }),
    el("td", { text: ruleText(rule).limit }),
    el("td", { text: ruleText(rule).share }),
    el("td", { text: `${number(rule.tokens)} left` }),
    el("td", { text: rule.resets_seconds > 0 ? `in ${number(rule.resets_seconds)} s` : "–" }));
  const columns = ["Rule", "Limit", "Share", "Stands at", "Full again"];
  const fact = (name, text, kind = null) => el("div", {}, el("dt", { text: name }), el("dd", { class: kind, text }));
  const refused = about.refused_last_minute;
  return [
    el("dl", { class: "facts" },
      fact("Refused in the last minute", exact(refused), refused > 0 ? "bad" : null),
      refused > 0 ? fact("Admitted in the last minute", exact(about.admitted_last_minute)) : null, // counting begins with a refusal
      about.override_until ? fact("Its own limit ends", untilText(about.override_until, now())) : null),
    el("pre", { class: "text", text: about.text }),
    table("Rules as they stand for this key", columns, el("tbody", {}, ...about.rules.map(line))),
    ...(about.learned.length ? [el("h3", { text: "Learned by the policy" }), lessons(about.learned)] : []),
  ];
}

// lessons is a table of what the policy has learned of a key.
function lessons(learned) {
  const unbounded = 1e300; // the largest number of JSON stands for no bound
  const line = (one) => el("tr", {},
    el("th", { scope: "row", text: paceText(one) }),
    el("td", { text: pauseText(one) || `${Math.round(one.used * 100)} %` }),
    el("td", { text: one.ceiling > unbounded ? "no bound" : paceText({ ...one, pace: one.ceiling }) }),
    el("td", { text: one.forgotten_in_seconds > 0 ? `in ${duration(one.forgotten_in_seconds)}` : "nothing learned yet" }));
  return table("What the policy has learned of this key", ["Pace", "Used", "At most", "Forgotten"], el("tbody", {}, ...learned.map(line)));
}
