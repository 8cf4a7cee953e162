/** Panel 5: what each dimension of the predicted class capsule means to the decoder. */

import { button, calmMotion, element, labelledSlider, showProblem } from "../dom.js";
import { fixed, signed } from "../format.js";
import { paintPicture, sizeCanvas } from "../drawing/colour.js";
import { onlyLatest } from "../session.js";
import { captioned, emptyPanel, panelFrame, watchVisibility } from "./frame.js";
import { networkOfKind, ownThumbnails, pictureFor, sharesPicture } from "./own_network.js";

// The paper varies a dimension in 11 steps in [-0.25, 0.25].
const REACH = 0.25;
const STEPS = 11;
const SLIDER_REACH = 1;
const SMALL = 44;

export class DimensionsPanel {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.frame = panelFrame({
      id: "dimensions",
      number: 5,
      title: "Capsule dimensions",
      see: "A decoder draws the image from the capsule of the predicted class alone. Move one dimension and watch which property of the drawing follows.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    this.version = 0;
    this.compute = onlyLatest(() => this.run());
    // The panels in view come first.
    this.isVisible = watchVisibility(this.root, () => this.compute());
    this.onNetwork();
    session.listen((what) => what === "result" && this.onPicture());
    this.store.listen((names) => this.onChange(names));
  }

  onNetwork() {
    this.network = networkOfKind(this.store, "class_capsules");
    this.forget();
    clearInterval(this.walking);
    if (!this.network) {
      emptyPanel(this.frame.body, "This needs a network with one capsule per class and a decoder. Train one and add it to the page:",
        "clustercaps train class_capsules --data mnist --recipe fast --out runs/class-capsules\nclustercaps explore m1:fashion-mnist runs/class-capsules");
      return;
    }
    this.input = element("canvas", { role: "img", "aria-label": "The image" });
    this.drawn = element("canvas", { role: "img", "aria-label": "The reconstruction" });
    for (const canvas of [this.input, this.drawn]) sizeCanvas(canvas, 140);
    this.title = element("p", { class: "headline" });
    this.walkButton = button("Random walk", () => this.toggleWalk(), { "aria-pressed": "false" });
    const tools = element("div", { class: "buttons", "data-unsaved": "" },
      button("Reset", () => this.setOffsets([])), this.walkButton);
    this.buildRows();
    const pictures = element("div", { class: "pictures" }, captioned(this.input, "the image"), captioned(this.drawn, "reconstruction"));
    const left = element("div", { class: "dimension-pictures" }, pictures, this.buildThumbnails(), tools);
    const right = element("div", { class: "dimension-rows" }, this.rowsHead, ...this.rows.map((row) => row.root));
    const legend = element("p", { class: "legend" },
      `Each strip varies one dimension in ${STEPS} steps from ${signed(-REACH)} to ${signed(REACH)} around the slider; the middle picture is the reconstruction.`);
    this.frame.body.replaceChildren(this.title, element("div", { class: "dimension-layout" }, left, right), legend);
  }

  buildThumbnails() {
    if (sharesPicture(this.store, this.network)) {
      this.thumbnails = null;
      return element("p", { class: "hint" }, "The picture of panel 1.");
    }
    this.thumbnails = ownThumbnails(`Images of ${this.network.title}`, this.network, (picture) => this.store.set({ picture }));
    const named = element("p", { class: "hint" }, `Images of ${this.network.title}, which panel 1 does not show now:`);
    return element("div", { "data-unsaved": "" }, named, this.thumbnails.root);
  }

  buildRows() {
    const { dim } = this.network.layers.at(-1);
    this.rowsHead = element("div", { class: "dimension-head", "aria-hidden": "true" },
      element("span", {}, "change of the dimension"), element("span", { class: "number" }, `${fixed(-REACH)} \u2026 ${signed(REACH)}`));
    this.rows = Array.from({ length: dim }, (_, n) => {
      const slider = labelledSlider(`Dimension ${n + 1}`, {
        min: -SLIDER_REACH, max: SLIDER_REACH, step: 0.01, value: 0, show: (v) => signed(v),
        oninput: (value) => this.setOffset(n, value),
      });
      const strip = Array.from({ length: STEPS }, () => {
        const canvas = element("canvas", { "aria-hidden": "true" });
        sizeCanvas(canvas, SMALL);
        return canvas;
      });
      const root = element("div", { class: "dimension" }, slider.root, element("div", { class: "strip" }, ...strip));
      return { root, slider, strip };
    });
  }

  offsets() {
    const values = this.store.state.offsets.split(",").map(Number);
    return this.rows.map((_, n) => Math.max(-SLIDER_REACH, Math.min(SLIDER_REACH, values[n] || 0)));
  }

  setOffset(n, value) {
    this.active = n;
    this.setOffsets(this.offsets().map((old, m) => (m === n ? value : old)));
  }

  setOffsets(values) {
    const text = values.some((value) => value) ? values.map((value) => String(+value.toFixed(2))).join(",") : "";
    this.store.set({ offsets: text });
  }

  onChange(names) {
    if (names.has("network")) this.onNetwork();
    if (!this.network) return;
    if (names.has("offsets")) this.compute();
    if (names.has("picture") && this.thumbnails) this.onPicture();
    this.offsets().forEach((value, n) => this.rows[n].slider.set(value));
  }

  onPicture() {
    if (!this.network) return;
    this.forget();
    this.compute();
  }

  /** The capsules belong to another picture; strips under way end. */
  forget() {
    this.capsules = null;
    this.version += 1;
  }

  /** The reconstruction first, then the strips, the one in use before the others. */
  async run() {
    const { network, session } = this;
    if (!network || !session.result || !this.isVisible()) return;
    this.version += 1;
    const version = this.version;
    const capsules = this.capsules ?? (await this.readCapsules());
    if (version !== this.version) return;
    this.capsules = capsules;
    this.showCapsules(capsules);
    const drawn = await this.decode(capsules, this.offsets());
    if (version !== this.version) return;
    paintPicture(this.drawn, drawn, network.decoder ?? network.input);
    this.fillStrips(capsules, version).catch((error) => showProblem(error.message));
  }

  /** The class capsules of the picture: {features, prediction, pixels}. */
  async readCapsules() {
    const { network, session, store } = this;
    const pixels = pictureFor(session, network, store.state.picture);
    const own = network.id === store.state.network && session.resultOf === network.id;
    const { routing } = store.state;
    const { features, prediction } = own ? session.result : await session.forward(network.id, pixels, { routing });
    return { features, prediction, pixels };
  }

  showCapsules({ prediction, pixels }) {
    paintPicture(this.input, pixels, this.network.input);
    this.title.textContent = `The capsule of \u201c${this.network.classes[prediction]}\u201d, the predicted class (${this.network.title}).`;
    this.thumbnails?.mark(this.store.state.picture);
    this.offsets().forEach((value, n) => this.rows[n].slider.set(value));
  }

  /** Decode all class capsules, the predicted one changed. */
  async decode({ features, prediction }, offsets) {
    const changed = Float32Array.from(features);
    offsets.forEach((value, d) => (changed[prediction * offsets.length + d] += value));
    return (await this.session.engine.decode(this.network.id, changed, { label: prediction })).pixels;
  }

  async fillStrips(capsules, version) {
    const order = this.rows.map((_, n) => n).sort((a, b) => (b === this.active) - (a === this.active));
    for (const n of order) {
      for (let step = 0; step < STEPS; step++) {
        const offsets = this.offsets();
        offsets[n] += -REACH + (2 * REACH * step) / (STEPS - 1);
        const pixels = await this.decode(capsules, offsets);
        // A newer change has begun its own strips.
        if (version !== this.version) return;
        paintPicture(this.rows[n].strip[step], pixels, this.network.decoder ?? this.network.input);
      }
    }
    this.root.dataset.complete = String(version);
  }

  toggleWalk() {
    const step = () => this.setOffsets(this.offsets().map((value) => {
      const next = value + 0.16 * (Math.random() - 0.5);
      return Math.max(-SLIDER_REACH, Math.min(SLIDER_REACH, next));
    }));
    // One step per click for readers who prefer no motion.
    if (calmMotion()) return step();
    const walks = this.walkButton.getAttribute("aria-pressed") === "true";
    this.walkButton.setAttribute("aria-pressed", String(!walks));
    clearInterval(this.walking);
    if (!walks) this.walking = setInterval(step, 160);
  }

  numbers() {
    if (!this.capsules) return null;
    const { features, prediction } = this.capsules;
    const offsets = this.offsets();
    const rows = offsets.map((value, d) => [d + 1, features[prediction * offsets.length + d], value]);
    return { header: ["dimension", `capsule of ${this.network.classes[prediction]}`, "change"], rows };
  }
}
