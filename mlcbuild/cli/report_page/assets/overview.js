"use strict";
/* The first view: how the build ended, where results came from, and where the time went. */

const LONGEST_PATH = 14, SLOWEST = 10, FAILURES = 20, LOG_LINES = 12;

function overview(build, { listLink, actionLink }) {
  return h("div", { class: "overview" }, headline(build), failures(build, actionLink), tiles(build, listLink),
    h("div", { class: "columns" },
      h("div", null, tiers(build, listLink), kinds(build, listLink), notices(build)),
      h("div", null, criticalPath(build, actionLink, listLink), causes(build, listLink), slowest(build, actionLink, listLink))));
}

function headline(build) {
  const names = build.targets.map((target) => target.label);
  const what = names.length === 1 ? names[0] : names.length ? plural(names.length, "target") : "no targets";
  const good = build.exit_code === 0;
  const missing = build.targets.filter((target) => target.success === false).length;
  const title = good ? `Built ${what} in ${seconds(build.wall_seconds)}`
    : `${build.exit_code === 8 ? "Interrupted" : "Failed"} after ${seconds(build.wall_seconds)}${missing && names.length > 1 ? `: ${number(missing)} of ${plural(names.length, "target")} not built` : `: ${what}`}`;
  return h("div", { class: `headline ${good ? "good" : "bad"}` },
    h("span", { class: "sign", "aria-hidden": "true" }, good ? "✓" : "✕"),
    h("div", null,
      h("h1", null, title),
      h("p", null, [build.began ? moment(build.began) : null, build.jobs ? plural(build.jobs, "job") : null, `mlcbuild ${build.version}`, h("span", null, "build ", h("code", null, build.invocation.slice(0, 8)))]
        .filter(Boolean).map((part, index) => [index ? " · " : "", part])),
      h("p", { class: "command" }, h("code", null, ["mlcbuild", ...build.arguments].join(" "))),
      build.error ? h("p", { class: "error" }, build.error) : null,
      good || build.failures.length ? null : h("p", null, `The command ${EXIT_CODES[build.exit_code] ?? "failed"} (exit code ${build.exit_code}).`)));
}

function failures(build, actionLink) {
  if (!build.failures.length) return null;
  const shown = build.failures.slice(0, FAILURES);
  return section(plural(build.failures.length, "failed action"), { class: "panel failures" },
    shown.map((action) => {
      const log = readableLog(build.details(action)?.log ?? "").trimEnd().split("\n").slice(-LOG_LINES).join("\n");
      const needing = build.targets.filter((target) => target.success === false && (target.error ?? "").startsWith(action.title)).length;
      return h("article", null, h("h3", null, h("a", { href: actionLink(action) }, action.title)),
        h("p", null, readableLog(action.message)), log ? h("pre", { class: "log" }, log) : null,
        needing > 1 ? h("p", { class: "hint" }, `${number(needing)} targets were not built because of it.`) : null);
    }),
    build.failures.length > FAILURES ? h("p", { class: "hint" }, `and ${number(build.failures.length - FAILURES)} more`) : null);
}

function tiles(build, listLink) {
  const largest = build.ran.reduce((best, action) => (action.peak_bytes > (best?.peak_bytes ?? 0) ? action : best), null);
  const earlier = build.comparison?.build;
  return h("div", { class: "tiles" },
    tile("Actions", number(build.actions.length), `${number(build.ran.length)} ran`, listLink("")),
    tile("From caches", percent(build.cached, build.actions.length), `${number(build.cached)} of ${number(build.actions.length)}`, listLink("-status:ran -status:failed -status:skipped -status:\"not cached\"")),
    build.ran.length ? tile("Work", seconds(build.work), build.jobs ? `${(build.work / (build.wall_seconds || 1)).toFixed(1)} actions at a time` : "", "#timeline") : null,
    build.path.length ? tile("Critical path", seconds(build.pathSeconds), `${percent(build.pathSeconds, build.wall_seconds)} of the build`, listLink("path:critical", "Start")) : null,
    largest ? tile("Largest memory", bytes(largest.peak_bytes), largest.name, listLink("", "-Memory")) : null,
    build.bytes_downloaded || build.bytes_uploaded ? tile("Moved", `↓ ${bytes(build.bytes_downloaded)}`, `↑ ${bytes(build.bytes_uploaded)}`) : null,
    earlier ? tile("Than the build before", change(build.wall_seconds - earlier.wall_seconds), `${seconds(earlier.wall_seconds)}${earlier.began ? `, ${new Date(earlier.began * 1000).toLocaleDateString("en-GB", { dateStyle: "medium" })}` : ""}`, "#comparison") : null);
}

