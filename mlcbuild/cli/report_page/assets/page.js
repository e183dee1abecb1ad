"use strict";
/* The page: which view is shown, the address of each state, the keyboard, and the theme. */

const VIEWS = {
  overview: "Overview",
  timeline: "Timeline",
  actions: "Actions",
  targets: "Targets",
  comparison: "Comparison",
};
const THEMES = ["system", "light", "dark"];
const HELP = [
  ["/", "search"], ["Esc", "close the action, or clear the search"], ["1 … 5", "the views, from left to right"],
  ["↑ ↓", "the row or the worker above or below"], ["← →", "in the timeline: the action before or after"], ["Enter", "open the action"],
  ["j k", "in an open action: the next and the previous action of the list"], ["+ − 0", "in the timeline: zoom in, zoom out, the whole build"], ["a d, z", "in the timeline: move, zoom to the action"],
  ["t", "light, dark or the system's theme"], ["?", "this help"],
];
const SEARCHES = [
  ["matmul qkv", "titles with both words; the first digits of a key find its action"], ["kind:CompileKernel", "kinds of actions"], ["status:failed", "failed, skipped, unfinished, ran here, ran on ray, from disk, from remote, up to date, not cached"],
  ['why:"first build"', "exactly this cause"], ["target://models", "targets whose label contains this"], ["where:node-2", "machines"], ["path:critical", "the critical path"], ["-kind:Fetch", "all but these"],
];

class Page {
  constructor(build) {
    this.build = build;
    this.main = document.getElementById("content");
    this.input = document.getElementById("query");
    this.views = new Map();
    const links = {
      link: (action) => this.address({ action: action.identifier }),
      listLink: (query, sort = "Start") => this.address({ view: "actions", query, sort, action: "" }),
      actionLink: (action) => this.address({ action: action.identifier }),
      open: (action) => this.go({ action: action.identifier }),
      go: (address) => { location.hash = address; },
      close: () => this.closeAction(),
      sorting: (sort) => this.go({ sort }, { replace: true }),
    };
    this.panel = new ActionPanel(document.getElementById("action"), build, links);
    this.makers = {
      overview: () => ({ element: overview(build, links) }),
      timeline: () => (build.actions.length ? new Timeline(build, links.open) : { element: h("p", { class: "empty" }, "There was nothing to do.") }),
      actions: () => new ActionsView(build, links),
      targets: () => new TargetsView(build, links),
      comparison: () => (build.comparison ? new ComparisonView(build, links) : { element: h("p", { class: "empty" }, "No earlier build of the same targets is recorded. `mlcbuild report --compare` names another one.") }),
    };
    document.title = `${build.exit_code === 0 ? "✓" : "✕"} ${build.targets.map((target) => target.label).slice(0, 2).join(", ") || "build"} · mlcbuild`;
    this.navigation();
    this.listen();
    this.render();
  }

  // The state is the part of the address after #: `actions?q=…&sort=-Time&action=…`.

  state() {
    const [view, parameters] = location.hash.slice(1).split(/\?(.*)/s);
    const given = new URLSearchParams(parameters ?? "");
    return { view: view in VIEWS ? view : "overview", query: given.get("q") ?? "", sort: given.get("sort") ?? "Start", action: given.get("action") ?? "" };
  }

  address(changes) {
    const { view, query, sort, action } = { ...this.state(), ...changes };
    const parameters = new URLSearchParams(Object.entries({ q: query, sort: sort === "Start" ? "" : sort, action }).filter(([, value]) => value));
    return `#${view}${parameters.size ? `?${parameters}` : ""}`;
  }

  go(changes, { replace = false } = {}) {
    const address = this.address(changes);
    if (address === location.hash) return;
    history[replace ? "replaceState" : "pushState"](null, "", address);
    this.render();
  }

