/** Panel 3: votes, centroids, spreads and routing weights of the chosen parent capsule. */

import { button, calmMotion, element, labelledSelect, radioGroup, setOptions } from "../dom.js";
import { floatsOf } from "../base64.js";
import { fixed, percent, significant } from "../format.js";
import { votesChart } from "../drawing/votes_chart.js";
import { equations } from "./equation.js";
import { emptyPanel, panelFrame } from "./frame.js";

const STEP_MS = 700;

/** Where a vote cluster comes from. */
export function clusterName(layer, index) {
  const perChild = layer.clusters / layer.inChannels;
  if (layer.inChannels === 1) return `cluster ${index + 1}`;
  const child = Math.floor(index / perChild) + 1;
  return perChild === 1 ? `child ${child}` : `child ${child}, ${(index % perChild) + 1}`;
}

export class RoutingPanel {
  /** `onexplain()` is called when a routing weight is clicked. */
  constructor(session, onexplain) {
    this.session = session;
    this.store = session.store;
    this.onexplain = onexplain;
    this.frame = panelFrame({
      id: "routing",
      number: 3,
      title: "Routing",
      see: "Each row is one cluster of votes for the same parent capsule. The closer its dots lie together, the longer its bar: clusters that agree with themselves decide.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    this.shown = Infinity;
    this.buildControls();
    this.headline = element("p", { class: "headline" });
    this.chart = element("div", { class: "chart" });
    this.legend = element("p", { class: "legend" });
    this.formulas = element("div", { class: "formulas" });
    this.compared = element("p", { class: "compared number", role: "status" });
    this.onNetwork();
    session.listen((what) => (what === "votes" ? this.draw() : what === "other" || what === "result" ? this.compare() : null));
    this.store.listen((names) => this.onChange(names));
    new ResizeObserver(() => this.draw()).observe(this.chart);
  }

  buildControls() {
    const pick = (text, name) => labelledSelect(text, [], (value) => this.store.set({ [name]: Number(value) }));
    this.selects = {
      layer: pick("Layer", "layer"), parent: pick("Parent channel", "parent"), dim: pick("Dimension", "dim"),
      row: pick("Row", "row"), column: pick("Column", "column"),
    };
    this.ways = radioGroup("routing", "Weigh clusters", [["cluster", "by agreement"], ["uniform", "all equal"]],
      (routing) => this.store.set({ routing }));
    this.play = button("Play the sum", () => this.playSum());
    this.play.hidden = calmMotion();
    const selects = element("div", { class: "controls" }, ...Object.values(this.selects).map((each) => each.root));
    this.controls = element("div", { "data-unsaved": "" }, selects);
    this.ways.root.append(this.play);
    this.ways.root.dataset.unsaved = "";
  }

  onNetwork() {
    if (this.store.network.kind === "affine_cnn") {
      emptyPanel(this.frame.body, "A CNN does not route. Choose a capsule network at the top of the page.");
      return;
    }
    this.frame.body.replaceChildren(
      this.controls, this.ways.root, this.compared, this.headline, this.chart, this.legend, this.formulas);
    this.fillControls();
  }

  fillControls() {
    const { network, layer, state } = this.store;
    const numbers = (count) => Array.from({ length: count }, (_, n) => [String(n), String(n + 1)]);
    const isClass = network.kind === "class_capsules" && state.layer === network.layers.length - 1;
    const channels = isClass ? network.classes.map((name, n) => [String(n), name]) : numbers(layer.channels);
    const lists = {
      layer: numbers(network.layers.length), parent: channels, dim: numbers(layer.dim),
      row: numbers(layer.height), column: numbers(layer.width),
    };
    for (const [name, { select }] of Object.entries(this.selects)) {
      setOptions(select, lists[name]);
      select.value = String(state[name]);
    }
    this.ways.set(state.routing);
  }

  onChange(names) {
    if (names.has("network")) this.onNetwork();
    if (this.store.network.kind === "affine_cnn") return;
    this.fillControls();
    if (names.has("cluster") || names.has("theme")) this.draw();
    if (names.has("routing")) this.compared.textContent = "Computing the network again \u2026";
  }

  /** Show the sum one part at a time. */
  playSum() {
    clearInterval(this.timer);
    const count = this.session.votes?.weights.length ?? 0;
    this.shown = 0;
    this.draw();
    this.timer = setInterval(() => {
      this.shown += 1;
      this.draw();
      if (this.shown >= count) {
        clearInterval(this.timer);
        this.shown = Infinity;
      }
    }, STEP_MS);
  }

  /** Mean weights [classes][I] of the chosen parent and dimension, or null. */
  averages() {
    const { network, layer, state } = this.store;
    const packed = network.averages?.[state.layer];
    if (!packed || state.routing !== "cluster") return null;
    this.unpacked ??= new Map();
    if (!this.unpacked.has(packed)) this.unpacked.set(packed, floatsOf(packed));
    const values = this.unpacked.get(packed);
    const { clusters, channels, dim } = layer;
    const at = (n, i) => values[((n * clusters + i) * channels + state.parent) * dim + state.dim];
    return network.classes.map((_, n) => Array.from({ length: clusters }, (__, i) => at(n, i)));
  }

  draw() {
    const { votes, result } = this.session;
    const { state, layer } = this.store;
    const width = Math.floor(this.chart.clientWidth);
    if (!votes || !width || votes.weights.length !== layer.clusters) return;
    const focused = this.chart.contains(document.activeElement) ? document.activeElement.dataset.cluster : null;
    const names = Array.from(votes.weights, (_, i) => clusterName(layer, i));
    const averages = this.averages();
    const chart = votesChart(votes, {
      width, names, averages, predicted: result.prediction, chosen: state.cluster, shown: this.shown,
      label: `vote for dimension ${votes.place.dim + 1} of the parent`,
      onchoose: (cluster) => {
        this.store.set({ cluster });
        this.onexplain();
      },
    });
    this.chart.replaceChildren(chart);
    if (focused) chart.querySelector(`[data-cluster="${focused}"]`)?.focus();
    this.formulas.replaceChildren(
      element("h3", {}, `The same in numbers, for ${names[state.cluster]}`), equations(votes, state.cluster, state.routing));
    this.showHeadline(votes, names);
    this.legend.textContent = "Dot: a vote. Upright bar: the centroid. Band: one spread to each side. Dashed line: the parent. " +
      (averages ? "Ticks on the weights: means over the test images of each class, the long one of the predicted class. " : "") +
      "Click a row to ask why it has this weight.";
  }

  showHeadline({ weights, spreads, normalised }, names) {
    const best = weights.indexOf(Math.max(...weights));
    const after = Number.isFinite(normalised) ? ` After layer norm the parent\u2019s value is ${fixed(normalised)}.` : "";
    const text = this.store.state.routing === "uniform"
      ? `All ${weights.length} clusters count the same, whether their votes agree or not.`
      : `The votes of ${names[best]} lie closest together (spread ${significant(spreads[best])}), so it has the largest weight, ${fixed(weights[best])}.`;
    this.headline.textContent = text + after;
  }

  compare() {
    const { result, other } = this.session;
    const { network, state } = this.store;
    if (!result || !other || other.routing === state.routing || network.kind === "affine_cnn") return;
    const found = { [state.routing]: result, [other.routing]: other };
    const say = (way) => {
      const { prediction, probabilities } = found[way];
      return [element("strong", {}, network.classes[prediction]), ` ${percent(probabilities[prediction])}`];
    };
    const same = found.cluster.prediction === found.uniform.prediction;
    this.compared.replaceChildren("By agreement: ", ...say("cluster"), ". All equal: ", ...say("uniform"),
      same ? "." : ". The prediction changes.");
  }

  numbers() {
    const { votes } = this.session;
    if (!votes) return null;
    const names = Array.from(votes.weights, (_, i) => clusterName(this.store.layer, i));
    const cells = Array.from({ length: votes.k }, (_, k) => `vote ${k + 1}`);
    const rows = names.map((name, i) => [
      name, ...votes.votes.slice(i * votes.k, (i + 1) * votes.k), votes.centroids[i], votes.spreads[i], votes.weights[i],
      votes.weights[i] * votes.centroids[i],
    ]);
    return { header: ["cluster", ...cells, "centroid", "spread", "weight", "weight x centroid"], rows };
  }
}
