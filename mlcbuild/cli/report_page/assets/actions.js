"use strict";
/* The list of actions. */

class ActionsView {
  constructor(build, { open, sorting }) {
    this.build = build;
    const longest = build.ran.reduce((most, action) => Math.max(most, action.seconds), 1e-9);
    this.table = new VirtualTable({
      label: "Actions",
      identity: (action) => action.identifier,
      open, sorting,
      move: (action) => { if (document.documentElement.classList.contains("with-action")) open(action); },
      empty: "No action is found. Clear the search with Escape.",
      columns: [
        { title: "Outcome", width: "8.5rem", narrow: true, value: (action) => Object.keys(STATUSES).indexOf(action.status), cell: (action) => statusLabel(action.status) },
        { title: "Action", width: "minmax(12rem, 5fr)", narrow: true, value: (action) => action.name, cell: (action) => h("span", { title: action.title }, action.name, h("span", { class: "beside muted" }, ` ${action.owner}`)) },
        { title: "Target", width: "minmax(8rem, 4fr)", value: (action) => action.owner, cell: (action) => h("span", { class: "muted", title: action.owner }, action.owner) },
        { title: "Start", roomy: true, width: "6rem", right: true, value: (action) => action.start, cell: (action) => seconds(action.start) },
        { title: "Time", width: "6.5rem", right: true, narrow: true, descending: true, value: (action) => action.seconds, cell: (action) => (action.ran ? seconds(action.seconds) : "") },
        { title: "", roomy: true, width: "6rem", cell: (action) => (action.ran ? bar(action.seconds / longest, action.onPath ? "--path" : statusColour(action.status)) : "") },
        { title: "Memory", roomy: true, width: "6rem", right: true, descending: true, value: (action) => action.peak_bytes, cell: (action) => (action.peak_bytes ? bytes(action.peak_bytes) : "") },
        { title: "Where", roomy: true, width: "minmax(6rem, 1fr)", value: (action) => action.machine, cell: (action) => action.machine },
        { title: "Why", roomy: true, width: "7.5rem", value: (action) => action.cause, cell: (action) => action.cause },
      ],
    });
    this.count = h("p", { class: "count", role: "status" });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Outcomes" });
    this.element = h("div", { class: "fill" }, h("div", { class: "toolbar" }, this.chips, this.count), this.table.element);
  }

  /** Show the actions that a query finds. Chips replace the part of the query that is about the outcome. */
  show(query, sort, choose) {
    if (query !== this.query || sort !== this.sort) {
      this.found = this.build.actions.filter(search(query));
      this.table.show(this.found, sort);
      if (query !== this.query) this.table.scroller.scrollTop = 0;
      const ran = this.found.reduce((sum, action) => sum + action.seconds, 0);
      this.count.textContent = `${number(this.found.length)}${this.found.length < this.build.actions.length ? ` of ${number(this.build.actions.length)}` : ""} actions${ran ? ` · ${seconds(ran)}` : ""}`;
      [this.query, this.sort] = [query, sort];
    }
    const rest = query.replace(/\s*(?<!-)\bstatus:(?:"[^"]*"?|\S+)\s*/g, " ").trim();
    const others = search(rest), counts = new Map(Object.keys(STATUSES).map((status) => [status, 0]));
    for (const action of this.build.actions) if (others(action)) counts.set(action.status, (counts.get(action.status) ?? 0) + 1);
    fill(this.chips, [...counts].map(([status, count]) => {
      const wanted = fieldQuery("status", statusName(status)), pressed = query.includes(wanted);
      if (!count && !pressed) return null;
      return h("button", { type: "button", "aria-pressed": String(pressed), onclick: () => choose(`${rest} ${pressed ? "" : wanted}`.trim()) }, statusLabel(status), " ", h("small", null, number(count)));
    }));
  }
}
