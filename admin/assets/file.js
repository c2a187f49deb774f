// The file that the limiters are configured by: what is in force, whether it is broken, and what operators
// changed by hand.
import { el, setText, exact, duration } from "./dom.js";

const facts = new Map();
const path = el("p", { class: "path" });
const list = el("dl", { class: "facts" });
const headline = el("strong");
const trouble = el("p", { class: "text", role: "alert" }); // the headline, with its time, changes each second
const broken = el("div", { class: "file-error", hidden: true }, headline, trouble);
const others = el("p", { class: "empty" });

// showFile shows the state's file, and returns what differs from it by the name of a limiter.
export function showFile({ file, limiters, time }) {
  const section = document.getElementById("file");
  section.hidden = file === undefined;
  if (file === undefined) return new Map();
  if (!path.isConnected) section.lastElementChild.append(path, list, broken, others);
  const now = Date.parse(time) / 1000;
  const failed = file.error !== "" && Date.parse(file.error_at ?? time) >= Date.parse(file.loaded);
  section.dataset.state = failed ? "broken" : "well";
  setText(path, file.path || "(no path)");
  fact("Loaded", when(file.loaded, now));
  fact("Reloads", exact(file.reloads));
  fact("Failures", exact(file.failures));
  fact("Changed by hand", file.differs.length > 0 ? exact(file.differs.length) + (file.differs.length === 1 ? " limiter" : " limiters") : "");
  fact("Last error, mended since", !failed && file.error !== "" ? file.error : "");
  setText(headline, failed ? `The file is broken: the last load failed ${when(file.error_at ?? time, now)}. The settings from before are still in force.` : "");
  setText(trouble, failed ? file.error : "");
  broken.hidden = !failed;
  const differs = byLimiter(file.differs);
  const gone = [...differs.keys()].filter((name) => !Object.hasOwn(limiters, name));
  setText(others, gone.length > 0 ? `Differs from the file: ${gone.map((name) => `${name} (${differs.get(name)})`).join(", ")}` : "");
  others.hidden = gone.length === 0;
  return differs;
}

// byLimiter cuts lines such as "api: limit, override /x".
function byLimiter(lines) {
  const differs = new Map();
  for (const line of lines) {
    const cut = line.indexOf(":");
    const name = cut < 0 ? line : line.slice(0, cut);
    const what = cut < 0 ? "changed by hand" : line.slice(cut + 1).trim();
    differs.set(name, differs.has(name) ? `${differs.get(name)}, ${what}` : what);
  }
  return differs;
}

function fact(name, value) {
  if (!facts.has(name)) {
    const dd = el("dd");
    facts.set(name, { dd, row: el("div", {}, el("dt", { text: name }), dd) });
    list.append(facts.get(name).row);
  }
  facts.get(name).row.hidden = value === "";
  setText(facts.get(name).dd, value);
}

// when writes an instant of the service's clock: how long ago for eyes that watch, and the time for those
// that search a log.
function when(text, now) {
  const then = Date.parse(text) / 1000;
  if (!(then > 0)) return "never";
  return `${duration(Math.max(0, now - then))} ago, at ${new Date(text).toLocaleTimeString()}`;
}
