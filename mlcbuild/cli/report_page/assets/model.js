"use strict";
/* The build: its actions with what follows from them, the search, and the details that are read on demand. */

/** An action as the page uses it: all fields are there, and `index` is its place in the build. */
function completeAction(given, index) {
  const action = {
    title: given.identifier, start: 0, time: 0, cause: "", executor: "", node: "", worker: "", message: "", key: "",
    queued_seconds: 0, input_seconds: 0, output_seconds: 0, peak_bytes: 0, shared_by: [], shared_with: "",
    announced_by: "", slack: null, before: null, onPath: false, ...given, index,
  };
  action.ran = action.executor !== "";
  action.seconds = action.ran ? Math.max(0, action.time - action.start) : 0;
  action.name = withoutLabel(action.title);
  action.machine = action.ran ? action.node || "this machine" : "";
  action.lane = action.worker || action.executor;
  return action;
}

class Build {
  constructor(document) {
    Object.assign(this, document.build);
    this.version = document.mlcbuild;
    this.actions = document.actions.map(completeAction);
    this.path = document.critical_path.map((index) => this.actions[index]);
    for (const action of this.path) action.onPath = true;
    this.targets = document.targets.map((target) => ({ error: "", outputs: [], axes: {}, ...target }));
    this.skipped = document.skipped;
    this.notices = document.notices;
    this.comparison = document.comparison;
    this.byIdentifier = new Map(this.actions.map((action) => [action.identifier, action]));
    this.ran = this.actions.filter((action) => action.ran);
    this.announced = new Map();
    for (const action of this.actions) {
      if (!action.announced_by) continue;
      if (!this.announced.has(action.announced_by)) this.announced.set(action.announced_by, []);
      this.announced.get(action.announced_by).push(action);
    }
    this.work = this.ran.reduce((sum, action) => sum + action.seconds, 0);
    this.pathSeconds = this.path.reduce((sum, action) => sum + action.seconds, 0);
    this.cached = this.actions.filter((action) => CACHED.has(action.status)).length;
    this.failures = this.actions.filter((action) => action.status === "failed" && !action.shared_with);
    this.length = this.actions.reduce((last, action) => Math.max(last, action.time), this.wall_seconds);
  }

  /** How many actions ended in each way, in the order of STATUSES. */
  counts() {
    const counted = new Map(Object.keys(STATUSES).map((status) => [status, 0]));
    for (const action of this.actions) counted.set(action.status, (counted.get(action.status) ?? 0) + 1);
    return counted;
  }

  /** Actions in groups: [name, actions, seconds], the longest first. */
  grouped(nameOf, actions = this.ran) {
    const groups = new Map();
    for (const action of actions) {
      const name = nameOf(action);
      if (!groups.has(name)) groups.set(name, { name, actions: [], seconds: 0 });
      const group = groups.get(name);
      group.actions.push(action);
      group.seconds += action.seconds;
    }
    return [...groups.values()].sort((one, other) => other.seconds - one.seconds || other.actions.length - one.actions.length);
  }

  /** The requested targets, and others that own actions, each with what its actions did. */
  targetRows() {
    if (this.rows) return this.rows;
    const rows = new Map(this.targets.map((target) => [target.label, { ...target, requested: true, actions: [] }]));
    for (const action of this.actions) {
      if (!rows.has(action.owner)) rows.set(action.owner, { label: action.owner, axes: {}, outputs: [], error: "", requested: false, actions: [] });
      rows.get(action.owner).actions.push(action);
    }
    for (const { label, reason, axes } of this.skipped) rows.set(label, { label, axes, error: reason, outputs: [], requested: true, skipped: true, actions: [] });
    for (const row of rows.values()) {
      row.seconds = row.actions.reduce((sum, action) => sum + action.seconds, 0);
      row.ran = row.actions.filter((action) => action.ran).length;
      row.cached = row.actions.filter((action) => CACHED.has(action.status)).length;
      row.outcome = targetOutcome(row, this.exit_code);
    }
    const urgency = ["failed", "not cached", "not built", "built", "cached", "needed", "skipped"];
    this.rows = [...rows.values()].sort((one, other) =>
      urgency.indexOf(one.outcome) - urgency.indexOf(other.outcome) || other.ran - one.ran || (one.label < other.label ? -1 : 1));
    return this.rows;
  }

  /** What the disk cache told of an action; null if nothing. The first call reads the details of all actions. */
  details(action) {
    this.readDetails();
    return this.detailed.actions[action.index];
  }

  /** The actions that have a file as an output, and those that have it as an input. */
  makers(file) { this.readDetails(); return this.fileMakers.get(file) ?? []; }
  users(file) { this.readDetails(); return this.fileUsers.get(file) ?? []; }

  readDetails() {
    if (this.detailed) return;
    this.detailed = JSON.parse(document.getElementById("details").textContent);
    this.fileMakers = new Map();
    this.fileUsers = new Map();
    this.detailed.actions.forEach((details, index) => {
      for (const [places, entries] of [[this.fileMakers, details?.outputs], [this.fileUsers, details?.inputs]]) {
        for (const [, file] of entries ?? []) {
          if (!places.has(file)) places.set(file, []);
          if (places.get(file).at(-1) !== this.actions[index]) places.get(file).push(this.actions[index]);
        }
      }
    });
  }
}

/** The words of `mlcbuild build`'s closing table, and "cached" where no action of the target ran. */
function targetOutcome(row, exitCode) {
  if (row.skipped) return "skipped";
  if (row.actions.some((action) => action.status === "failed") || row.success === false) {
    return row.actions.some((action) => action.status === "failed") ? "failed" : "not built";
  }
  if (row.actions.some((action) => action.status === "not_cached")) return "not cached";
  if (row.actions.some((action) => action.status === "skipped" || action.status === "unfinished")) return "not built";
  if (!row.requested) return "needed";
  if (row.success !== true && exitCode !== 0) return "not built";
  return row.ran ? "built" : "cached";
}

const OUTCOME_COLOURS = {
  failed: "--failed", "not cached": "--not-cached", "not built": "--skipped", built: "--ran-here",
  cached: "--from-disk", needed: "--up-to-date", skipped: "--skipped",
};

/* The search: words that all must be in the title, and fields as `kind:Export`, `-` before what must not be. */

const FIELDS = {
  status: (action) => statusName(action.status),
  kind: (action) => action.mnemonic,
  why: (action) => action.cause,
  target: (action) => action.owner,
  where: (action) => (action.ran ? `${action.executor} ${action.machine}` : ""),
  announced: (action) => action.announced_by,
  path: (action) => (action.onPath ? "critical" : ""),
};

/** A function that tells whether an action is found. Words may be quoted: `why:"first build"`. */
function search(query) {
  const tests = [];
  for (const [, minus, field, quoted, plain] of query.matchAll(/(-?)(?:(\w+):)?(?:"([^"]*)"?|(\S+))/g)) {
    const known = FIELDS[field];
    const wanted = (quoted ?? plain ?? "").toLowerCase();
    const text = known ? wanted : `${field ? `${field}:` : ""}${wanted}`;
    const value = known ?? ((action) => `${action.title} ${action.key.startsWith(text) ? action.key : ""}`);
    const exact = known && quoted !== undefined;
    tests.push((action) => {
      const found = value(action).toLowerCase();
      return (exact ? found === text : found.includes(text)) !== (minus === "-");
    });
  }
  return (action) => tests.every((test) => test(action));
}

/** A query for one field, exactly. */
const fieldQuery = (field, value) => `${field}:"${value.replaceAll('"', "")}"`;
