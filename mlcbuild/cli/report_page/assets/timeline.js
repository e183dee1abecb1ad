"use strict";
/* The timeline: a lane for each worker of each machine, drawn on a canvas, with the critical path. */

const LANES = [20, 34], AXIS = 22, CHART = 44, GROUP = 22, NARROWEST = 0.6; // pixels; lanes are higher where there are few

const { compare } = new Intl.Collator("en", { numeric: true }); // node-2 comes before node-10

/** Lanes of actions in groups of one machine, by worker; actions of a worker that overlap have lanes side by side. */
function lanesOf(build) {
  const groups = [];
  for (const { name, actions } of build.grouped((action) => action.machine).sort((one, other) => (one.name === "this machine" ? -1 : other.name === "this machine" ? 1 : compare(one.name, other.name)))) {
    const byWorker = new Map();
    for (const action of actions.sort((one, other) => one.start - other.start)) {
      const ofWorker = byWorker.get(action.lane) ?? [];
      byWorker.set(action.lane, ofWorker);
      let lane = ofWorker.find((each) => each.end <= action.start + 1e-6);
      if (!lane) ofWorker.push(lane = { name: ofWorker.length ? "" : workerName(action), actions: [], end: 0 });
      lane.actions.push(action);
      lane.end = action.time;
    }
    const workers = [...byWorker].sort(([one], [other]) => compare(one, other)).map(([, lanes]) => lanes);
    // This machine's workers have no names, so each of its lanes is one.
    const count = workers.reduce((sum, lanes) => sum + (lanes[0].name ? 1 : lanes.length), 0);
    groups.push({ name, lanes: workers.flat(), count });
  }
  const hits = ["remote_hit", "disk_hit", "up_to_date"]
    .map((status) => ({ name: statusName(status), actions: build.actions.filter((action) => action.status === status && !action.ran).sort((one, other) => one.time - other.time), hits: true }))
    .filter((lane) => lane.actions.length);
  if (hits.length) groups.push({ name: "answers of caches", lanes: hits });
  return groups;
}

/** A worker without the name of its machine: `worker 3` for `node-2 worker 3` and `node-2/3`; "" for one without a name. */
function workerName(action) {
  if (!action.worker || action.worker === action.executor) return "";
  const own = action.worker.startsWith(action.machine) ? action.worker.slice(action.machine.length).replace(/^[\s/]+/, "") : action.worker;
  return /^\d+$/.test(own) ? `worker ${own}` : own || action.worker;
}

/** How many actions run, and the sum of their largest memory, from each moment on: [[time, count, bytes], …]. */
function load(build) {
  const edges = [];
  for (const action of build.ran) edges.push([action.start, 1, action.peak_bytes], [action.time, -1, -action.peak_bytes]);
  edges.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  let count = 0, memory = 0;
  return edges.map(([time, one, size]) => [time, (count += one), (memory += size)]);
}

const COLOURINGS = {
  kind: (action) => action.mnemonic,
  outcome: (action) => statusName(action.status),
  why: (action) => action.cause || "a cached result",
  target: (action) => action.owner,
};

