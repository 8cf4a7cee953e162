/** Class probabilities as bars. */

import { element } from "../dom.js";
import { percent } from "../format.js";

export function classBars(classes) {
  const rows = classes.map((name) => {
    const bar = element("span", { class: "bar" });
    const mark = element("span", { class: "bar-other" });
    const value = element("span", { class: "bar-value number" });
    const track = element("span", { class: "bar-track", "aria-hidden": "true" }, bar, mark);
    const root = element("li", {}, element("span", { class: "bar-name" }, name), track, value);
    return { root, bar, mark, value };
  });
  const root = element("ol", { class: "bars", "aria-label": "Class probabilities" });
  root.append(...rows.map((row) => row.root));
  return { root, rows };
}

/** `other`: probabilities with the other routing, drawn as marks; null hides them. */
export function setBars({ rows }, probabilities, other) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  rows.forEach(({ root, bar, mark, value }, n) => {
    bar.style.width = `${100 * probabilities[n]}%`;
    root.classList.toggle("best", n === best);
    value.textContent = percent(probabilities[n]);
    mark.hidden = !other;
    if (other) mark.style.left = `${100 * other[n]}%`;
  });
}
