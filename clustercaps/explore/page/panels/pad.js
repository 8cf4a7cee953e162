/** The picture itself: it can be drawn on, and pictures can be dropped on it. */

import { button, element } from "../dom.js";
import { paintPicture, sizeCanvas } from "../drawing/colour.js";
import { dab } from "../warp.js";

const SIDE = 224;
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class DrawingPad {
  /** `onfile(file)` is called with whatever is dropped. */
  constructor(session, onfile) {
    this.session = session;
    this.pen = "";
    this.cursor = null;
    this.last = null;
    this.canvas = element("canvas", {
      class: "pad", tabindex: "0", role: "application",
      "aria-label": "The input image. With Draw or Erase on, arrow keys move the pen and the space bar uses it.",
    });
    sizeCanvas(this.canvas, SIDE);
    this.draw = button("Draw", () => this.setPen("draw"), { "aria-pressed": "false" });
    this.erase = button("Erase", () => this.setPen("erase"), { "aria-pressed": "false" });
    const blank = button("Blank", () => this.blank(), { title: "Start from a black picture and draw" });
    const tools = element("div", { class: "buttons", "data-unsaved": "" }, this.draw, this.erase, blank);
    const hint = element("p", { class: "hint", "data-unsaved": "" }, "Drop or paste a picture here.");
    this.root = element("div", { class: "pad-holder" }, this.canvas, tools, hint);
    this.listenToPointer();
    this.listenToDrops(onfile);
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("blur", () => this.moveCursor(null));
    session.listen((what) => what === "pixels" && this.paint());
  }

  setPen(pen) {
    this.pen = this.pen === pen ? "" : pen;
    this.draw.setAttribute("aria-pressed", String(this.pen === "draw"));
    this.erase.setAttribute("aria-pressed", String(this.pen === "erase"));
    this.canvas.classList.toggle("inking", this.pen !== "");
    this.moveCursor(null);
  }

  blank() {
    this.session.setPicture(new Float32Array(this.session.pixels.length));
    if (this.pen !== "draw") this.setPen("draw");
    this.canvas.focus();
  }

  listenToPointer() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.pen) return;
      canvas.setPointerCapture(event.pointerId);
      this.last = this.placeOf(event);
      this.stroke([this.last]);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.pen || !this.last) return;
      const next = this.placeOf(event);
      this.stroke(betweenPoints(this.last, next));
      this.last = next;
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.last = null));
  }

  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const { height, width } = this.session.store.network.input;
    return [((event.clientY - box.top) / box.height) * height, ((event.clientX - box.left) / box.width) * width];
  }

  /** What is seen is what is drawn on: adjustments become part of the picture. */
  stroke(points) {
    const pixels = Float32Array.from(this.session.pixels);
    for (const [y, x] of points) dab(pixels, this.session.store.network.input, y, x, this.pen === "draw");
    this.session.setPicture(pixels);
  }

  onKey(event) {
    if (!this.pen) return;
    const { height, width } = this.session.store.network.input;
    const [y, x] = this.cursor ?? [height >> 1, width >> 1];
    if (event.key in KEYS) {
      const [down, right] = KEYS[event.key];
      this.moveCursor([Math.max(0, Math.min(height - 1, y + down)), Math.max(0, Math.min(width - 1, x + right))]);
    } else if (event.key === " ") {
      this.cursor = [y, x];
      this.stroke([[y + 0.5, x + 0.5]]);
    } else return;
    event.preventDefault();
  }

  moveCursor(place) {
    this.cursor = place;
    if (this.session.pixels) this.paint();
  }

  listenToDrops(onfile) {
    // Anywhere on the page: a missed drop must not replace the page by the file.
    addEventListener("dragover", (event) => {
      event.preventDefault();
      this.canvas.classList.add("dropping");
    });
    for (const end of ["dragleave", "drop"]) addEventListener(end, () => this.canvas.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      const file = event.dataTransfer?.files?.[0];
      onfile(file ?? new File([], "nothing"));
    });
  }

  paint() {
    const { input } = this.session.store.network;
    paintPicture(this.canvas, this.session.pixels, input);
    if (!this.cursor) return;
    const context = this.canvas.getContext("2d");
    const [cellY, cellX] = [this.canvas.height / input.height, this.canvas.width / input.width];
    context.lineWidth = 4;
    for (const [colour, grow] of [["#000", 2], ["#fff", 0]]) {
      context.strokeStyle = colour;
      const [y, x] = this.cursor;
      context.strokeRect(x * cellX - grow, y * cellY - grow, cellX + 2 * grow, cellY + 2 * grow);
    }
  }
}

/** Points at most half a pixel apart. */
function betweenPoints([y0, x0], [y1, x1]) {
  const count = Math.max(1, Math.ceil(2 * Math.hypot(y1 - y0, x1 - x0)));
  return Array.from({ length: count }, (_, n) => {
    const part = (n + 1) / count;
    return [y0 + part * (y1 - y0), x0 + part * (x1 - x0)];
  });
}
