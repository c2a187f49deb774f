// The process that the page is connected to: its name, and what the operator may do there.

let name = "";
let ahead = 0; // of this clock, the service's, in seconds

// know takes the name and the rights from a state. Buttons with data-writes are absent where the operator may only read.
export function know({ process, may, time }) {
  name = process.replica;
  ahead = Date.parse(time) / 1000 - performance.now() / 1000;
  document.title = name === "" ? "quotient" : `${name} · quotient`;
  if (may) document.documentElement.dataset.may = may.join(" ");
}

export function replicaName() {
  return name;
}

// now is the instant by the service's clock, in seconds.
export function now() {
  return performance.now() / 1000 + ahead;
}

// here ends the title of a dialog. The name is kept apart from the direction of the other letters.
export function here() {
  return name === "" ? "on this replica" : `on this replica (\u2068${name}\u2069)`;
}
