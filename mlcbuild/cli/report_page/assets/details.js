"use strict";
/* The panel of one action: what it did, why, from what, and what it printed. */

const FEW_FILES = 12;

class ActionPanel {
  /** `link(action)` is the address of an action's panel, `close` closes it. */
  constructor(element, build, { link, listLink, close }) {
    Object.assign(this, { element, build, link, listLink, close, action: null });
  }

  show(action) {
    if (action === this.action) return;
    this.action = action;
    this.element.hidden = !action;
    document.documentElement.classList.toggle("with-action", Boolean(action));
    if (!action) return this.element.replaceChildren();
    const details = this.build.details(action) ?? {};
    this.element.setAttribute("aria-label", `Action ${action.title}`);
    this.element.scrollTop = 0;
    return fill(this.element,
      h("header", null,
        h("div", null, h("a", { class: "owner", href: this.listLink(fieldQuery("target", action.owner)), title: "All actions of this target" }, action.owner),
          h("h2", { id: "action-title", tabindex: "-1" }, action.name || action.title)),
        h("button", { type: "button", class: "icon", "aria-label": "Close (Escape)", title: "Close (Escape)", onclick: this.close }, "✕")),
      action.message ? h("pre", { class: action.status === "failed" ? "message bad" : "message" }, readableLog(action.message)) : null,
      this.facts(action),
      action.ran ? this.timing(action) : null,
      this.why(action, details),
      this.description(action),
      this.log(action, details),
      this.announced(action),
      this.files("Inputs", details.inputs, (file) => this.build.makers(file), "made by"),
      this.files("Outputs", details.outputs, (file) => this.build.users(file), "used by"),
      this.parameters(details),
      this.components(details),
      this.commands(action),
      details.known || action.status === "failed" || ["skipped", "unfinished"].includes(action.status) ? null
        : h("p", { class: "hint" }, "Where this page was made, the disk cache did not have what the key was made of."),
    );
  }

  facts(action) {
    const rows = [["Outcome", statusLabel(action.status)], ["Kind", h("a", { href: this.listLink(fieldQuery("kind", action.mnemonic)) }, action.mnemonic)]];
    if (action.ran) {
      rows.push(["Took", seconds(action.seconds)], ["Began", `${seconds(action.start)} into the build`]);
      rows.push(["Where", `${action.executor === "local" ? "this machine" : `${action.executor} ${action.node}`}${action.worker ? `, ${action.worker}` : ""}`]);
      if (action.peak_bytes) rows.push(["Memory", `${bytes(action.peak_bytes)} at most`]);
      rows.push(["Slack", action.onPath ? "none: on the critical path" : action.slack === null ? null : `${seconds(action.slack)} longer would not have made the build longer`]);
    }
    if (action.before) rows.push(["Before", this.before(action)]);
    if (action.announced_by) rows.push(["Announced by", this.actionLink(action.announced_by)]);
    if (action.exit_code) rows.push(["Exit code", String(action.exit_code)]);
    if (action.shared_with) rows.push(["Shared with", this.actionLink(action.shared_with)]);
    if (action.shared_by.length) rows.push(["Shared by", action.shared_by.map((each) => h("div", null, this.actionLink(each)))]);
    if (action.key) rows.push(["Key", [h("code", { title: action.key }, shortDigest(action.key)), " ", copyButton(action.key, "key")]]);
    return factList(rows);
  }

  before(action) {
    const { status, seconds: then, same_key: same } = action.before;
    const took = then ? `, ${seconds(then)}${action.ran ? ` (now ${change(action.seconds - then)})` : ""}` : "";
    return `${statusName(status)}${took}, ${same ? "the same key" : "another key"}`;
  }

  timing(action) {
    const run = Math.max(0, action.seconds - action.input_seconds - action.output_seconds);
    const parts = [["waited for a worker", action.queued_seconds, "--part-wait"], ["fetched inputs", action.input_seconds, "--part-input"], ["ran", run, "--part-run"], ["stored outputs", action.output_seconds, "--part-output"]].filter(([, value]) => value > 0.0005);
    const text = parts.map(([name, value]) => `${name} ${seconds(value)}`);
    return h("div", { class: "timing" }, stackedBar(parts.map(([name, value, colour]) => [value, colour, `${name} ${seconds(value)}`]), text.join(", ")),
      h("ul", { class: "legend" }, parts.map(([name, value, colour]) => h("li", null, h("i", { class: "dot", style: { "--colour": `var(${colour})` } }), name, " ", h("small", null, seconds(value))))));
  }

  why(action, details) {
    if (!action.cause) return null;
    const differences = details.differences ?? [];
    return h("section", null, h("h3", null, `Why it ran: ${action.cause}`), h("p", null, CAUSES[action.cause] ?? ""),
      differences.length ? h("ul", { class: "differences" }, differences.map((each) => this.difference(each)))
        : action.cause === "changed" ? h("p", { class: "hint" }, "What its former key was made of is no longer in the disk cache.") : null);
  }

