// A live chart of the last two minutes, drawn by hand as SVG.
import { el, svg, setText, number, newID, words } from "./dom.js";

const span = 120; // seconds
const width = 320;
const height = 104;
const top = 18; // room above the highest value, for its number
const near = 5; // seconds between the pointer and the value that is shown there
const ticks = ["−2 min", "−90 s", "−1 min", "−30 s", "now"];
const speakEvery = 5000; // milliseconds between two texts for screen readers

// Chart shows one or several series over time, stacked. Each sample is { t, values }, with t in seconds and values by name.
// A sample of null values is a gap. The values of an instant are shown under the pointer, and by the arrow keys.
export class Chart {
  constructor(title, unit, tone) {
    this.title = title;
    this.unit = unit;
    this.tone = tone;
    this.spokenAt = 0;
    this.samples = [];
    this.end = 0; // the instant at the right edge, in seconds
    this.at = null; // the instant whose values are shown: { x } from 0 to 1 for the pointer's, { t } for the keyboard's
    this.shapes = new Map();
    this.colours = new Map(); // by the order in which series first came
    this.now = el("span", { class: "value", text: "–" });
    this.most = el("span", { text: "" });
    this.legend = el("ul", { class: "legend", hidden: true });
    this.layer = svg("g");
    this.cursor = svg("line", { class: "cursor", y1: 0, y2: height });
    this.tip = el("p", { class: "tip", hidden: true });
    const label = newID("chart");
    this.svg = svg(
      "svg",
      { class: `plot tone-${tone}`, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", tabindex: 0, "aria-label": `${title}: no data yet` },
      svg("line", { class: "grid", x1: 0, x2: width, y1: top, y2: top }),
      svg("line", { class: "grid", x1: 0, x2: width, y1: (height + top) / 2, y2: (height + top) / 2 }),
      ...[1, 2, 3].map((i) => svg("line", { class: "grid", x1: (width * i) / 4, x2: (width * i) / 4, y1: top, y2: height })),
      this.layer,
      this.cursor,
      svg("line", { class: "base", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
    );
    const axis = el("div", { class: "axis", "aria-hidden": "true" }, ...ticks.map((text) => el("span", { text })));
    const frame = el("div", { class: "frame" }, this.svg, el("span", { class: "most", "aria-hidden": "true" }, this.most), this.tip);
    frame.addEventListener("pointermove", ({ clientX }) => {
      const box = frame.getBoundingClientRect();
      this.point({ x: (clientX - box.left) / box.width });
    });
    frame.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.step(event));
    this.node = el(
      "figure",
      { class: "chart", "aria-labelledby": label },
      el("figcaption", { id: label }, el("span", { class: "name", text: title }), el("span", { class: "current" }, this.now, el("span", { class: "unit", text: unit }))),
      frame,
      axis,
      this.legend,
    );
  }

  // draw shows the samples as they are at the instant now, in seconds.
  draw(samples, now) {
    this.samples = samples.filter((s) => s.values);
    this.end = now;
    const names = seriesOf(samples);
    const last = samples.at(-1)?.values;
    const current = last ? sum(last, names) : NaN;
    setText(this.now, number(current));
    const scale = roundUp(Math.max(...samples.map((s) => (s.values ? sum(s.values, names) : 0)), 0));
    setText(this.most, number(scale));
    const base = new Array(samples.length).fill(0);
    for (const name of names) this.shape(name, samples, base, now, scale);
    for (const [name, shape] of this.shapes) {
      if (!names.includes(name)) this.drop(name, shape);
    }
    this.showLegend(names, last);
    this.speak(samples, names, current);
    this.point(this.at);
  }

  // point shows the values of an instant, null for none. What the keyboard leads to is said too.
  point(at) {
    this.at = at;
    const t = at?.t ?? this.end - span * (1 - at?.x);
    const away = (s) => Math.abs(s.t - t);
    const sample = at && this.samples.length ? this.samples.reduce((a, b) => (away(b) < away(a) ? b : a)) : null;
    const shown = sample !== null && away(sample) <= near;
    this.tip.hidden = !shown;
    this.cursor.style.display = shown ? "" : "none";
    if (!shown) return;
    const percent = Math.min(100, Math.max(0, 100 * (1 - (this.end - sample.t) / span)));
    this.cursor.setAttribute("x1", (width * percent) / 100);
    this.cursor.setAttribute("x2", (width * percent) / 100);
    this.tip.style.left = `${percent}%`;
    this.tip.style.transform = `translateX(-${percent}%)`;
    this.tip.setAttribute("aria-live", at.t ? "polite" : "off");
    const names = seriesOf([sample]);
    const each = names.filter((name) => name !== "").map((name) => `${words(name)} ${number(sample.values[name])}`);
    setText(this.tip, [new Date(sample.t * 1000).toLocaleTimeString(), `${number(sum(sample.values, names))} ${this.unit}`, ...each].join(" · "));
  }

  // step moves from one sample to the next by the arrow keys.
  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.point(null);
    if (!by || this.samples.length === 0) return;
    event.preventDefault();
    const i = this.at?.t ? this.samples.findIndex((s) => s.t >= this.at.t) + by : this.samples.length - 1;
    this.point({ t: this.samples[Math.min(Math.max(i, 0), this.samples.length - 1)].t });
  }

  // colour returns the class of a series' colour, which it keeps when others come and go.
  colour(name) {
    if (!this.colours.has(name)) this.colours.set(name, this.colours.size % 8);
    return `series-${this.colours.get(name)}`;
  }

  shape(name, samples, base, now, scale) {
    let shape = this.shapes.get(name);
    if (!shape) {
      shape = { area: svg("path"), line: svg("path") };
      this.shapes.set(name, shape);
      this.layer.append(shape.area, shape.line);
    }
    shape.area.setAttribute("class", `area ${this.colour(name)}`);
    shape.line.setAttribute("class", `line ${this.colour(name)}`);
    const x = (s) => (width * (1 - (now - s.t) / span)).toFixed(1);
    const y = (v) => (height - ((height - top) * v) / scale).toFixed(1);
    let line = "";
    let area = "";
    for (const run of runs(samples)) {
      const upper = run.map((j) => `${x(samples[j])},${y(base[j] + (samples[j].values[name] ?? 0))}`);
      const lower = run.map((j) => `${x(samples[j])},${y(base[j])}`).reverse();
      line += `M${upper.join("L")}`;
      area += `M${upper.join("L")}L${lower.join("L")}Z`;
      for (const j of run) base[j] += samples[j].values[name] ?? 0;
    }
    shape.line.setAttribute("d", line);
    shape.area.setAttribute("d", area);
  }

  drop(name, shape) {
    shape.area.remove();
    shape.line.remove();
    this.shapes.delete(name);
  }

  // showLegend names the series with their current values, where they have names.
  showLegend(names, last) {
    const named = names.filter((name) => name !== "");
    this.legend.hidden = named.length === 0;
    while (this.legend.children.length > named.length) this.legend.lastChild.remove();
    while (this.legend.children.length < named.length) {
      this.legend.append(el("li", {}, el("span", { "aria-hidden": "true" }), el("span"), el("b")));
    }
    named.forEach((name, i) => {
      const [swatch, text, value] = this.legend.children[i].children;
      swatch.setAttribute("class", `swatch ${this.colour(name)}`);
      setText(text, words(name));
      setText(value, number(last?.[name] ?? NaN));
    });
  }

  // speak gives the picture its text, not more often than a listener can bear.
  speak(samples, names, current) {
    if (performance.now() - this.spokenAt < speakEvery && this.spokenAt > 0) return;
    const totals = samples.filter((s) => s.values).map((s) => sum(s.values, names));
    if (totals.length === 0) return;
    this.spokenAt = performance.now();
    const low = number(Math.min(...totals));
    const high = number(Math.max(...totals));
    this.svg.setAttribute("aria-label", `${this.title}, last 2 minutes: now ${number(current)} ${this.unit}, lowest ${low}, highest ${high}`);
  }
}

// Spark is a small chart of one series, without a scale. Each sample is { t, value }; one without a value is a gap.
export class Spark {
  constructor() {
    this.line = svg("path", { class: "line" });
    this.node = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.line);
  }