function tiers(build, listLink) {
  const counts = [...build.counts()].filter(([, count]) => count);
  const total = build.actions.length;
  const text = counts.map(([status, count]) => `${number(count)} ${statusName(status)}`).join(", ");
  return section("Where results came from", null, total ? stackedBar(counts.map(([status, count]) => [count, statusColour(status), `${statusName(status)}: ${number(count)}`]), text) : h("p", { class: "hint" }, "There was nothing to do."),
    h("table", { class: "plain" }, h("thead", { class: "unseen" }, h("tr", null, ["Outcome", "Actions", "Share"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, counts.map(([status, count]) => h("tr", null,
        h("td", null, h("a", { href: listLink(fieldQuery("status", statusName(status))) }, statusLabel(status))),
        h("td", { class: "right" }, number(count)), h("td", { class: "right muted" }, percent(count, total)))))));
}

function kinds(build, listLink) {
  const groups = build.grouped((action) => action.mnemonic);
  if (!groups.length) return null;
  return section("Time by kind of action", null, h("table", { class: "plain" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Kind"), h("th", { scope: "col", class: "right" }, "Ran"), h("th", { scope: "col", class: "right" }, "Longest"), h("th", { scope: "col", class: "right" }, "Time"), h("th", { scope: "col", class: "unseen" }, "Share"))),
    h("tbody", null, groups.map(({ name, actions, seconds: sum }) => h("tr", null,
      h("td", null, h("a", { href: listLink(fieldQuery("kind", name), "-Time") }, name)), h("td", { class: "right" }, number(actions.length)),
      h("td", { class: "right muted" }, seconds(Math.max(...actions.map((action) => action.seconds)))),
      h("td", { class: "right" }, seconds(sum)), h("td", { class: "meters" }, bar(sum / groups[0].seconds)))))));
}

function criticalPath(build, actionLink, listLink) {
  const steps = build.path.filter((action) => action.seconds > 0);
  if (!steps.length) return null;
  const longest = Math.max(...steps.map((action) => action.seconds));
  const kept = new Set([...steps].sort((one, other) => other.seconds - one.seconds).slice(0, LONGEST_PATH));
  const items = [];
  let left = 0;
  for (const action of steps) {
    if (!kept.has(action)) { left += 1; continue; }
    if (left) items.push(h("li", { class: "gap" }, plural(left, "short step")));
    left = 0;
    items.push(h("li", null, h("a", { href: actionLink(action), title: action.title }, action.name), h("span", { class: "right" }, seconds(action.seconds)),
      h("span", { class: "right muted" }, percent(action.seconds, build.wall_seconds)), bar(action.seconds / longest, "--path")));
  }
  if (left) items.push(h("li", { class: "gap" }, plural(left, "short step")));
  const share = build.jobs ? build.work / build.jobs : 0;
  return section("Critical path", null, h("ol", { class: "path-list" }, items),
    share ? h("p", { class: "hint" }, `${seconds(build.work)} of work take at least ${seconds(share)} on ${plural(build.jobs, "job")}, the path ${seconds(build.pathSeconds)}: more jobs would ${build.pathSeconds >= share ? "not help" : "help"}. `, h("a", { href: listLink("path:critical", "Start") }, "All steps")) : null);
}

function causes(build, listLink) {
  const groups = build.grouped((action) => action.cause).filter((group) => group.name);
  if (!groups.length) return null;
  return section("Why actions ran", null, h("table", { class: "plain" }, h("tbody", null, groups.map(({ name, actions, seconds: sum }) => h("tr", null,
    h("td", null, h("a", { href: listLink(fieldQuery("why", name)) }, name), h("p", { class: "hint" }, CAUSES[name] ?? "")), h("td", { class: "right" }, number(actions.length)), h("td", { class: "right" }, seconds(sum)))))));
}

function slowest(build, actionLink, listLink) {
  if (build.ran.length < 2) return null;
  const rows = [...build.ran].sort((one, other) => other.seconds - one.seconds).slice(0, SLOWEST);
  return section("Slowest actions", null, h("ol", { class: "path-list" }, rows.map((action) => h("li", null, h("a", { href: actionLink(action), title: action.title }, action.title), h("span", { class: "right" }, seconds(action.seconds)),
    h("span", { class: "right muted" }, action.peak_bytes ? bytes(action.peak_bytes) : ""), bar(action.seconds / rows[0].seconds, statusColour(action.status))))),
  build.ran.length > SLOWEST ? h("p", { class: "hint" }, h("a", { href: listLink("status:ran", "-Time") }, `All ${number(build.ran.length)}`)) : null);
}

function notices(build) {
  if (!build.notices.length) return null;
  return section("Notes of the build", null, h("ul", { class: "notices" }, build.notices.slice(0, 100).map((notice) => h("li", null, h("span", { class: "muted" }, seconds(notice.time)), " ", readableLog(notice.message)))));
}
