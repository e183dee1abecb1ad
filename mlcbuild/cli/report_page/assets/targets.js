"use strict";
/* Targets: the cells of matrices as grids, then all targets in a table. */

class TargetsView {
  constructor(build, { listLink, go }) {
    Object.assign(this, { build, listLink });
    this.rows = build.targetRows();
    const byLabel = new Map(this.rows.map((row) => [row.label, row]));
    this.matrices = matricesOf([...build.targets, ...build.skipped].map((target) => byLabel.get(target.label)));
    this.table = new VirtualTable({
      label: "Targets",
      identity: (row) => row.label,
      open: (row) => go(listLink(fieldQuery("target", row.label))),
      columns: [
        { title: "Target", width: "minmax(12rem, 3fr)", narrow: true, value: (row) => row.label, cell: (row) => h("span", { title: row.label }, row.label) },
        { title: "Outcome", width: "7rem", narrow: true, value: (row) => row.outcome, cell: (row) => outcomeLabel(row.outcome) },
        { title: "Ran", width: "4.5rem", right: true, descending: true, value: (row) => row.ran, cell: (row) => number(row.ran) },
        { title: "Cached", width: "5rem", right: true, descending: true, value: (row) => row.cached, cell: (row) => number(row.cached) },
        { title: "Time", width: "6.5rem", right: true, narrow: true, descending: true, value: (row) => row.seconds, cell: (row) => (row.ran ? seconds(row.seconds) : "") },
        { title: "Outputs", roomy: true, width: "minmax(8rem, 3fr)", cell: (row) => h("span", { class: "muted", title: row.outputs.join("\n") || row.error }, row.error || row.outputs.join(", ")) },
      ],
      sorting: (sort) => this.table.show(this.rows, sort),
    });
    this.table.show(this.rows);
    this.element = h("div", { class: "targets" }, this.matrices.map((matrix) => this.grid(matrix)), h("div", { class: "fill" }, this.table.element));
  }

  /** A grid whose columns are one axis, and whose rows are the combinations of the others. */
  grid(matrix) {
    const place = h("div", { class: "matrix-place" });
    const draw = (across) => place.replaceChildren(this.gridTable(matrix, across));
    const last = [...matrix.axes].reverse().find((axis) => matrix.values(axis).length > 1) ?? matrix.axes.at(-1);
    const choice = matrix.axes.length > 1 ? h("label", null, "Columns ", h("select", { onchange: (event) => draw(event.target.value) },
      matrix.axes.map((axis) => h("option", { value: axis, selected: axis === last }, axis)))) : null;
    draw(last);
    const counts = new Map();
    for (const row of matrix.rows) counts.set(row.outcome, (counts.get(row.outcome) ?? 0) + 1);
    return h("section", { class: "panel" }, h("div", { class: "toolbar" }, h("h2", null, `${matrix.place}: ${plural(matrix.rows.length, "cell")}`), [...counts].map(([outcome, count]) => h("span", null, outcomeLabel(outcome), " ", h("small", null, number(count)))), choice), place);
  }

  gridTable(matrix, across) {
    const others = matrix.axes.filter((axis) => axis !== across);
    const columns = matrix.values(across);
    const rows = new Map();
    for (const row of matrix.rows) {
      const names = others.map((axis) => row.axes[axis]);
      const key = JSON.stringify(names);
      if (!rows.has(key)) rows.set(key, { names, cells: new Map() });
      rows.get(key).cells.set(row.axes[across], row);
    }
    let above = [];
    return h("table", { class: "matrix" },
      h("thead", null, h("tr", null, others.map((axis) => h("th", { scope: "col" }, axis)), columns.map((value) => h("th", { scope: "col", title: `${across} ${value}` }, axisText(value, columns))))),
      h("tbody", null, [...rows.values()].map(({ names, cells }) => {
        const repeated = names.map((name, index) => names.slice(0, index + 1).every((each, place) => each === above[place]));
        above = names;
        return h("tr", null, names.map((name, index) => h("th", { scope: "row", class: repeated[index] ? "repeated" : null, title: name }, axisText(name, matrix.values(others[index])))),
          columns.map((value) => h("td", null, cells.has(value) ? this.cell(cells.get(value)) : h("span", { class: "no-cell", title: "This build had no such target" }, "–"))));
      })));
  }

  cell(row) {
    const note = row.ran ? seconds(row.seconds) : row.actions.length ? number(row.actions.length) : "";
    if (row.skipped) return h("span", { class: "cell skipped", title: `${row.label}: ${row.error}` }, "skipped");
    return h("a", { class: "cell", href: this.listLink(fieldQuery("target", row.label)), title: `${row.label}: ${row.outcome}, ${row.ran} ran, ${row.cached} cached${row.error ? `\n${row.error}` : ""}`, style: { "--colour": `var(${OUTCOME_COLOURS[row.outcome]})` } },
      h("strong", null, row.outcome), h("small", null, row.ran ? note : row.cached ? plural(row.cached, "hit") : ""));
  }
}

const outcomeLabel = (outcome) => h("span", { class: "status" }, h("i", { class: "dot", style: { "--colour": `var(${OUTCOME_COLOURS[outcome]})` } }), outcome);

/** A value of an axis; of a label the name alone, if no other value has it. */
function axisText(value, values) {
  const name = value.slice(value.lastIndexOf(":") + 1);
  return /^(\/\/|@)/.test(value) && values.filter((other) => other.endsWith(`:${name}`)).length === 1 ? name : value;
}

/** The targets with axes, by package and names of axes: each is a matrix, or several that have the same axes. Values keep their order. */
function matricesOf(rows) {
  const found = new Map();
  for (const row of rows) {
    const axes = Object.keys(row.axes ?? {});
    if (!axes.length) continue;
    const place = row.label.split(":")[0];
    const key = JSON.stringify([place, ...axes.toSorted()]);
    if (!found.has(key)) found.set(key, { place, axes, rows: [], values: (axis) => [...new Set(found.get(key).rows.map((each) => each.axes[axis]))] });
    found.get(key).rows.push(row);
  }
  return [...found.values()];
}