  navigation() {
    const counts = { actions: this.build.actions.length, targets: this.build.targets.length };
    document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([view, name], index) =>
      h("li", null, h("a", { "data-view": view, href: `#${view}`, "aria-keyshortcuts": String(index + 1), title: `${name} (${index + 1})` }, name, counts[view] ? [" ", h("small", null, number(counts[view]))] : null))));
  }

  render() {
    const state = this.state();
    const scrolled = this.shown !== state.view;
    if (!this.views.has(state.view)) this.views.set(state.view, this.makers[state.view]());
    const view = this.views.get(state.view);
    if (this.shown !== state.view) this.main.replaceChildren(view.element);
    this.shown = state.view;
    document.documentElement.dataset.view = state.view;
    for (const link of document.querySelectorAll("#views a")) {
      if (link.dataset.view === state.view) {
        link.setAttribute("aria-current", "page");
        if (scrolled) link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else link.removeAttribute("aria-current");
      if (state.query) link.setAttribute("href", this.address({ view: link.dataset.view, action: "" }));
      else link.setAttribute("href", `#${link.dataset.view}`);
    }
    if (document.activeElement !== this.input) this.input.value = state.query;
    const action = this.build.byIdentifier.get(state.action) ?? null;
    this.panel.show(action);
    if (view instanceof ActionsView) {
      view.show(state.query, state.sort, (query) => this.go({ query }));
      if (action) view.table.select(action.identifier);
    }
    if (view instanceof Timeline) {
      view.filter(search(state.query));
      if (action !== view.selected && (action || !state.action)) view.select(action ?? view.selected);
      view.redraw();
    }
    if (scrolled) window.scrollTo(0, 0);
  }

  closeAction() {
    this.go({ action: "" });
    const view = this.views.get(this.shown);
    (view.table?.element ?? view.canvas ?? this.main).focus({ preventScroll: true });
  }

  /** Open the action before or after this one in the list that is shown. */
  beside(by) {
    const state = this.state();
    const list = this.views.get("actions")?.table.rows ?? this.build.actions;
    const place = list.findIndex((action) => action.identifier === state.action);
    const next = list[place + by];
    if (place >= 0 && next) this.go({ action: next.identifier }, { replace: true });
  }

  // The user.

  listen() {
    addEventListener("hashchange", () => this.render());
    addEventListener("popstate", () => this.render());
    document.addEventListener("keydown", (event) => this.key(event));
    document.getElementById("search").addEventListener("submit", (event) => { event.preventDefault(); this.focusResults(); });
    this.input.addEventListener("input", () => {
      const { view } = this.state();
      this.go({ query: this.input.value, view: view === "timeline" ? view : "actions", action: "" }, { replace: view === "timeline" || view === "actions" });
    });
    this.theme = this.storedTheme();
    this.applyTheme();
    document.getElementById("theme").addEventListener("click", () => this.nextTheme());
    document.getElementById("keys").addEventListener("click", () => this.help());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.views.get("timeline")?.redraw?.());
  }

  focusResults() {
    const view = this.views.get(this.shown);
    if (view?.table) {
      if (view.table.current < 0 && view.table.rows.length) view.table.setCurrent(0);
      view.table.element.focus();
    } else view?.canvas?.focus();
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape") this.escape();
    else if (typing) {
      if (event.target === this.input && event.key === "ArrowDown") this.focusResults();
      else return;
    } else if (event.key === "/") { this.input.focus(); this.input.select(); }
    else if (event.key === "?") this.help();
    else if (event.key === "t") this.nextTheme();
    else if (event.key === "j" || event.key === "k") this.beside(event.key === "j" ? 1 : -1);
    else if (/^[1-5]$/.test(event.key)) this.go({ view: Object.keys(VIEWS)[event.key - 1], action: "" });
    else return;
    event.preventDefault();
  }

  escape() {
    const state = this.state();
    if (state.action) this.closeAction();
    else if (state.query || this.input.value) {
      this.input.value = "";
      this.go({ query: "" });
    } else this.input.blur();
  }

  help() {
    const dialog = document.getElementById("help");
    const list = (rows, name) => h("dl", null, rows.map(([key, meaning]) => h("div", null, h("dt", null, h(name, null, key)), h("dd", null, meaning))));
    dialog.replaceChildren(h("h2", { id: "help-title" }, "Keyboard"), list(HELP, "kbd"), h("h2", null, "Search"), list(SEARCHES, "code"),
      h("form", { method: "dialog" }, h("button", { type: "submit", autofocus: true }, "Close")));
    dialog.showModal();
  }

  // The theme is kept in the browser, where that is allowed.

  storedTheme() {
    try {
      const kept = localStorage.getItem("mlcbuild theme");
      return THEMES.includes(kept) ? kept : "system";
    } catch { return "system"; }
  }

  nextTheme() {
    this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length];
    try { localStorage.setItem("mlcbuild theme", this.theme); } catch { /* it lasts as long as the page */ }
    this.applyTheme();
    say(`Theme: ${this.theme}`);
  }

  applyTheme() {
    document.documentElement.dataset.theme = this.theme;
    const button = document.getElementById("theme");
    button.textContent = { system: "◐", light: "☀", dark: "☾" }[this.theme];
    button.title = `Theme: ${this.theme} (t)`;
    button.setAttribute("aria-label", `Theme: ${this.theme}`);
    this.views.get("timeline")?.redraw?.();
  }
}

window.page = new Page(new Build(JSON.parse(document.getElementById("build").textContent)));
