/** The chosen network on the current picture, computed again whenever a choice changes. */

import { Superseded } from "../engine/client.js";
import { packPixels, unpackPixels } from "./base64.js";
import { showProblem } from "./dom.js";
import { ADJUSTMENTS, SELECTION, startSelection } from "./state.js";
import { storedPixels, warped } from "./warp.js";

const OF_INPUT = ["network", "image", "pixels", ...ADJUSTMENTS];

/** Run `work` now, or once more after the run under way: calls never pile up. */
export function onlyLatest(work) {
  let running = null;
  let again = false;
  const run = async () => {
    do {
      again = false;
      try {
        await work();
      } catch (error) {
        if (!(error instanceof Superseded)) showProblem(error.message);
      }
    } while (again);
    running = null;
  };
  return () => {
    again = true;
    running ??= run();
    return running;
  };
}

export class Session {
  constructor(engine, store) {
    this.engine = engine;
    this.store = store;
    this.listeners = [];
    // The picture before its adjustments, and after them.
    this.base = null;
    this.pixels = null;
    // Of the chosen routing, and of the other one.
    this.result = null;
    this.other = null;
    this.votes = null;
    this.loaded = new Map();
    this.compute = onlyLatest(() => this.computeResult());
    this.fetchVotes = onlyLatest(() => this.computeVotes());
    this.compare = onlyLatest(() => this.computeOther());
    store.listen((names) => this.onChange(names));
  }

  /** Call `listener(what)`: "pixels", "result", "votes", "other" or "failed". */
  listen(listener) {
    this.listeners.push(listener);
  }

  tell(what) {
    for (const listener of this.listeners) listener(what);
  }

  async start() {
    this.readPicture();
    await this.compute();
  }

  onChange(names) {
    const touches = (list) => list.some((name) => names.has(name));
    if (touches(OF_INPUT)) this.readPicture();
    if (names.has("network")) this.result = this.votes = this.other = null;
    if (touches([...OF_INPUT, "routing"])) this.compute();
    else if (touches(SELECTION) && this.result) this.fetchVotes();
  }

  readPicture() {
    const { network, state } = this.store;
    const { height, width, channels } = network.input;
    const own = state.pixels ? unpackPixels(state.pixels, channels * height * width) : null;
    this.base = own ?? storedPixels(network, state.image);
    this.pixels = warped(this.base, network.input, state);
    this.tell("pixels");
  }

  /** A picture of the reader's own, without adjustments. */
  setPicture(pixels) {
    this.store.set({ pixels: packPixels(pixels), rotate: 0, right: 0, down: 0, noise: 0 });
  }

  setNetwork(id) {
    const network = this.store.networks.find((each) => each.id === id);
    const adjusted = { rotate: 0, right: 0, down: 0, noise: 0 };
    this.store.set({ network: id, image: 0, pixels: "", ...adjusted, ...startSelection(network) });
  }

  /** Load each network once, when it is first needed. */
  load(id) {
    if (!this.loaded.has(id)) this.loaded.set(id, this.engine.load(id));
    return this.loaded.get(id);
  }

  async forward(id, pixels, options) {
    await this.load(id);
    return this.engine.forward(id, pixels, options);
  }

  async computeResult() {
    const { network, routing } = this.store.state;
    this.result = await this.forward(network, this.pixels, { routing });
    this.resultOf = network;
    showProblem("");
    this.tell("result");
    this.fetchVotes();
    this.compare();
  }

  get hasRouting() {
    return this.store.network.kind !== "affine_cnn";
  }

  async computeVotes() {
    const { network, layer, row, column, parent, dim } = this.store.state;
    if (!this.hasRouting || this.resultOf !== network) return;
    const place = { layer, y: row, x: column, channel: parent, dim };
    const votes = await this.engine.votes(network, place);
    this.votes = { ...votes, place };
    this.tell("votes");
  }

  async computeOther() {
    const { network, routing } = this.store.state;
    if (!this.hasRouting || this.resultOf !== network) return;
    const other = routing === "cluster" ? "uniform" : "cluster";
    const found = await this.forward(network, this.pixels, { routing: other, keep: false });
    this.other = { ...found, routing: other };
    this.tell("other");
  }
}
