"use strict";
/* A table of which only the rows in sight are elements, so that ten thousand rows scroll like ten. */

const ROW_HEIGHT = 30; // pixels; style.css has the same
const BEYOND = 10; // rows above and below those in sight

class VirtualTable {
  /**
   * `columns`: {title, width (a grid track), cell(row), value(row) to sort by, descending, right, narrow (shown also
   * where there is little room), roomy (only where there is much)}. `open` is called with a row that is clicked or entered, `move` with one that arrows
   * have reached. `sorting` is told "title" or "-title" of the column that the user sorts by.
   */
  constructor({ label, columns, open, move = () => {}, sorting = () => {}, identity, empty = "Nothing is found." }) {
    Object.assign(this, { columns, open, move, sorting, identity, empty });
    this.rows = [];
    this.current = -1;
    this.shown = [-1, -1];
    this.name = `table-${VirtualTable.count = (VirtualTable.count ?? 0) + 1}`;
    this.head = h("div", { role: "row", class: "row head" }, columns.map((column) => this.header(column)));
    this.body = h("div", { role: "rowgroup", class: "rows" });
    this.scroller = h("div", {
      role: "grid", class: "table", tabindex: "0", "aria-label": label, "aria-colcount": columns.length,
      style: { "--columns": tracks(columns), "--columns-medium": tracks(columns.filter((column) => !column.roomy)), "--columns-narrow": tracks(columns.filter((column) => column.narrow)).replaceAll(/minmax\([^,]+,/g, "minmax(0,") },
      onscroll: () => this.draw(), onkeydown: (event) => this.key(event), onclick: (event) => this.click(event),
    }, h("div", { role: "rowgroup", class: "heads" }, this.head), this.body);
    this.element = this.scroller;
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  header(column) {
    const button = column.value
      ? h("button", { type: "button", tabindex: "-1", onclick: () => this.sortByUser(column) }, column.title)
      : column.title;
    return h("div", { role: "columnheader", class: cellClass(column), "aria-sort": column.value ? "none" : null }, button);
  }

  sortByUser(column) {
    const now = this.sort ?? "";
    const descending = now.replace(/^-/, "") === column.title ? !now.startsWith("-") : Boolean(column.descending);
    this.sorting(`${descending ? "-" : ""}${column.title}`);
  }

  /** Show these rows, sorted by "title" or "-title" of a column, or as they are. The current row stays, if it is there. */
  show(rows, sort = "") {
    const identity = this.rows[this.current] && this.identity(this.rows[this.current]);
    this.sort = sort;
    const column = this.columns.find((each) => each.value && each.title === sort.replace(/^-/, ""));
    this.rows = column ? sorted(rows, column.value, sort.startsWith("-")) : rows;
    this.columns.forEach((each, index) => {
      if (each.value) this.head.children[index].setAttribute("aria-sort", each !== column ? "none" : sort.startsWith("-") ? "descending" : "ascending");
    });
    this.scroller.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.body.style.setProperty("height", `${Math.max(1, this.rows.length) * ROW_HEIGHT}px`);
    this.current = identity === undefined ? -1 : this.rows.findIndex((row) => this.identity(row) === identity);
    this.shown = [-1, -1];
    this.draw();
  }

  /** Mark a row as the current one, and scroll to it. */
  select(identity, { scroll = true } = {}) {
    this.setCurrent(this.rows.findIndex((row) => this.identity(row) === identity), scroll);
  }

  setCurrent(index, scroll = true) {
    this.current = index;
    if (scroll && index >= 0) {
      const top = index * ROW_HEIGHT, inner = this.scroller.clientHeight - ROW_HEIGHT;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + ROW_HEIGHT > this.scroller.scrollTop + inner) this.scroller.scrollTop = top + ROW_HEIGHT - inner;
      this.draw();
    }
    for (const row of this.body.children) row.setAttribute("aria-selected", String(Number(row.dataset.index) === index));
    if (index >= 0) this.scroller.setAttribute("aria-activedescendant", `${this.name}-${index}`);
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_HEIGHT) - BEYOND);
    const last = Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / ROW_HEIGHT) + BEYOND);
    if (this.shown[0] === first && this.shown[1] === last) return;
    this.shown = [first, last];
    const made = [];
    for (let index = first; index < last; index += 1) made.push(this.row(index));
    this.body.replaceChildren(...(made.length ? made : [h("p", { class: "empty" }, this.empty)]));
  }

  row(index) {
    return h("div", {
      role: "row", class: "row", id: `${this.name}-${index}`, "data-index": index, "aria-rowindex": index + 2,
      "aria-selected": String(index === this.current), style: { transform: `translateY(${index * ROW_HEIGHT}px)` },
    }, this.columns.map((column) => h("div", { role: "gridcell", class: cellClass(column) }, column.cell(this.rows[index]))));
  }

  click(event) {
    const row = event.target.closest("[data-index]");
    if (!row || event.target.closest("a")) return;
    this.setCurrent(Number(row.dataset.index), false);
    this.open(this.rows[this.current]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.rows.length) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 2);
    const last = this.rows.length - 1;
    const moves = {
      ArrowDown: this.current + 1, ArrowUp: this.current - 1, PageDown: this.current + page, PageUp: this.current - page,
      Home: 0, End: last,
    };
    if (event.key === "Enter" && this.current >= 0) this.open(this.rows[this.current]);
    else if (event.key in moves) {
      this.setCurrent(Math.min(last, Math.max(0, moves[event.key])));
      this.move(this.rows[this.current]);
    } else return;
    event.preventDefault();
  }
}

const tracks = (columns) => columns.map((column) => column.width).join(" ");
const cellClass = (column) => [column.right ? "right" : "", column.narrow ? "" : column.roomy ? "roomy" : "medium"].join(" ").trim();

/** A sorted copy; equal rows stay in their order. */
function sorted(rows, value, descending) {
  const keyed = rows.map((row, index) => [value(row), index, row]);
  const sign = descending ? -1 : 1;
  keyed.sort(([one, first], [other, second]) => (one < other ? -sign : one > other ? sign : first - second));
  return keyed.map(([, , row]) => row);
}
