/** Panel 2: the layers as maps, one row per capsule channel. */

import { announce, element, labelledSelect, setOptions, svgElement } from "../dom.js";
import { fixed, percent, plural, significant } from "../format.js";
import { lengthColours, paintMap, paintPicture, signedColours, sizeCanvas, themeColour } from "../drawing/colour.js";
import { colourBar } from "../drawing/save.js";
import { countPositions, reachOf } from "../windows.js";
import { emptyPanel, panelFrame } from "./frame.js";
import { walk } from "./grid_keys.js";

const LARGEST_SIDE = 52;
const COLUMN_HEIGHT = 4 * LARGEST_SIDE + 3 * 12;

export class NetworkPanel {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.frame = panelFrame({
      id: "network",
      number: 2,
      title: "Network",
      see: "Every square is one capsule channel. Point at a position: its window lights up in the layer below, its parents in the layer above. Click to look inside.",
      numbers: () => this.numbers(),
    });
    this.root = this.frame.root;
    // The position under the pointer or the focus: {layer, parent, row, column}.
    this.pointed = null;
    this.show = labelledSelect("Show", [], (value) => this.store.set({ show: value }));
    this.grid = element("div", { class: "layers" });
    this.links = svgElement("svg", { class: "links", "aria-hidden": "true" });
    this.holder = element("div", { class: "layers-holder" }, this.grid, this.links);
    this.key = element("div", { class: "legend colour-key" });
    this.status = element("p", { class: "readout number" });
    this.card = element("dl", { class: "card" });
    this.hint = element("p", { class: "hint", id: "network-hint", "data-unsaved": "" },
      "Keyboard: arrow keys move over the maps, Enter chooses.");
    this.onNetwork();
    session.listen((what) => what === "pixels" || this.paint());
    this.store.listen((names) => this.onChange(names));
    new ResizeObserver(() => this.drawLinks()).observe(this.holder);
  }

  onNetwork() {
    const { network } = this.store;
    this.pointed = null;
    if (network.kind === "affine_cnn") {
      emptyPanel(this.frame.body, "This network has no capsules, so there is nothing to route. It is the CNN that the panel Transform compares with. Choose a capsule network at the top of the page.");
      return;
    }
    const controls = element("div", { class: "controls", "data-unsaved": "" }, this.show.root);
    this.frame.body.replaceChildren(controls, this.holder, this.key, this.status, this.hint, this.card);
    const dims = Math.max(...network.layers.map((layer) => layer.dim));
    const options = Array.from({ length: dims }, (_, n) => [String(n + 1), `dimension ${n + 1}`]);
    setOptions(this.show.select, [["length", "capsule length"], ...options]);
    this.show.select.value = this.store.state.show;
    this.buildGrid();
    this.fillCard();
    this.mark();
  }

  buildGrid() {
    const { network } = this.store;
    const { input, layers } = network;
    this.image = element("canvas", { class: "map-image", "aria-hidden": "true" });
    sizeCanvas(this.image, LARGEST_SIDE);
    this.maps = layers.map((layer, index) => this.buildLayer(layer, index));
    const head = (text, { height, width }) =>
      element("div", { class: "layer-head" }, text, element("small", { class: "number" }, `${height}\u00d7${width}`));
    const columns = this.maps.map((maps, n) =>
      element("div", { class: "layer", role: "group", "aria-label": `Layer ${n + 1}` },
        head(String(n + 1), layers[n]), element("div", { class: "layer-maps" }, ...maps.map((map) => map.root))));
    this.grid.replaceChildren(
      element("div", { class: "layer" }, head("Image", input), element("div", { class: "layer-maps" }, this.image)),
      ...columns);
  }

  buildLayer(layer, index) {
    const gap = layer.channels > 4 ? 3 : 12;
    const fits = Math.floor((COLUMN_HEIGHT - gap * (layer.channels - 1)) / layer.channels);
    const side = Math.max(14, Math.min(LARGEST_SIDE, fits));
    return Array.from({ length: layer.channels }, (_, parent) => {
      const canvas = element("canvas", { "aria-hidden": "true" });
      sizeCanvas(canvas, side);
      const root = element("button", { type: "button", class: "map", "aria-describedby": "network-hint" }, canvas);
      const place = (event) => {
        const box = canvas.getBoundingClientRect();
        const cell = (offset, size, count) => Math.max(0, Math.min(count - 1, Math.floor((offset / size) * count)));
        const row = cell(event.clientY - box.top, box.height, layer.height);
        return { layer: index, parent, row, column: cell(event.clientX - box.left, box.width, layer.width) };
      };
      root.addEventListener("pointermove", (event) => this.point(place(event)));
      root.addEventListener("pointerleave", () => this.point(null));
      root.addEventListener("focus", () => this.point(this.focusPlace(index, parent)));
      root.addEventListener("blur", () => this.point(null));
      root.addEventListener("keydown", (event) => this.onKey(event));
      root.addEventListener("click", (event) => {
        // Enter and the space bar come as clicks without a pointer.
        const chosen = event.detail === 0 ? this.pointed : place(event);
        if (chosen) this.choose(chosen);
      });
      return { root, canvas, side };
    });
  }

  /** The chosen position if it is on this map, else the middle. */
  focusPlace(layer, parent) {
    const { state, network } = this.store;
    if (this.walked?.layer === layer && this.walked.parent === parent) return this.walked;
    if (state.layer === layer && state.parent === parent) return { layer, parent, row: state.row, column: state.column };
    const { height, width } = network.layers[layer];
    return { layer, parent, row: height >> 1, column: width >> 1 };
  }

  choose({ layer, parent, row, column }) {
    this.store.set({ layer, parent, row, column });
    announce(`Chosen: ${this.describe({ layer, parent, row, column })}`);
  }

  onKey(event) {
    const next = this.pointed && walk(event.key, this.pointed, this.store.network.layers);
    if (!next) return;
    event.preventDefault();
    this.walked = next;
    const { root } = this.maps[next.layer][next.parent];
    if (document.activeElement === root) this.point(next);
    else root.focus();
    announce(this.describe(next));
  }

  point(place) {
    this.pointed = place;
    this.paint();
  }

  mark() {
    const { layer, parent } = this.store.state;
    this.maps.forEach((maps, n) => maps.forEach(({ root }, c) => {
      const chosen = n === layer && c === parent;
      root.setAttribute("aria-pressed", String(chosen));
      root.tabIndex = chosen ? 0 : -1;
      root.setAttribute("aria-label", this.mapName(n, c));
    }));
  }

  mapName(layer, channel) {
    const { network } = this.store;
    const isClass = network.kind === "class_capsules" && layer === network.layers.length - 1;
    return `Layer ${layer + 1}, channel ${channel + 1}${isClass ? ` (${network.classes[channel]})` : ""}`;
  }

  onChange(names) {
    if (names.has("network")) this.onNetwork();
    else if (this.store.network.kind === "affine_cnn") return;
    this.show.select.value = this.store.state.show;
    if (names.has("layer") || names.has("parent")) this.mark();
    this.walked = null;
    this.paint();
  }

  /** Values of one channel [H, W]: capsule lengths, or one dimension. */
  values(layer, channel) {
    const { capsules } = this.session.result.layers[layer];
    const { dim, height, width } = this.store.network.layers[layer];
    const area = height * width;
    const start = channel * dim * area;
    const { show } = this.store.state;
    if (show !== "length") {
      const chosen = Math.min(dim, Number(show)) - 1;
      return capsules.subarray(start + chosen * area, start + (chosen + 1) * area);
    }
    return Float32Array.from({ length: area }, (_, n) => {
      let sum = 0;
      for (let d = 0; d < dim; d++) sum += capsules[start + d * area + n] ** 2;
      return Math.sqrt(sum);
    });
  }

  paint() {
    const { result, pixels } = this.session;
    const { network, state } = this.store;
    if (network.kind === "affine_cnn" || !result || this.session.resultOf !== network.id) return;
    paintPicture(this.image, pixels, network.input);
    const bylength = state.show === "length";
    const all = this.maps.map((maps, n) => maps.map((_, c) => this.values(n, c)));
    // Each layer has its own scale: the last one would be pale beside the first.
    const largest = all.map((layer) => Math.max(1e-9, ...layer.map((values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0))));
    const scale = bylength ? lengthColours() : signedColours();
    const place = this.pointed ?? state;
    const reach = reachOf(network.layers, place.layer, place.row, place.column);
    this.maps.forEach((maps, n) => maps.forEach(({ canvas }, c) => {
      const { height, width } = network.layers[n];
      paintMap(canvas, all[n][c], height, width, (value) => scale(value / largest[n]));
      if (n === place.layer && c === place.parent) {
        outline(canvas, { rows: [place.row, place.row], columns: [place.column, place.column] }, height, width, "--accent-mark");
      }
      if (n === place.layer - 1) outline(canvas, reach.below, height, width, "--accent-mark");
      if (n === place.layer + 1) outline(canvas, reach.above, height, width, "--second-mark");
    }));
    if (place.layer === 0) outline(this.image, reach.below, network.input.height, network.input.width, "--accent-mark");
    this.showKey(scale, bylength, largest[place.layer], place.layer);
    this.status.textContent = this.describe(place, reach);
    this.drawLinks();
  }

  showKey(scale, bylength, largest, layer) {
    const [low, high] = bylength ? [0, 1] : [-1, 1];
    const first = bylength ? "0" : significant(-largest);
    const name = bylength ? "capsule length" : `value of dimension ${this.store.state.show}`;
    this.key.replaceChildren(
      element("span", { class: "number" }, first), colourBar(scale, low, high),
      element("span", { class: "number" }, significant(largest)), element("span", {}, `${name}, layer ${layer + 1}; each layer has its own scale`));
  }

  describe({ layer, parent, row, column }, reach = reachOf(this.store.network.layers, layer, row, column)) {
    const { layers } = this.store.network;
    const value = this.session.result ? this.values(layer, parent)[row * layers[layer].width + column] : NaN;
    const what = this.store.state.show === "length" ? "length" : `dimension ${this.store.state.show}`;
    const above = reach.above ? ` It is read by ${plural(countPositions(reach.above), "position")} of layer ${layer + 2}.` : "";
    const below = layer ? `layer ${layer}` : "the image";
    return `${this.mapName(layer, parent)}, row ${row + 1}, column ${column + 1}: ${what} ${fixed(value)}. ` +
      `It reads ${plural(countPositions(reach.below), "position")} of ${below}.${above}`;
  }

  /** Curves from the children to the chosen parent, as thick as their routing weights. */
  drawLinks() {
    const { votes } = this.session;
    const { state, network } = this.store;
    if (network.kind === "affine_cnn" || !this.maps) return;
    const box = this.holder.getBoundingClientRect();
    this.links.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    this.links.replaceChildren();
    const fits = votes && votes.place.layer === state.layer && votes.place.channel === state.parent;
    if (!fits || this.pointed || !box.width) return;
    const side = (node, end) => {
      const at = node.getBoundingClientRect();
      return [(end === "right" ? at.right : at.left) - box.left, (at.top + at.bottom) / 2 - box.top];
    };
    const [x1, y1] = side(this.maps[state.layer][state.parent].canvas, "left");
    const children = state.layer ? this.maps[state.layer - 1].map((map) => map.canvas) : [this.image];
    const perChild = votes.weights.length / children.length;
    children.forEach((child, n) => {
      const weight = votes.weights.slice(n * perChild, (n + 1) * perChild).reduce((a, b) => a + b, 0);
      const [x0, y0] = side(child, "right");
      const middle = (x0 + x1) / 2;
      this.links.append(svgElement("path", {
        d: `M${x0} ${y0} C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`, "stroke-width": 0.5 + 9 * weight, class: "link",
      }));
    });
  }

  fillCard() {
    const { card } = this.store.network;
    const lines = [
      ["Trained on", card.data], ["Recipe", card.recipe && `${card.recipe}, ${plural(card.epochs, "epoch")}`],
      ["Test error", Number.isFinite(card.error) ? percent(card.error / 100, 2) : null],
      ["Learnable parameters", card.parameters?.toLocaleString("en-GB")],
    ].filter(([, value]) => value);
    this.card.replaceChildren(...lines.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", { class: "number" }, String(value)))));
  }

  numbers() {
    const { result } = this.session;
    if (!result || this.store.network.kind === "affine_cnn") return null;
    const rows = [];
    this.store.network.layers.forEach(({ channels, dim, height, width }, layer) => {
      result.layers[layer].capsules.forEach((value, n) => {
        const at = [Math.floor(n / (dim * height * width)), Math.floor(n / (height * width)) % dim];
        rows.push([layer + 1, at[0] + 1, at[1] + 1, (Math.floor(n / width) % height) + 1, (n % width) + 1, value]);
      });
    });
    return { header: ["layer", "channel", "dimension", "row", "column", "value"], rows };
  }
}

/** A frame around positions of a map, in two colours so that it shows on any ground. */
function outline(canvas, box, height, width, colour) {
  if (!box || box.rows[0] > box.rows[1] || box.columns[0] > box.columns[1]) return;
  const context = canvas.getContext("2d");
  const [cellY, cellX] = [canvas.height / height, canvas.width / width];
  const [x, y] = [box.columns[0] * cellX, box.rows[0] * cellY];
  const [w, h] = [(box.columns[1] - box.columns[0] + 1) * cellX, (box.rows[1] - box.rows[0] + 1) * cellY];
  for (const [name, line, inset] of [["--map-frame", 6, 1], [colour, 3, 1]]) {
    context.lineWidth = line;
    context.strokeStyle = `rgb(${themeColour(name).join(",")})`;
    context.strokeRect(x + inset, y + inset, Math.max(2, w - 2 * inset), Math.max(2, h - 2 * inset));
  }
}