class Timeline {
  constructor(build, open) {
    Object.assign(this, { build, open, found: () => true, colouring: "kind", selected: null, hovered: null, showPath: true });
    this.groups = lanesOf(build);
    this.lanes = this.groups.flatMap((group) => group.lanes.map((lane, index) => ({ ...lane, group: index ? null : group })));
    this.placeOf = new Map(this.lanes.flatMap((lane) => lane.actions.map((action) => [action, lane])));
    this.load = load(build);
    this.hasMemory = build.ran.some((action) => action.peak_bytes);
    this.top = AXIS + CHART * (this.hasMemory ? 2 : 1);
    this.from = 0;
    this.to = this.whole = Math.max(build.length, 0.001) * 1.01;
    this.element = this.make();
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.place);
  }

  make() {
    this.canvas = h("canvas", {
      tabindex: "0", role: "application", "aria-label": "Timeline. Left and right arrows go from action to action, up and down from worker to worker, plus and minus zoom, Enter opens an action.",
      onpointermove: (event) => this.pointer(event), onpointerdown: (event) => this.grab(event), onpointerup: (event) => this.drop(event),
      onpointerleave: () => this.hover(null), ondblclick: () => this.hovered && this.zoomTo(this.hovered), onkeydown: (event) => this.key(event),
      onfocus: () => this.redraw(), onblur: () => this.redraw(),
    });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.spacer = h("div");
    this.place = h("div", { class: "timeline", onscroll: () => this.redraw() }, this.canvas, this.spacer);
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.legend = h("ul", { class: "legend", "aria-label": "Colours" });
    const colouring = h("select", { id: "colouring", onchange: (event) => { this.colouring = event.target.value; this.colour(); } },
      Object.keys(COLOURINGS).map((name) => h("option", { value: name }, name)));
    const path = h("input", { type: "checkbox", id: "show-path", checked: true, onchange: (event) => { this.showPath = event.target.checked; this.redraw(); } });
    const button = (text, label, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    this.colour();
    return h("div", { class: "timeline-view" },
      h("div", { class: "toolbar" },
        h("span", { class: "buttons" }, button("−", "Zoom out (−)", () => this.zoom(1.6)), button("+", "Zoom in (+)", () => this.zoom(1 / 1.6)), button("Fit", "Show the whole build (0)", () => this.fit())),
        h("label", { for: "colouring" }, "Colour by ", colouring),
        h("label", { for: "show-path" }, path, " Critical path"),
        h("span", { class: "hint" }, "Drag to move, Ctrl + wheel to zoom, double-click to zoom to an action")),
      this.legend, this.place, this.tip);
  }

  /** Choose the colours; the longest groups get one of their own. */
  colour() {
    const groups = this.build.grouped(COLOURINGS[this.colouring], this.colouring === "outcome" ? this.build.actions : this.build.ran);
    const fixed = Object.fromEntries(Object.values(STATUSES).map(({ name, colour }) => [name, colour]));
    this.colours = new Map(groups.map(({ name }, index) => [name, fixed[name] ?? HUES[index] ?? "--hue-other"]));
    const shown = groups.slice(0, this.colouring === "outcome" ? groups.length : HUES.length);
    this.legend.replaceChildren(...shown.map(({ name, actions, seconds: sum }) =>
      h("li", null, h("i", { class: "dot", style: { "--colour": `var(${this.colours.get(name)})` } }), name || "none", " ", h("small", null, `${number(actions.length)}${sum ? ` · ${seconds(sum)}` : ""}`))),
    ...(groups.length > shown.length ? [h("li", null, h("i", { class: "dot", style: { "--colour": "var(--hue-other)" } }), `${groups.length - shown.length} more`)] : []));
    this.redraw();
  }

  /** Show the found actions in full colour and the others faintly. */
  filter(found) {
    this.found = found;
    this.redraw();
  }

  select(action, { scroll = true } = {}) {
    this.selected = action;
    const lane = action && this.placeOf.get(action);
    if (lane && scroll) {
      const top = lane.y, room = this.place.clientHeight - this.top - this.lane;
      if (top < this.place.scrollTop || top > this.place.scrollTop + room) this.place.scrollTop = Math.max(0, top - room / 2);
      if (action.time < this.from || action.start > this.to) this.view(action.start - (this.to - this.from) / 2, this.to - this.from);
    }
    this.redraw();
  }

  // Time and pixels.

  /** Give lanes their places: as high as the room allows. Two charts stand above them. */
  layOut(height) {
    const heads = this.groups.length * GROUP, [least, most] = LANES;
    this.lane = Math.floor(Math.min(most, Math.max(least, (height - this.top - heads - 8) / this.lanes.length)));
    let y = 0;
    for (const lane of this.lanes) {
      if (lane.group) y += GROUP;
      lane.y = y;
      y += this.lane;
    }
    this.spacer.style.setProperty("height", `${y + this.top + 8}px`);
    this.spacer.style.setProperty("margin-top", `${-height}px`);
  }

  x(time) { return ((time - this.from) / (this.to - this.from)) * this.width; }
  time(x) { return this.from + (x / this.width) * (this.to - this.from); }

  view(from, span) {
    const kept = Math.min(this.whole, Math.max(span, 1e-4));
    this.from = Math.min(Math.max(0, from), this.whole - kept);
    this.to = this.from + kept;
    this.redraw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = (this.to - this.from) * factor;
    this.view(around - (around - this.from) * factor, span);
  }

  zoomTo(action) {
    const span = Math.max(action.time - action.start, 0.002) * 1.6;
    this.view((action.start + action.time - span) / 2, span);
  }

  fit() { this.view(0, this.whole); }

  // What the user does.

  wheel(event) {
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY * 0.002), this.time(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.view(this.from + ((event.deltaX || event.deltaY) / this.width) * (this.to - this.from), this.to - this.from);
    else return;
    event.preventDefault();
  }

  grab(event) {
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.held = { x: event.offsetX, y: event.clientY, from: this.from, top: this.place.scrollTop, moved: false };
  }

  drop() {
    const { held } = this;
    this.held = null;
    if (held && !held.moved && this.hovered) {
      this.selected = this.hovered;
      this.open(this.hovered);
      this.redraw();
    }
  }

  pointer(event) {
    if (this.held) {
      const [across, down] = [event.offsetX - this.held.x, event.clientY - this.held.y];
      if (Math.abs(across) + Math.abs(down) > 4) this.held.moved = true;
      if (this.held.moved) {
        this.hover(null);
        this.place.scrollTop = this.held.top - down;
        this.view(this.held.from - (across / this.width) * (this.to - this.from), this.to - this.from);
      }
      return;
    }
    this.hover(this.at(event.offsetX, event.offsetY), event);
  }

  hover(action, event) {
    if (action !== this.hovered) {
      this.hovered = action;
      this.canvas.classList.toggle("over", action !== null);
      this.redraw();
    }
    this.tip.hidden = !action;
    if (!action) return;
    this.tip.replaceChildren(h("strong", null, action.title),
      h("span", null, statusName(action.status), action.ran ? ` · ${seconds(action.seconds)} · ${[action.machine, workerName(action)].filter(Boolean).join(" ")}` : "", action.cause ? ` · ${action.cause}` : "", action.peak_bytes ? ` · ${bytes(action.peak_bytes)}` : "", action.onPath ? " · critical path" : ""));
    const { innerWidth, innerHeight } = window;
    this.tip.style.setProperty("left", `${Math.max(8, Math.min(event.clientX + 14, innerWidth - this.tip.offsetWidth - 8))}px`);
    this.tip.style.setProperty("top", `${event.clientY + 20 + this.tip.offsetHeight > innerHeight ? event.clientY - this.tip.offsetHeight - 10 : event.clientY + 20}px`);
  }

  at(x, y) {
    const inLanes = y - this.top + this.place.scrollTop;
    const lane = y > this.top ? this.lanes.find((each) => inLanes >= each.y && inLanes < each.y + this.lane) : null;
    if (!lane) return null;
    let best = null, distance = 4;
    for (const action of lane.actions) {
      const [left, right] = [this.x(action.ran ? action.start : action.time), this.x(action.time)];
      const away = x < left ? left - x : x > right ? x - right : 0;
      if (away < distance) [best, distance] = [action, away];
    }
    return best;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = this.to - this.from;
    const keys = {
      "+": () => this.zoom(1 / 1.6), "=": () => this.zoom(1 / 1.6), w: () => this.zoom(1 / 1.6), "-": () => this.zoom(1.6), s: () => this.zoom(1.6),
      a: () => this.view(this.from - span / 5, span), d: () => this.view(this.from + span / 5, span), 0: () => this.fit(),
      ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), ArrowDown: () => this.change(1), ArrowUp: () => this.change(-1),
      Home: () => this.go(this.lanes[0]?.actions[0]), End: () => this.go(this.lanes.at(-1)?.actions.at(-1)),
      Enter: () => this.selected && this.open(this.selected), z: () => this.selected && this.zoomTo(this.selected),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
  }

  /** To the next or the previous action of the worker. */
  step(by) {
    const lane = this.selected && this.placeOf.get(this.selected);
    this.go(lane ? lane.actions[lane.actions.indexOf(this.selected) + by] : this.lanes[0]?.actions[0]);
  }

  /** To the action of the next or the previous worker at about the same time. */
  change(by) {
    const lane = this.selected && this.placeOf.get(this.selected);
    const next = lane ? this.lanes[this.lanes.indexOf(lane) + by] : this.lanes[0];
    const distance = (action) => Math.abs(action.start - (this.selected?.start ?? 0));
    this.go(next?.actions.reduce((best, action) => (distance(action) < distance(best) ? action : best)));
  }

  go(action) {
    if (!action) return;
    this.select(action);
    say(`${action.title}, ${statusName(action.status)}${action.ran ? `, ${seconds(action.seconds)}` : ""}`);
  }

  // Drawing.

  redraw() {
    if (this.pending || !this.place?.isConnected) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.place.isConnected) this.draw();
    });
  }

  palette() {
    const theme = document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
    if (this.theme !== theme) {
      this.theme = theme;
      const names = ["--ink", "--muted", "--line", "--surface", "--ground", "--accent", "--chart", "--chart-line", "--path", "--failed", "--skipped", "--hue-other", "--on-bar", ...HUES, ...Object.values(STATUSES).map((each) => each.colour)];
      this.values = new Map(names.map((name) => [name, colourValue(name)]));
    }
    return (name) => this.values.get(name);
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.setProperty("width", `${width}px`);
      this.canvas.style.setProperty("height", `${height}px`);
      this.layOut(height);
    }
    this.width = width;
    const draw = this.canvas.getContext("2d"), colour = this.palette();
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.font = "12px system-ui, sans-serif";
    draw.textBaseline = "middle";
    draw.fillStyle = colour("--surface");
    draw.fillRect(0, 0, width, height);
    const top = this.top - this.place.scrollTop;
    this.drawGrid(draw, colour, width, height);
    draw.save();
    draw.beginPath();
    draw.rect(0, this.top, width, height - this.top);
    draw.clip();
    for (const lane of this.lanes) if (top + lane.y + this.lane > this.top - GROUP && top + lane.y - GROUP < height) this.drawLane(draw, colour, lane, top + lane.y, width);
    for (const lane of this.lanes) if (lane.group) this.drawGroup(draw, colour, lane, top + lane.y - GROUP / 2);
    if (this.showPath) this.drawPath(draw, colour, top);
    draw.restore();
    this.drawLoad(draw, colour, width, 1, AXIS, (most) => `running, at most ${most}`);
    if (this.hasMemory) this.drawLoad(draw, colour, width, 2, AXIS + CHART, (most) => `memory of what runs, at most ${bytes(most)}`);
  }

  drawGrid(draw, colour, width, height) {
    const step = niceStep((this.to - this.from) / Math.max(2, width / 110));
    draw.textAlign = "left";
    for (let time = Math.ceil(this.from / step) * step; time < this.to; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      draw.fillStyle = colour("--line");
      draw.fillRect(x, 0, 1, height);
      draw.fillStyle = colour("--muted");
      draw.fillText(axisTime(time, step), x + 5, AXIS / 2);
    }
  }

  /** How many actions ran at each moment, or how much memory they had together at most. */
  drawLoad(draw, colour, width, place, top, named) {
    const most = this.load.reduce((best, each) => Math.max(best, each[place]), 0);
    const bottom = top + CHART - 4, scale = (CHART - 8) / (most || 1);
    draw.beginPath();
    draw.moveTo(this.x(0), bottom);
    let before = 0, drawn = -1;
    for (const each of this.load) {
      const x = Math.min(width + 1, Math.max(-1, this.x(each[0])));
      if (x !== drawn || each[place] !== before) draw.lineTo(x, bottom - before * scale), draw.lineTo(x, bottom - each[place] * scale);
      [before, drawn] = [each[place], x];
    }
    draw.lineTo(this.x(this.whole), bottom);
    draw.fillStyle = colour("--chart");
    draw.fill();
    draw.strokeStyle = colour("--chart-line");
    draw.lineWidth = 1;
    draw.stroke();
    draw.fillStyle = colour("--line");
    draw.fillRect(0, top + CHART - 1, width, 1);
    const text = named(most);
    draw.fillStyle = colour("--surface");
    draw.globalAlpha = 0.85;
    draw.fillRect(3, top + 1, draw.measureText(text).width + 8, 16);
    draw.globalAlpha = 1;
    draw.fillStyle = colour("--muted");
    draw.fillText(text, 7, top + 9);
  }

  drawGroup(draw, colour, lane, y) {
    const text = `${lane.group.name}  ·  ${lane.group.lanes[0].hits ? plural(lane.group.lanes.reduce((sum, each) => sum + each.actions.length, 0), "hit") : plural(lane.group.count, "worker")}`;
    draw.fillStyle = colour("--ink");
    draw.font = "600 12px system-ui, sans-serif";
    draw.fillText(text, 7, y);
    draw.font = "12px system-ui, sans-serif";
  }

  drawLane(draw, colour, lane, y, width) {
    const nameOf = COLOURINGS[this.colouring];
    let filled = -Infinity;
    for (const action of lane.actions) {
      const left = this.x(lane.hits ? action.time : action.start);
      const right = lane.hits ? left + 2 : Math.max(this.x(action.time), left + NARROWEST);
      if (right < 0 || left > width) continue;
      const marked = action === this.selected || action === this.hovered;
      if (right < filled + NARROWEST && !marked && action.status !== "failed") continue;
      filled = right;
      const faint = !this.found(action);
      const from = Math.max(left, -4), across = Math.min(right, width + 4) - from, gap = across > 3 ? 0.5 : 0;
      draw.globalAlpha = faint ? 0.15 : 1;
      draw.fillStyle = colour(action.status === "failed" ? "--failed" : lane.hits ? statusColour(action.status) : this.colours.get(nameOf(action)) ?? "--hue-other");
      draw.fillRect(from, y + 2, Math.max(across - gap, NARROWEST), this.lane - 4);
      if (!lane.hits && across > 24) this.drawParts(draw, action, left, right, y);
      if (!lane.hits && across > 46) drawLabel(draw, colour("--on-bar"), action.name, from + 5, y + this.lane / 2, across - 9);
      if (marked) {
        draw.globalAlpha = 1;
        draw.strokeStyle = colour("--accent");
        draw.lineWidth = 2;
        draw.strokeRect(from, y + 1, Math.max(across, 2), this.lane - 2);
      }
      draw.globalAlpha = 1;
    }
    if (lane.name) this.drawWorker(draw, colour, lane, y);
  }

  /** The name of a lane's worker, at the left, where no action is. */
  drawWorker(draw, colour, lane, y) {
    const room = draw.measureText(lane.name).width + 14;
    const isFree = !lane.actions.some((action) => this.x(action.start) < room && this.x(action.time) > 0);
    if (!isFree) return;
    draw.fillStyle = colour("--muted");
    draw.fillText(lane.name, 7, y + this.lane / 2);
  }

  /** The time of fetching inputs and of storing outputs is lighter. */
  drawParts(draw, action, left, right, y) {
    const perSecond = (right - left) / Math.max(action.seconds, 1e-9);
    draw.fillStyle = "rgb(255 255 255 / 35%)";
    draw.fillRect(left, y + 2, action.input_seconds * perSecond, this.lane - 4);
    draw.fillRect(right - action.output_seconds * perSecond, y + 2, action.output_seconds * perSecond, this.lane - 4);
  }

  /** A line under each action of the path, and from the end of each to the start of the next one. */
  drawPath(draw, colour, top) {
    draw.strokeStyle = draw.fillStyle = colour("--path");
    draw.lineWidth = 1;
    let before = null;
    for (const action of this.build.path) {
      const lane = this.placeOf.get(action);
      if (!lane || lane.hits) continue;
      const y = top + lane.y;
      const left = this.x(action.start), right = this.x(action.time);
      draw.fillRect(left, y + this.lane - 3, Math.max(right - left, 1.5), 3);
      if (before) {
        draw.beginPath();
        draw.moveTo(before.x, before.y);
        draw.lineTo(left, before.y === y + this.lane - 1.5 ? before.y : y + 2);
        draw.stroke();
      }
      before = { x: right, y: y + this.lane - 1.5 };
    }
  }
}

function drawLabel(draw, colour, text, x, y, room) {
  let shown = text;
  const fits = Math.floor(room / 6.2);
  if (shown.length > fits) shown = fits > 3 ? `${shown.slice(0, fits - 1)}…` : "";
  draw.fillStyle = colour;
  draw.textAlign = "left";
  draw.fillText(shown, x, y, room);
}

/** 1, 2 or 5 times a power of ten, and above a minute what clocks are divided into; at least `least` seconds. */
function niceStep(least) {
  for (const step of [60, 120, 300, 600, 1800, 3600, 7200]) if (least > 30 && step >= least) return step;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((factor) => factor * power >= least) * power;
}

function axisTime(time, step) {
  if (step < 1) return `${time.toFixed(Math.max(0, Math.ceil(-Math.log10(step))))} s`;
  const whole = Math.round(time), minutes = Math.floor(whole / 60), rest = String(whole % 60).padStart(2, "0");
  return whole < 60 ? `${whole} s` : whole < 3600 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}
