/** What all panels share: a title, a sentence that says what to see, and saving. */

import { announce, button, element, showProblem } from "../dom.js";
import { csvText } from "../format.js";
import { savePicture, saveText } from "../drawing/save.js";

/**
 * `see` says what to see; `numbers()` gives {header, rows} for CSV, or null if there is nothing yet.
 * Elements with `data-unsaved` are controls, which a saved picture leaves out.
 */
export function panelFrame({ id, number, title, see, numbers }) {
  const file = `capsules-${id}`;
  const png = button("PNG", () => savePicture(`${file}.png`, root).catch((e) => showProblem(e.message)), {
    "aria-label": `Save ${title} as PNG`,
  });
  const csv = button("CSV", () => {
    const found = numbers();
    if (found) saveText(`${file}.csv`, csvText(found.header, found.rows));
    else announce("There are no numbers yet.");
  }, { "aria-label": `Save the numbers of ${title} as CSV` });
  const heading = element(
    "h2", { id: `title-${id}` }, element("span", { class: "step", "aria-hidden": "true" }, String(number)), title,
  );
  const body = element("div", { class: "panel-body" });
  const root = element(
    "section",
    { class: `panel panel-${id}`, id: `panel-${id}`, "aria-labelledby": `title-${id}`, tabindex: "-1" },
    element("header", { class: "panel-head" }, heading, element("div", { class: "saves", "data-unsaved": "" }, png, csv)),
    element("p", { class: "see" }, see),
    body,
  );
  return { root, body };
}

/** A panel that the networks of this file cannot fill, with the command that adds one, if any. */
export function emptyPanel(body, text, command = "") {
  const code = command ? element("pre", {}, element("code", {}, command)) : null;
  body.replaceChildren(element("div", { class: "empty" }, element("p", {}, text), code));
}

/** A captioned picture: a canvas with a line of text below. */
export function captioned(canvas, caption) {
  return element("figure", { class: "captioned" }, canvas, element("figcaption", {}, caption));
}

/** Whether a panel is near the part of the page in view; `onshow` runs when it comes there. */
export function watchVisibility(root, onshow) {
  let visible = false;
  const observer = new IntersectionObserver((entries) => {
    const before = visible;
    visible = entries.at(-1).isIntersecting;
    if (visible && !before) onshow();
  }, { rootMargin: "200px" });
  observer.observe(root);
  return () => visible;
}
