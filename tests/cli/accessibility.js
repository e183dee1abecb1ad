"use strict";
/* What is wrong with a page for people who see little or nothing. The tests of pages run it in them. */

/** Texts with a contrast of less than 4.5 against the nearest opaque ground (WCAG AA). */
function lowContrast() {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [red, green, blue] = rgb(colour).map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isSeen = element.checkVisibility() && !element.closest('script, noscript, .unseen');
    if (!isSeen || !walker.currentNode.data.trim()) continue;
    const [one, other] = [luminance(getComputedStyle(element).color), luminance(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5 && getComputedStyle(element).color !== 'rgba(0, 0, 0, 0)') {
      const text = walker.currentNode.data.trim().slice(0, 20);
      found.add(`${element.tagName} ${element.className} ${contrast.toFixed(2)} ${text}`);
    }
  }
  return [...found];
}

/** Controls and regions without a name. */
function nameless() {
  const kinds = 'button, a, input, select, canvas, [role=grid], [role=img], nav, aside:not([hidden])';
  const isNamed = (each) => each.innerText?.trim() || each.getAttribute('aria-label') || each.labels?.length;
  return [...document.querySelectorAll(kinds)]
    .filter((each) => each.checkVisibility() && !isNamed(each)).map((each) => each.outerHTML.slice(0, 100));
}
