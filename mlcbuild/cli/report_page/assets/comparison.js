"use strict";
/* The build beside an earlier one: totals, kinds of actions, and each action that differs. */

const MOST_KINDS = 6;
const DIFFERENCES = {
  all: () => true,
  slower: (row) => row.delta > 0,
  faster: (row) => row.delta < 0,
  "ran now alone": (row) => row.now?.ran && !row.then?.seconds,
  "ran then alone": (row) => row.then?.seconds > 0 && !row.now?.ran,
  "another key": (row) => row.what === "another key",
  new: (row) => row.what === "new",
  gone: (row) => row.what === "gone",
};

class ComparisonView {
  constructor(build, { open }) {
    this.build = build;
    this.earlier = build.comparison.build;
    this.rows = differencesOf(build);
    this.choice = "all";
    const longest = this.rows.reduce((most, row) => Math.max(most, Math.abs(row.delta)), 1e-9);
    this.table = new VirtualTable({
      label: "Actions that differ",
      identity: (row) => row.title,
      open: (row) => row.now && open(row.now),
      empty: "No action differs in this way.",
      columns: [
        { title: "Action", width: "minmax(14rem, 4fr)", narrow: true, value: (row) => row.title, cell: (row) => h("span", { title: row.title }, row.title) },
        { title: "Differs", width: "9.5rem", value: (row) => row.what, cell: (row) => row.what },
        { title: "Then", width: "7rem", right: true, descending: true, value: (row) => row.then?.seconds ?? -1, cell: (row) => (row.then ? row.then.seconds ? seconds(row.then.seconds) : h("span", { class: "muted" }, statusName(row.then.status)) : "") },
        { title: "Now", width: "7rem", right: true, descending: true, value: (row) => row.now?.seconds ?? -1, cell: (row) => (row.now ? row.now.ran ? seconds(row.now.seconds) : h("span", { class: "muted" }, statusName(row.now.status)) : "") },
        { title: "Change", width: "7rem", right: true, narrow: true, descending: true, value: (row) => row.delta, cell: (row) => h("span", { class: row.delta > 0 ? "worse" : row.delta < 0 ? "better" : "muted" }, change(row.delta)) },
        { title: "", roomy: true, width: "8rem", cell: (row) => divergingBar(row.delta / longest) },
      ],
      sorting: (sort) => { this.sort = sort; this.update(); },
    });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Which differences" }, Object.keys(DIFFERENCES).map((name) => {
      const count = this.rows.filter(DIFFERENCES[name]).length;
      return count || name === "all" ? h("button", { type: "button", "aria-pressed": String(name === "all"), "data-name": name, onclick: () => this.choose(name) }, `${name} `, h("small", null, number(count))) : null;
    }));
    this.update();
    this.element = h("div", { class: "comparison" }, this.totals(), h("div", { class: "fill" }, this.chips, this.table.element));
  }

  choose(name) {
    this.choice = name;
    for (const chip of this.chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.name === name));
    this.update();
  }

  update() { this.table.show(this.rows.filter(DIFFERENCES[this.choice]), this.sort ?? ""); }

  totals() {
    const { build, earlier } = this;
    const before = build.comparison.counts;
    const sum = (counts, statuses) => statuses.reduce((total, status) => total + (counts[status] ?? 0), 0);
    const now = Object.fromEntries(build.counts());
    const all = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);
    const then = build.actions.reduce((total, action) => total + (action.before?.seconds ?? 0), 0) + build.comparison.gone.reduce((total, action) => total + action.seconds, 0);
    const rows = [
      ["Duration", seconds(earlier.wall_seconds), seconds(build.wall_seconds), build.wall_seconds - earlier.wall_seconds],
      ["Work", seconds(then), seconds(build.work), build.work - then],
      ["Actions", number(all(before)), number(build.actions.length), null],
      ["Ran", number(sum(before, ["executed_local", "executed_ray"])), number(sum(now, ["executed_local", "executed_ray"])), null],
      ["From caches", percent(sum(before, [...CACHED]), all(before)), percent(build.cached, build.actions.length), null],
      ["Failed", number(before.failed ?? 0), number(now.failed), null],
    ];
    return h("section", { class: "panel" }, h("div", { class: "columns" }, h("div", null, this.summary(earlier, rows)), this.kinds()));
  }

  summary(earlier, rows) {
    return h("div", null, h("h2", null, "Compared with build ", h("code", null, earlier.invocation.slice(0, 8))),
      h("p", { class: "hint" }, earlier.began ? `${moment(earlier.began)} · ` : "", h("code", null, ["mlcbuild", ...earlier.arguments].join(" "))),
      h("table", { class: "plain totals" }, h("thead", null, h("tr", null, ["", "Then", "Now", "Change"].map((name, index) => h("th", { scope: "col", class: index ? "right" : null }, name)))),
        h("tbody", null, rows.map(([name, before_, after, delta]) => h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "right" }, before_), h("td", { class: "right" }, after), h("td", { class: `right ${delta > 0 ? "worse" : delta < 0 ? "better" : ""}` }, delta === null ? "" : change(delta)))))));
  }

  /** The kinds of actions whose time has changed most. */
  kinds() {
    const kinds = new Map();
    const add = (name, then, now) => {
      const [before, after] = kinds.get(name) ?? [0, 0];
      kinds.set(name, [before + then, after + now]);
    };
    for (const action of this.build.actions) add(action.mnemonic, action.before?.seconds ?? 0, action.seconds);
    for (const action of this.build.comparison.gone) add(action.mnemonic, action.seconds, 0);
    const rows = [...kinds].filter(([, [then, now]]) => then || now).sort(([, one], [, other]) => Math.abs(other[1] - other[0]) - Math.abs(one[1] - one[0]));
    const most = Math.max(1e-9, ...rows.map(([, [then, now]]) => Math.abs(now - then)));
    return h("div", null, h("h2", null, "Time by kind of action"), h("table", { class: "plain" },
      h("thead", null, h("tr", null, ["Kind", "Then", "Now", "Change"].map((name, index) => h("th", { scope: "col", class: index ? "right" : null }, name)), h("td", null))),
      h("tbody", null, rows.slice(0, MOST_KINDS).map(([name, [then, now]]) => h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "right" }, seconds(then)), h("td", { class: "right" }, seconds(now)),
        h("td", { class: `right ${now > then ? "worse" : "better"}` }, change(now - then)), h("td", { class: "meters" }, divergingBar((now - then) / most)))))));
  }
}

/** Each action that is new, gone, has another key, another outcome, or ran in a build. The largest change of time comes first. */
function differencesOf(build) {
  const rows = build.actions.map((now) => ({ title: now.title, now, then: now.before, delta: now.seconds - (now.before?.seconds ?? 0), what: whatDiffers(now) }));
  rows.push(...build.comparison.gone.map((then) => ({ title: then.title, now: null, then, delta: -then.seconds, what: "gone" })));
  return rows.filter((row) => row.what || Math.abs(row.delta) >= 0.0005).sort((one, other) => Math.abs(other.delta) - Math.abs(one.delta));
}

function whatDiffers(now) {
  if (!now.before) return "new";
  if (!now.before.same_key) return "another key";
  return now.before.status === now.status ? "" : "another outcome";
}

const divergingBar = (share) => h("span", { class: "diverging", "aria-hidden": "true" }, h("i", { class: share > 0 ? "worse" : "better", style: { width: `${Math.max(1, 50 * Math.abs(share)).toFixed(1)}%` } }));
