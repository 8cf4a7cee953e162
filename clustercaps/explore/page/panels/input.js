/** Panel 1: choose, draw, drop or move a picture, and see the class probabilities. */

import { announce, button, element, labelledSelect, labelledSlider, setOptions } from "../dom.js";
import { fixed, percent, signed } from "../format.js";
import { readPicture } from "../pictures.js";
import { ADJUSTMENTS } from "../state.js";
import { classBars, setBars } from "./bars.js";
import { panelFrame } from "./frame.js";
import { DrawingPad } from "./pad.js";
import { Thumbnails } from "./thumbnails.js";

const WAYS = { cluster: "by agreement", uniform: "all equal" };

export class InputPanel {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.frame = panelFrame({
      id: "input",
      number: 1,
      title: "Input",
      see: "Choose an image, draw on it or drop one of your own. The bars follow at once.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    this.pad = new DrawingPad(session, (file) => this.take(file));
    this.note = element("p", { class: "note", role: "status" });
    this.verdict = element("p", { class: "verdict" });
    this.chooser = this.buildChooser();
    this.sliders = this.buildSliders();
    this.barsHolder = element("div", {});
    this.legend = element("p", { class: "legend" });
    const sliders = element("div", { class: "sliders" }, ...Object.values(this.sliders).map((s) => s.root));
    const extra = element("div", { class: "buttons", "data-unsaved": "" }, this.buildFileButton(),
      button("Jitter", () => this.jitter(), { title: "A small random rotation and shift" }),
      button("Reset", () => this.reset()));
    this.frame.body.append(
      this.pad.root, this.note, this.verdict, this.barsHolder, this.legend,
      element("h3", { "data-unsaved": "" }, "Test images"), this.chooser,
      element("h3", {}, "Move it"), sliders, extra,
    );
    addEventListener("paste", (event) => this.onPaste(event));
    this.onNetwork();
    session.listen((what) => this.onResult(what));
    this.store.listen((names) => this.onChange(names));
  }

  buildChooser() {
    const filter = labelledSelect("Class", [], (value) => this.showClass(value));
    this.filter = filter.select;
    this.thumbnails = new Thumbnails("Test images", 36, (image) => {
      this.note.textContent = "";
      this.store.set({ image, pixels: "" });
    });
    return element("div", { class: "chooser", "data-unsaved": "" }, filter.root, this.thumbnails.root);
  }

  buildSliders() {
    const { state } = this.store;
    const make = (name, text, min, max, step, show) =>
      labelledSlider(text, { min, max, step, value: state[name], show, oninput: (v) => this.store.set({ [name]: v }) });
    return {
      rotate: make("rotate", "Rotate", -180, 180, 1, (v) => `${signed(v, 0)}\u00b0`),
      right: make("right", "Shift right", -8, 8, 0.5, (v) => `${signed(v, 1)} px`),
      down: make("down", "Shift down", -8, 8, 0.5, (v) => `${signed(v, 1)} px`),
      noise: make("noise", "Noise", 0, 0.5, 0.01, (v) => fixed(v, 2)),
    };
  }

  buildFileButton() {
    const file = element("input", { type: "file", accept: "image/*", class: "hidden", tabindex: "-1", "aria-label": "Picture file" });
    file.addEventListener("change", () => {
      if (file.files[0]) this.take(file.files[0]);
      file.value = "";
    });
    return element("span", {}, file, button("Open a picture", () => file.click()));
  }

  async take(file) {
    try {
      const { pixels, note } = await readPicture(file, this.store.network.input);
      this.session.setPicture(pixels);
      this.say(`Your picture: ${note}`);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  onPaste(event) {
    const item = [...(event.clipboardData?.items ?? [])].find((each) => each.kind === "file");
    if (item) this.take(item.getAsFile());
    else if (!event.target.closest?.("input")) this.say("There is no picture on the clipboard.", true);
  }

  say(text, wrong = false) {
    this.note.textContent = text;
    this.note.classList.toggle("refused", wrong);
  }

  jitter() {
    const spread = (most, step) => step * Math.round(((2 * Math.random() - 1) * most) / step);
    this.store.set({ rotate: spread(15, 1), right: spread(3, 0.5), down: spread(3, 0.5) });
  }

  reset() {
    this.say("");
    this.store.set({ pixels: "", ...Object.fromEntries(ADJUSTMENTS.map((name) => [name, 0])) });
  }

  onNetwork() {
    const { network } = this.store;
    const wrong = network.images.some(({ label, predicted }) => predicted !== label);
    const classes = network.classes.map((name, n) => [String(n), name]);
    setOptions(this.filter, [["all", "All"], ...(wrong ? [["wrong", "Wrong predictions"]] : []), ...classes]);
    this.filter.value = "all";
    this.bars = classBars(network.classes);
    this.barsHolder.replaceChildren(this.bars.root);
    this.showClass("all");
  }

  showClass(value) {
    const { network, state } = this.store;
    const fits = ({ label, predicted }) =>
      value === "all" || (value === "wrong" ? predicted !== label : label === Number(value));
    const indices = network.images.map((_, n) => n).filter((n) => fits(network.images[n]));
    this.thumbnails.fill(network, indices);
    this.thumbnails.mark(state.pixels ? -1 : state.image);
  }

  onChange(names) {
    if (names.has("network")) this.onNetwork();
    const { state } = this.store;
    for (const name of ADJUSTMENTS) if (names.has(name)) this.sliders[name].set(state[name]);
    if (names.has("image") || names.has("pixels")) this.thumbnails.mark(state.pixels ? -1 : state.image);
  }

  onResult(what) {
    if (what !== "result" && what !== "other") return;
    const { result, other, store } = this.session;
    const comparable = what === "other" && other && other.routing !== store.state.routing;
    setBars(this.bars, [...result.probabilities], comparable ? [...other.probabilities] : null);
    this.legend.textContent = comparable
      ? `Bars: clusters weighted ${WAYS[store.state.routing]}. The thin mark: ${WAYS[other.routing]}.`
      : "";
    this.legend.hidden = !comparable;
    if (what === "result") this.showVerdict(result);
  }

  showVerdict(result) {
    const { network, state } = this.store;
    const name = network.classes[result.prediction];
    const parts = [element("strong", {}, name), `predicted with ${percent(result.probabilities[result.prediction])}`];
    const image = network.images[state.image];
    if (!state.pixels && image) {
      const right = image.label === result.prediction;
      parts.push(right ? ", correct" : `, wrong: it is \u201c${network.classes[image.label]}\u201d`);
    }
    this.verdict.replaceChildren(...parts);
    if (this.lastVerdict !== undefined && this.lastVerdict !== name) announce(`Prediction: ${name}`);
    this.lastVerdict = name;
  }

  numbers() {
    const { result, other } = this.session;
    if (!result) return null;
    const rows = this.store.network.classes.map((name, n) => [
      name, result.logits[n], result.probabilities[n], other ? other.probabilities[n] : "",
    ]);
    return { header: ["class", "logit", "probability", "probability with the other routing"], rows };
  }
}
