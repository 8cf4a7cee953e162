/** Panel 6: transform the channels of a network, and decode them. */

import { element, labelledSelect, labelledSlider, showProblem } from "../dom.js";
import { fixed, signed } from "../format.js";
import { paintPicture, sizeCanvas } from "../drawing/colour.js";
import { onlyLatest } from "../session.js";
import { captioned, emptyPanel, panelFrame, watchVisibility } from "./frame.js";
import { networkOfKind, ownThumbnails, pictureFor, sharesPicture } from "./own_network.js";
import { PresetChart } from "./presets.js";

const SIDE = 168;
const KINDS = [
  ["rotate", "rotate"], ["flip-horizontal", "flip left to right"], ["flip-vertical", "flip top to bottom"],
  ["shift", "shift right and down"], ["scale", "scale"],
];
// Range of the slider and the start of every kind that has an amount.
const RANGES = {
  rotate: { min: -180, max: 360, step: 5, start: 45, show: (v) => `${signed(v, 0)}\u00b0` },
  shift: { min: -6, max: 6, step: 0.5, start: 2, show: (v) => `${signed(v, 1)} positions` },
  scale: { min: 0.25, max: 2.5, step: 0.05, start: 1.5, show: (v) => `\u00d7 ${fixed(v)}` },
};
const SHOWN = [["affine_capsules", "capsule network"], ["affine_cnn", "CNN"]];