  difference({ kind, name, before, now, inside = [], code = [], text = [] }) {
    const value = (text) => (text === null || text === undefined ? h("em", null, "none") : h("code", { title: text }, text.length > 90 ? `${text.slice(0, 90)}…` : text));
    const maker = kind === "input" && now ? this.build.makers(this.fileNumber(now))[0] : null;
    const parts = inside.length ? inside.map(([path, old, after]) => h("div", { class: "from-to" }, h("span", null, path), value(old), " → ", value(after)))
      : code.length ? changedModules(code)
        : text.length ? h("pre", { class: "diff" }, text.map((line, index) => h("span", { class: { "+": "added", "-": "removed", "@": "muted" }[line[0]] }, index ? `\n${line}` : line)))
          : h("div", { class: "from-to" }, value(shortened(before)), " → ", value(shortened(now)));
    return h("li", null, h("strong", null, `${kind} ${name}`.trim()), maker ? [" of ", this.actionLink(maker.identifier)] : null, parts);
  }

  fileNumber(component) {
    return this.build.detailed.files.indexOf(component.split(" ")[0]);
  }

  description(action) {
    const rows = Object.entries(action.details ?? {}).filter(([, value]) => (Array.isArray(value) ? value.length : value))
      .map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)]);
    return rows.length ? h("section", null, h("h3", null, "What it computes"), factList(rows)) : null;
  }

  files(title, entries = [], others, relation) {
    if (!entries.length) return null;
    const row = ([path, file]) => {
      const [digest, size] = this.build.detailed.files[file].split("/");
      const found = others(file).filter((other) => other !== this.action);
      return h("li", null, h("span", { class: "path" }, path), h("span", { class: "size" }, bytes(Number(size))),
        h("code", { title: digest }, shortDigest(digest)),
        found.length ? h("span", { class: "relation" }, `${relation} `, found.slice(0, 3).map((other, index) => [index ? ", " : "", this.actionLink(other.identifier)]),
          found.length > 3 ? ` and ${found.length - 3} more` : "") : null);
    };
    const list = h("ul", { class: "files" }, entries.slice(0, FEW_FILES).map(row));
    const more = entries.length > FEW_FILES ? h("button", { type: "button", class: "more", onclick: () => { list.append(...entries.slice(FEW_FILES).map(row)); more.remove(); } }, `Show all ${number(entries.length)}`) : null;
    return h("section", null, h("h3", null, title, " ", h("small", null, number(entries.length))), list, more);
  }

  /** The actions that its manifest names: the kernels, for Partition. */
  announced(action) {
    const found = this.build.announced.get(action.identifier) ?? [];
    if (!found.length) return null;
    const row = (each) => h("li", null, h("span", { class: "path" }, this.actionLink(each.identifier)), h("span", { class: "relation" }, statusLabel(each.status)));
    const list = h("ul", { class: "files" }, found.slice(0, FEW_FILES).map(row));
    const all = h("a", { href: this.listLink(fieldQuery("announced", action.identifier)) }, `All ${number(found.length)} in the list of actions`);
    return h("section", null, h("h3", null, "Announced ", h("small", null, number(found.length))), list, found.length > FEW_FILES ? all : null);
  }

  parameters({ parameters }) {
    if (!parameters) return null;
    return h("section", null, h("h3", null, "Parameters"), factList(Object.entries(parameters).map(([name, value]) =>
      [name, typeof value === "object" ? h("pre", null, JSON.stringify(value, null, 2)) : h("code", null, JSON.stringify(value))])));
  }

  components({ components }) {
    if (!components?.length) return null;
    return h("details", null, h("summary", null, "Rest of the key ", h("small", null, String(components.length))),
      factList(components.map(([name, value]) => [name, h("code", { title: value }, value)])));
  }

  log(action, details) {
    if (!details.log) return null;
    const lines = readableLog(details.log).trimEnd();
    return h("section", null, h("h3", null, "Log ", copyButton(details.log, "log")), h("pre", { class: "log", tabindex: "0", "aria-label": "Log" }, lines));
  }

  commands(action) {
    const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
    const lines = [`mlcbuild show ${quoted(action.identifier)} --build ${this.build.invocation.slice(0, 8)}`];
    if (action.ran) lines.push(`mlcbuild explain ${quoted(action.owner)} --build ${this.build.invocation.slice(0, 8)}`);
    return h("section", null, h("h3", null, "On the command line"), lines.map((line) => h("div", { class: "command" }, h("code", null, line), copyButton(line, "command"))));
  }

  actionLink(identifier) {
    const action = this.build.byIdentifier.get(identifier);
    return action ? h("a", { href: this.link(action) }, action.owner === this.action.owner ? action.name : action.title) : identifier;
  }
}

/** What changed in which module: its definitions, and whether it is new or gone. */
function changedModules(code) {
  const modules = new Map();
  for (const [where, name, kind, isModule] of code) {
    const kinds = modules.get(where) ?? new Map();
    const part = name || (isModule && kind === "changed" ? "outside of functions" : "");
    modules.set(where, kinds.set(kind, [...(kinds.get(kind) ?? []), part].filter(Boolean)));
  }
  const told = (kinds) => [...kinds].map(([kind, parts]) => (parts.length ? `${kind}: ${parts.join(", ")}` : kind)).join("; ");
  return h("ul", { class: "modules" }, [...modules].map(([where, kinds]) => h("li", null, h("code", null, where), h("span", { class: "muted" }, told(kinds)))));
}

/** A list of names and values; values that are null are left out. */
const factList = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));

/** A digest by its first digits; other components as they are. */
const shortened = (component) => component?.replace(/^([0-9a-f]{12})[0-9a-f]{20,}/, "$1…");
