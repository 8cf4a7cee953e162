/** Panel 4: which pixels of the input raise or lower one routing weight. */

import { Superseded } from "../../engine/client.js";
import { button, element } from "../dom.js";
import { fixed, significant } from "../format.js";
import { paintMap, paintPicture, signedColours, sizeCanvas } from "../drawing/colour.js";
import { colourBar } from "../drawing/save.js";
import { captioned, emptyPanel, panelFrame } from "./frame.js";
import { clusterName } from "./routing.js";

const SIDE = 164;

export class WhyPanel {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.frame = panelFrame({
      id: "why",
      number: 4,
      title: "Why this weight?",
      see: "Click a row in Routing. Each pixel of the input is made a little lighter in turn: the map shows how the routing weight answers.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    this.found = null;
    this.input = element("canvas", { role: "img", "aria-label": "The input image" });
    this.map = element("canvas", { role: "img", "aria-label": "How the weight answers to each pixel" });
    sizeCanvas(this.input, SIDE);
    sizeCanvas(this.map, SIDE);
    this.progress = element("progress", { max: 1, value: 0, "aria-label": "Progress of the computation" });
    this.ask = button("Compute", () => this.explain(), { class: "primary" });
    this.stop = button("Stop", () => session.engine.cancel());
    this.question = element("p", { class: "headline" });
    this.key = element("div", { class: "legend colour-key" });
    this.answer = element("p", { class: "readout", role: "status" });
    this.onNetwork();
    session.listen((what) => this.onResult(what));
    this.store.listen((names) => names.has("network") ? this.onNetwork() : this.refresh());
  }

  onNetwork() {
    this.found = null;
    if (this.store.network.kind === "affine_cnn") {
      emptyPanel(this.frame.body, "A CNN has no routing weights. Choose a capsule network at the top of the page.");
      return;
    }
    const pictures = element("div", { class: "pictures" }, captioned(this.input, "the input"), captioned(this.map, "change of the weight"));
    const tools = element("div", { class: "buttons", "data-unsaved": "" }, this.ask, this.stop, this.progress);
    this.frame.body.replaceChildren(this.question, tools, pictures, this.key, this.answer);
    this.progress.hidden = this.stop.hidden = true;
    this.refresh();
  }

  onResult(what) {
    if (what === "pixels") this.found = null;
    if (what === "pixels" || what === "votes") this.refresh();
  }

  place() {
    const { layer, row, column, parent, dim, cluster } = this.store.state;
    return { layer, y: row, x: column, channel: parent, dim, cluster };
  }

  /** Show what belongs to the present choice, and forget the rest. */
  refresh() {
    const { network, layer, state } = this.store;
    if (network.kind === "affine_cnn" || !this.session.pixels) return;
    paintPicture(this.input, this.session.pixels, network.input);
    const key = this.keyOf();
    if (this.running && this.running !== key) this.session.engine.cancel();
    const weight = this.session.votes?.weights[state.cluster];
    const value = weight === undefined ? "" : ` It is ${fixed(weight, 3)} now.`;
    this.question.textContent = `The weight of ${clusterName(layer, state.cluster)} for layer ${state.layer + 1}, channel ${state.parent + 1}, ` +
      `row ${state.row + 1}, column ${state.column + 1}, dimension ${state.dim + 1}.${value}`;
    if (this.found && this.found.key === key) this.paint(this.found.change);
    else if (!this.running) this.paintNothing();
    this.ask.disabled = state.routing === "uniform";
    if (state.routing === "uniform") this.answer.textContent = "With all clusters weighed equally, no pixel changes a weight. Switch to \u201cby agreement\u201d.";
  }

  keyOf() {
    const { network, image, pixels, routing, rotate, right, down, noise } = this.store.state;
    return JSON.stringify([network, image, pixels, routing, rotate, right, down, noise, this.place()]);
  }

  async explain() {
    if (this.store.state.routing === "uniform" || !this.session.result) return this.refresh();
    const key = this.keyOf();
    this.running = key;
    this.progress.hidden = this.stop.hidden = false;
    this.answer.textContent = "";
    this.progress.value = 0;
    try {
      const change = await this.session.engine.sensitivity(this.store.state.network, this.place(), (fraction, soFar) => {
        if (this.running !== key) return;
        this.progress.value = fraction;
        if (soFar) this.paint(soFar);
      });
      this.found = { key, change };
      this.summarise(change);
    } catch (error) {
      if (!(error instanceof Superseded)) this.answer.textContent = error.message;
    } finally {
      if (this.running === key) {
        this.running = null;
        this.progress.hidden = this.stop.hidden = true;
      }
      this.refresh();
    }
  }

  paint(change) {
    const { height, width } = this.store.network.input;
    const most = Math.max(1e-12, change.reduce((a, b) => Math.max(a, Math.abs(b)), 0));
    const scale = signedColours();
    paintMap(this.map, change, height, width, (value) => scale(value / most));
    this.key.replaceChildren(
      element("span", { class: "number" }, significant(-most)), colourBar(scale, -1, 1),
      element("span", { class: "number" }, `+${significant(most)}`), element("span", {}, "left: a lighter pixel lowers the weight; right: it raises it"));
  }

  paintNothing() {
    const { height, width } = this.store.network.input;
    const scale = signedColours();
    paintMap(this.map, new Float32Array(height * width), height, width, scale);
    this.key.replaceChildren();
    this.answer.textContent = "Not computed yet for this choice.";
  }

  summarise(change) {
    const { width } = this.store.network.input;
    const [up, down] = [Math.max(...change), Math.min(...change)];
    const most = Math.max(up, -down);
    const strong = change.filter((value) => Math.abs(value) > most / 10).length;
    const at = (value) => {
      const n = change.indexOf(value);
      return `row ${Math.floor(n / width) + 1}, column ${(n % width) + 1}`;
    };
    this.answer.textContent = most === 0
      ? "None of the pixels changes this weight."
      : `${strong} of ${change.length} pixels have more than a tenth of the strongest effect. A lighter pixel raises the weight most at ${at(up)} and lowers it most at ${at(down)}.`;
  }

  numbers() {
    if (!this.found) return null;
    const { width } = this.store.network.input;
    const rows = Array.from(this.found.change, (value, n) => [Math.floor(n / width) + 1, (n % width) + 1, value]);
    return { header: ["row", "column", "change of the weight per unit of the pixel"], rows };
  }
}