  // draw shows the samples as they are at the instant now, in seconds.
  draw(samples, now) {
    const most = Math.max(...samples.map((s) => s.value ?? 0), 1e-9);
    const point = ({ t, value }) => `${(width * (1 - (now - t) / span)).toFixed(0)},${(height - 4 - ((height - 8) * value) / most).toFixed(0)}`;
    let line = "";
    let pen = "M";
    for (const sample of samples) {
      if (sample.value === undefined) pen = "M";
      else {
        line += pen + point(sample);
        pen = "L";
      }
    }
    this.line.setAttribute("d", line);
  }
}

// seriesOf returns the names of all series in the samples, in a steady order.
function seriesOf(samples) {
  const names = new Set();
  for (const s of samples) for (const name of Object.keys(s.values ?? {})) names.add(name);
  return [...names].sort();
}

function sum(values, names) {
  return names.reduce((total, name) => total + (values[name] ?? 0), 0);
}

// runs returns the indices of samples between two gaps.
function runs(samples) {
  const all = [[]];
  samples.forEach((s, i) => {
    if (s.values) all.at(-1).push(i);
    else if (all.at(-1).length) all.push([]);
  });
  return all.filter((run) => run.length > 0);
}

// roundUp returns the end of a scale: 1, 2, 4, 5, 8 or 10 times a power of ten.
function roundUp(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 2, 4, 5, 8]) if (most <= step * power) return step * power;
  return 10 * power;
}
