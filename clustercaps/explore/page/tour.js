/** A guided tour in seven steps. It sets the state, so that every step shows what it speaks of. */

import { button, calmMotion, element } from "./dom.js";

/** [panel, title, text, changes of the state]; `changes(network)` may use the network's sizes. */
export const TOUR = [
  ["input", "Start with a picture", "The network reads this image and gives every class a probability. Turn it with the slider and watch the bars.", () => ({ pixels: "", rotate: 0, right: 0, down: 0, noise: 0, routing: "cluster" })],
  ["network", "Layers of capsules", "A capsule is a small vector. Each square shows the capsules of one channel: the darker (in the dark theme, the lighter), the longer the vector.", () => ({ show: "length" })],
  ["network", "One capsule reads a window", "The marked capsule reads 3 by 3 positions of the layer below. The curves are as thick as the weights of its children.", (network) => middle(network, 1)],
  ["routing", "Votes that agree", "Each child channel casts several votes for the marked capsule. Dots that lie close together agree with each other.", (network) => ({ ...middle(network, 1), routing: "cluster" })],
  ["routing", "Agreement is weight", "The weight is one over the spread, divided by the sum over all clusters. Now all clusters count the same: compare the two predictions.", () => ({ routing: "uniform" })],
  ["why", "Why this weight?", "Press Compute, and each pixel is made a little lighter in turn. The map shows which pixels raise the weight.", () => ({ routing: "cluster", cluster: 0 })],
  ["dimensions", "What the capsules hold", "A decoder draws images from capsules. Move a dimension here, and transform whole channels in the last panel.", () => ({})],
];

function middle(network, wanted) {
  const layer = Math.min(wanted, Math.max(0, network.layers.length - 1));
  const { height, width } = network.layers[layer] ?? { height: 1, width: 1 };
  return { layer, row: height >> 1, column: width >> 1, parent: 0, dim: 0 };
}

export class Tour {
  constructor(store) {
    this.store = store;
    this.title = element("h2", { id: "tour-title", tabindex: "-1" });
    this.text = element("p", { id: "tour-text" });
    this.count = element("span", { class: "tour-count number" });
    this.back = button("Back", () => this.go(this.step - 1));
    this.next = button("Next", () => this.go(this.step + 1), { class: "primary" });
    this.end = button("End the tour", () => this.go(0));
    this.root = element("aside", { class: "tour", "aria-labelledby": "tour-title", "aria-describedby": "tour-text", hidden: true },
      this.count, this.title, this.text, element("div", { class: "buttons" }, this.back, this.next, this.end));
    this.root.addEventListener("keydown", (event) => event.key === "Escape" && this.go(0));
    store.listen((names) => names.has("step") && this.show());
    this.starter = button("Take the tour", () => this.go(1), { class: "primary" });
  }

  get step() {
    return this.store.state.step;
  }

  go(step) {
    const wanted = step > TOUR.length ? 0 : step;
    const [, , , changes] = TOUR[wanted - 1] ?? [null, "", "", () => ({})];
    this.store.set({ step: wanted, ...changes(this.store.network) });
    if (wanted) this.title.focus({ preventScroll: true });
    else this.starter.focus();
  }

  /** Show the step that the state is at; also when the page opens in the middle of the tour. */
  show() {
    document.querySelectorAll(".toured").forEach((panel) => panel.classList.remove("toured"));
    this.root.hidden = !this.step;
    document.body.classList.toggle("on-tour", this.step > 0);
    if (!this.step) return;
    const [panel, title, text] = TOUR[this.step - 1];
    this.title.textContent = title;
    this.text.textContent = text;
    this.count.textContent = `Step ${this.step} of ${TOUR.length}`;
    this.back.disabled = this.step === 1;
    this.next.textContent = this.step === TOUR.length ? "Done" : "Next";
    // Beside what it speaks of, not on it.
    this.root.classList.toggle("at-left", panel === "routing");
    const target = document.getElementById(`panel-${panel}`);
    target.classList.add("toured");
    // On a phone the tour covers half of the window: start at the figure.
    const spot = (innerWidth < 760 && target.querySelector(".headline")) || target;
    spot.scrollIntoView({ block: "start", behavior: calmMotion() ? "auto" : "smooth" });
  }
}
