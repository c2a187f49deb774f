// Tables of the program's own, such as its upstreams. Cells change in place, so that selections and positions
// stay.
import { el, setText, table, exact } from "./dom.js";

const sheets = []; // in the order of the state

export function showTables({ tables = [] }) {
  const shape = (t) => JSON.stringify([t.title, t.columns]);
  if (tables.length !== sheets.length || tables.some((t, i) => shape(t) !== sheets[i].shape)) {
    const old = sheets.splice(0);
    for (const [i, t] of tables.entries()) sheets.push(old.find((sheet) => sheet.shape === shape(t) && !sheets.includes(sheet)) ?? sheet(t, shape(t), i));
    document.getElementById("tables").replaceChildren(...sheets.map((one) => one.node));
  }
  for (const [i, t] of tables.entries()) sheets[i].show(t);
}

function sheet({ title, columns }, shape, i) {
  const body = el("tbody");
  const note = el("p", { class: "empty" });
  const name = title || `Table ${i + 1}`;
  const scroll = table(name, columns, body);
  const node = el("section", { class: "fleet", "aria-label": name }, el("h2", { text: name }), el("div", { class: "card sheet" }, scroll, note));
  const show = ({ rows, more = 0 }) => {
    while (body.rows.length > rows.length) body.lastElementChild.remove();
    while (body.rows.length < rows.length) body.append(el("tr", {}, ...columns.map((_, c) => (c === 0 ? el("th", { scope: "row" }) : el("td")))));
    for (const [r, row] of rows.entries()) {
      const { cells } = body.rows[r];
      for (const [c, text] of row.entries()) {
        setText(cells[c], text);
        cells[c].classList.toggle("key", text.length > 40);
      }
    }
    scroll.hidden = rows.length === 0;
    setText(note, more > 0 ? `${exact(more)} more rows are not shown.` : rows.length === 0 ? "Nothing yet." : "");
    note.hidden = note.textContent === "";
  };
  return { shape, node, show };
}
