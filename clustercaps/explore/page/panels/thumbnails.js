/** A strip of stored images, of which one is chosen: a radio group for the keyboard. */

import { element } from "../dom.js";
import { paintPicture, sizeCanvas } from "../drawing/colour.js";
import { storedPixels } from "../warp.js";

/** What screen readers say of an image. */
export function imageName(network, index) {
  const { label, predicted } = network.images[index];
  const name = network.classes[label];
  if (predicted === label || predicted === null || predicted === undefined) return `${name}, image ${index + 1}`;
  return `${name}, image ${index + 1}, wrongly predicted as ${network.classes[predicted]}`;
}

function thumbnail(network, index, size, choose) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  sizeCanvas(canvas, size);
  paintPicture(canvas, storedPixels(network, index), network.input);
  const { label, predicted } = network.images[index];
  const wrong = predicted !== undefined && predicted !== null && predicted !== label;
  const mark = wrong ? element("span", { class: "wrong", "aria-hidden": "true" }, "\u00d7") : null;
  const name = imageName(network, index);
  const attributes = { role: "radio", "aria-label": name, title: name, onclick: () => choose(index) };
  return element("button", { type: "button", class: "thumbnail", ...attributes }, canvas, mark);
}

export class Thumbnails {
  constructor(label, size, onchoose) {
    this.size = size;
    this.onchoose = onchoose;
    this.root = element("div", { class: "thumbnails", role: "radiogroup", "aria-label": label });
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.indices = [];
  }

  /** Show these images of a network. */
  fill(network, indices) {
    this.indices = indices;
    this.buttons = indices.map((n) => thumbnail(network, n, this.size, this.onchoose));
    this.root.replaceChildren(...this.buttons);
    this.mark(-1);
  }

  /** Mark the chosen image; -1 for none. */
  mark(index) {
    this.buttons.forEach((each, n) => {
      const chosen = this.indices[n] === index;
      each.setAttribute("aria-checked", String(chosen));
      each.tabIndex = chosen || (n === 0 && !this.indices.includes(index)) ? 0 : -1;
    });
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const place = this.buttons.indexOf(document.activeElement);
    if (!step || place < 0) return;
    event.preventDefault();
    const next = (place + step + this.buttons.length) % this.buttons.length;
    this.buttons[next].focus();
    this.onchoose(this.indices[next]);
  }
}
