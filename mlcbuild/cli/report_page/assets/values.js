"use strict";
/* How figures are shown, what statuses and causes are called, and the colours that stand for them. */

const STATUSES = {
  failed: { name: "failed", colour: "--failed" },
  not_cached: { name: "not cached", colour: "--not-cached" },
  skipped: { name: "skipped", colour: "--skipped" },
  unfinished: { name: "unfinished", colour: "--skipped" },
  executed_local: { name: "ran here", colour: "--ran-here" },
  executed_ray: { name: "ran on ray", colour: "--ran-on-ray" },
  remote_hit: { name: "from remote", colour: "--from-remote" },
  disk_hit: { name: "from disk", colour: "--from-disk" },
  up_to_date: { name: "up to date", colour: "--up-to-date" },
};
const CACHED = new Set(["up_to_date", "disk_hit", "remote_hit"]);

/* Why actions run: the words of `mlcbuild log what-ran`, and what they mean. */
const CAUSES = {
  "first build": "This workspace had not built it, and no cache had it.",
  changed: "Its inputs, its command or its code changed.",
  "no result": "Nothing changed since it was built here, but no cache has the result any more.",
  "outputs gone": "It had a result, but no store has its files any more.",
  remade: "Its result is known, and its files are made again on each machine that needs them.",
  asked: "The command asked for it, as --recache does.",
  "never cached": "It is a measurement, whose result is not kept.",
};

const EXIT_CODES = {
  0: "succeeded", 1: "failed", 7: "failed: an error in the workspace", 8: "was interrupted",
  10: "failed: not everything is cached", 36: "failed: the machine could not do its part",
  37: "broke off", 48: "failed: an external file could not be fetched",
};

const statusName = (status) => STATUSES[status]?.name ?? status;
const statusColour = (status) => STATUSES[status]?.colour ?? "--skipped";

/** `0 s`, `4 ms`, `0.42 s`, `12.4 s`, `2 min 05 s`, `1 h 02 min`. */
function seconds(value) {
  if (value <= 0) return "0 s";
  if (value < 0.0995) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 9.995) return `${value.toFixed(2)} s`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(value / 60);
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** A difference of times, with its sign: `+1.20 s`, `−4 ms`. */
function change(value) {
  if (Math.abs(value) < 0.0005) return "same";
  return `${value < 0 ? "−" : "+"}${seconds(Math.abs(value))}`;
}

/** `512 B`, `1.5 kB`, `18 MB`: powers of 1000. */
function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.round(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${units[unit]}`;
}

const number = (value) => value.toLocaleString("en");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A share as a percentage that is 0 or 100 only if it is none or all. */
function percent(part, whole) {
  if (!whole || !part) return "0 %";
  if (part === whole) return "100 %";
  const share = (100 * part) / whole;
  return share < 1 ? "<1 %" : `${Math.min(99, Math.round(share))} %`;
}

const moment = (epoch) =>
  new Date(epoch * 1000).toLocaleString("en-GB", { dateStyle: "full", timeStyle: "short" });

/** A title without its target: `Export` for `//models:a Export`. */
function withoutLabel(title) {
  const space = title.indexOf(" ");
  return title.startsWith("//") && space > 0 ? title.slice(space + 1) : title;
}

const shortDigest = (digest) => digest.slice(0, 12);

/** A log without terminal colours and other control characters. */
const readableLog = (log) =>
  log.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");

/* Colours by kind of action or by target: the same name has the same colour as long as there are enough of them. */
const HUES = ["--hue-1", "--hue-2", "--hue-3", "--hue-4", "--hue-5", "--hue-6", "--hue-7", "--hue-8", "--hue-9"];

/** The value of a colour as the canvas takes it, in the current theme. */
function colourValue(name) {
  const probe = document.createElement("i");
  probe.style.setProperty("color", `var(${name})`);
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