export class TransformPanel {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.frame = panelFrame({
      id: "transform",
      number: 6,
      title: "Transform the capsules",
      see: "The channels of the last layer are transformed, then decoded. If capsules keep where things are, the reconstruction looks like the same transformation of the image.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    this.compute = onlyLatest(() => this.run());
    // The panels in view come first.
    this.isVisible = watchVisibility(this.root, () => this.compute());
    this.onNetwork();
    session.listen((what) => what === "result" && this.onPicture());
    this.store.listen((names) => this.onChange(names));
  }

  onNetwork() {
    this.networks = SHOWN.map(([kind, name]) => ({ name, network: networkOfKind(this.store, kind) })).filter(({ network }) => network);
    this.fresh = false;
    this.presets?.stop();
    this.first = this.networks[0]?.network;
    if (!this.first) {
      emptyPanel(this.frame.body, "This needs a network with a decoder on its last channels, and the CNN it is compared with. Train both and add them to the page:",
        "clustercaps train affine_capsules --data mnist --recipe fast --out runs/affine-capsules\nclustercaps train affine_cnn --data mnist --recipe fast --out runs/affine-cnn\nclustercaps explore m1:fashion-mnist runs/affine-capsules runs/affine-cnn");
      return;
    }
    this.build();
  }

  build() {
    const canvas = (label) => {
      const node = element("canvas", { role: "img", "aria-label": label });
      sizeCanvas(node, SIDE);
      return node;
    };
    this.input = canvas("The image");
    this.target = canvas("The transformed image");
    this.views = this.networks.map(({ name, network }) => {
      const picture = canvas(`Reconstruction by the ${name}`);
      const error = element("span", { class: "error number" });
      const bar = element("span", { class: "bar" });
      const caption = element("figcaption", {}, `${name} `, error, element("span", { class: "bar-track", "aria-hidden": "true" }, bar));
      return { network, name, picture, error, bar, root: element("figure", { class: "captioned" }, picture, caption) };
    });
    const missing = SHOWN.filter(([kind]) => !networkOfKind(this.store, kind)).map(([kind, name]) =>
      element("p", { class: "empty small" }, `No ${name} in this file: clustercaps train ${kind} --data mnist --out runs/${kind}, then name runs/${kind} after clustercaps explore.`));
    this.verdict = element("p", { class: "readout", role: "status" });
    const pictures = element("div", { class: "pictures" }, captioned(this.input, "the image"),
      captioned(this.target, "the image, transformed"), ...this.views.map((view) => view.root), ...missing);
    this.buildControls();
    const legend = element("p", { class: "legend" },
      "Number and bar: mean squared error between the reconstruction and the transformed image; less is better. A shift by one position of the channels is a shift by two pixels of the image.");
    const left = element("div", { class: "transform-now" }, this.buildThumbnails(), this.controls, pictures, this.verdict, legend);
    this.presets = new PresetChart(this.views, ({ kind, amount }) => this.store.set({ transform: kind, amount }));
    this.frame.body.replaceChildren(element("div", { class: "transform-layout" }, left, this.presets.root));
    this.mark();
  }

  buildControls() {
    this.kind = labelledSelect("Transformation", KINDS, (transform) => this.store.set({ transform, amount: RANGES[transform]?.start ?? 0 }));
    this.amountHolder = element("div", { class: "amount" });
    this.controls = element("div", { class: "controls", "data-unsaved": "" }, this.kind.root, this.amountHolder);
  }

  buildThumbnails() {
    this.thumbnails = null;
    if (sharesPicture(this.store, this.first)) return element("p", { class: "hint" }, "The picture of panel 1.");
    this.thumbnails = ownThumbnails(`Images of ${this.first.title}`, this.first, (sample) => this.store.set({ sample }));
    const named = element("p", { class: "hint" }, `Images of ${this.first.title}, which panel 1 does not show now:`);
    return element("div", { "data-unsaved": "" }, named, this.thumbnails.root);
  }

  /** Show the present transformation in the controls. */
  mark() {
    const { transform, amount, sample } = this.store.state;
    this.kind.select.value = transform;
    const range = RANGES[transform];
    if (this.amountOf !== transform) {
      this.amount = range && labelledSlider("Amount", { ...range, value: amount, oninput: (value) => this.store.set({ amount: value }) });
      this.amountOf = transform;
    }
    if (range && !this.amountHolder.contains(this.amount.root)) this.amountHolder.replaceChildren(this.amount.root);
    if (!range) this.amountHolder.replaceChildren();
    this.amount?.set(amount);
    this.presets.mark(transform, amount);
    this.thumbnails?.mark(sample);
  }

  onChange(names) {
    if (names.has("network")) this.onNetwork();
    if (!this.first) return;
    if (names.has("sample")) this.fresh = false;
    if (["transform", "amount", "sample", "network"].some((name) => names.has(name))) {
      this.mark();
      this.compute();
    }
  }

  onPicture() {
    if (!this.first) return;
    this.fresh = false;
    this.compute();
  }

  async run() {
    const { session, first } = this;
    if (!first || !session.result || !this.isVisible()) return;
    const pixels = pictureFor(session, first, this.store.state.sample);
    const moved = !this.fresh;
    if (moved) {
      this.presets.stop();
      for (const { network } of this.views) {
        const own = network.id === this.store.state.network && session.resultOf === network.id;
        if (!own) await session.forward(network.id, pixels, { routing: this.store.state.routing });
      }
      this.fresh = true;
      paintPicture(this.input, pixels, first.input);
    }
    const { transform: kind, amount } = this.store.state;
    const errors = [];
    for (const view of this.views) {
      const found = await session.engine.transform(view.network.id, { kind, amount });
      paintPicture(this.target, found.target, view.network.input);
      paintPicture(view.picture, found.pixels, view.network.input);
      view.error.textContent = fixed(found.error, 4);
      view.bar.style.width = `${100 * Math.min(1, found.error / 0.15)}%`;
      errors.push(found.error);
    }
    this.found = { kind, amount, errors };
    this.judge(errors);
    if (moved) this.presets.fill(session.engine).catch((error) => showProblem(error.message));
  }

  judge(errors) {
    if (errors.length < 2) {
      this.verdict.textContent = "";
      return;
    }
    const best = errors[0] <= errors[1] ? 0 : 1;
    this.verdict.textContent = `Here the ${this.views[best].name} is closer: ${fixed(errors[best], 4)} against ${fixed(errors[1 - best], 4)}.`;
  }

  numbers() {
    if (!this.found) return null;
    const { kind, amount, errors } = this.found;
    const rows = [[`${kind} ${amount}`, ...errors], ...this.presets.errors].map(([name, ...found]) => [name, ...found.flat()]);
    return { header: ["transformation", ...this.views.map(({ network }) => `mean squared error of ${network.id}`)], rows };
  }
}
