/** The paper's 18 transformations: one row each, with the errors of both networks. */

import { PRESETS } from "../../engine/transforms.js";
import { element } from "../dom.js";
import { fixed } from "../format.js";

const MARKS = ["\u25cf", "\u25b2"];

export class PresetChart {
  /** `views` are {name, network}; `onchoose(preset)` is called with a preset. */
  constructor(views, onchoose) {
    this.views = views;
    this.version = 0;
    this.errors = new Map();
    this.rows = PRESETS.map((preset) => this.buildRow(preset, onchoose));
    const key = views.map(({ name }, n) => element("span", { class: `preset-key mark-${n}` }, element("span", { "aria-hidden": "true" }, `${MARKS[n]} `), name));
    this.scale = element("p", { class: "preset-scale number" });
    this.root = element("div", { class: "presets" },
      element("h3", {}, "All 18 transformations of the paper"),
      element("p", { class: "legend preset-keys" }, ...key, "mean squared error, less is better"),
      element("div", { role: "group", "aria-label": "Transformations of the paper" }, ...this.rows.map((row) => row.root)), this.scale);
  }

  buildRow(preset, onchoose) {
    const marks = this.views.map((_, n) => element("span", { class: `preset-mark mark-${n}`, hidden: true }, MARKS[n]));
    const values = this.views.map(() => element("span", { class: "preset-value number" }));
    const track = element("span", { class: "preset-track", "aria-hidden": "true" }, ...marks);
    const root = element("button", { type: "button", class: "preset", onclick: () => onchoose(preset) },
      element("span", { class: "preset-name number" }, preset.name), track, ...values);
    return { preset, root, marks, values };
  }

  /** Mark the row of the present transformation. */
  mark(kind, amount) {
    for (const { preset, root } of this.rows) {
      const chosen = preset.kind === kind && (kind.startsWith("flip") || preset.amount === amount);
      root.setAttribute("aria-pressed", String(chosen));
    }
  }

  /** Compute all errors one by one; a newer call ends an older one. */
  async fill(engine) {
    this.version += 1;
    const version = this.version;
    this.errors.clear();
    for (const { preset } of this.rows) {
      const found = [];
      for (const { network } of this.views) {
        const { error } = await engine.transform(network.id, { kind: preset.kind, amount: preset.amount });
        if (version !== this.version) return;
        found.push(error);
      }
      this.errors.set(preset.name, found);
    }
    this.draw();
  }

  stop() {
    this.version += 1;
  }

  draw() {
    const most = Math.max(0.01, ...[...this.errors.values()].flat());
    const end = Math.ceil(20 * most) / 20;
    for (const { preset, marks, values } of this.rows) {
      const found = this.errors.get(preset.name);
      found.forEach((error, n) => {
        marks[n].hidden = false;
        marks[n].style.left = `${(100 * error) / end}%`;
        // The name of the network is for screen readers: others see it in the legend.
        const name = element("span", { class: "hidden" }, ` ${this.views[n].name} `);
        values[n].replaceChildren(name, fixed(error, 3));
      });
    }
    this.scale.textContent = `Scale: 0 to ${fixed(end)}`;
    this.root.dataset.complete = "true";
  }
}
