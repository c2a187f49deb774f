// The process that the page is connected to: its name, and what the operator may do there.

let name = "";

// know takes the name and the rights from a state. Buttons with data-writes are absent where the operator may only read.
export function know({ process, may }) {
  name = process.replica;
  document.title = name === "" ? "quotient" : `${name} · quotient`;
  if (may) document.documentElement.dataset.may = may.join(" ");
}

export function replicaName() {
  return name;
}

// here ends the title of a dialog. The name is kept apart from the direction of the other letters.
export function here() {
  return name === "" ? "on this replica" : `on this replica (\u2068${name}\u2069)`;
}
