"use strict";
/* Makes elements. Text of the build becomes text nodes and attribute values, never markup. */

/**
 * An element with properties and children. `on…` are listeners, `style` is an object of custom properties and
 * properties, `true` and `false` set and leave out an attribute. Children are nodes, texts, numbers, lists; null is none.
 */
function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [each, set] of Object.entries(value)) element.style.setProperty(each, set);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

const nodes = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== "");

/** Replace the children of an element. */
const fill = (element, ...children) => element.replaceChildren(...nodes(children));

/** The dot and the name of a status. */
const statusLabel = (status) =>
  h("span", { class: "status" }, h("i", { class: "dot", style: { "--colour": `var(${statusColour(status)})` } }), statusName(status));

/** A bar that fills a share of its place, for tables and lists; what it says stands beside it as text. */
const bar = (share, colour = "--accent") =>
  h("span", { class: "meter", "aria-hidden": "true" },
    h("i", { style: { width: `${Math.min(100, 100 * share).toFixed(2)}%`, "--colour": `var(${colour})` } }));

/** Bars one after another, of [amount, colour, title]. */
function stackedBar(parts, label) {
  const whole = parts.reduce((sum, [amount]) => sum + amount, 0);
  return h("div", { class: "stacked", role: "img", "aria-label": label },
    parts.filter(([amount]) => amount > 0).map(([amount, colour, title]) =>
      h("i", { title, style: { "flex-grow": String((100 * amount) / whole), "--colour": `var(${colour})` } })));
}

/** A tile of a figure: what it is, the figure, and what to compare it with. */
const tile = (name, figure, note, link) =>
  h(link ? "a" : "div", { class: "tile", href: link }, h("span", { class: "tile-name" }, name),
    h("strong", null, figure), h("span", { class: "tile-note" }, note));

/** A section with its heading. */
const section = (title, properties, ...children) =>
  h("section", { class: "panel", ...properties }, h("h2", null, title), ...children);

/** A button that copies a text. */
function copyButton(text, what) {
  const button = h("button", { type: "button", class: "copy", title: `Copy ${what}`, "aria-label": `Copy ${what}` }, "copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
    say(`Copied ${what}`);
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  return button;
}

/** Tell users of screen readers what has changed elsewhere on the page. */
function say(message) {
  document.getElementById("said").textContent = message;
}
