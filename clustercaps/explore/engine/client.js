// The engine for the page: every call is a message to the worker and returns a promise.

/** A live call was replaced by a newer one before it started. */
export class Superseded extends Error {
  constructor() {
    super("replaced by a newer call");
    this.name = "Superseded";
  }
}

export class Engine {
  /** Start a worker from the source in the page; no file is read, so that file:// works. */
  static async start() {
    const source = document.getElementById("engine-worker").textContent;
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const worker = new Worker(address);
    return new Engine(worker, window.EXPLORER.networks);
  }

  constructor(worker, networks) {
    this.worker = worker;
    this.networks = new Map(networks.map((network) => [network.id, network]));
    this.loaded = new Map();
    this.calls = new Map();
    // Key of a live call -> { running, next }.
    this.live = new Map();
    this.count = 0;
    worker.onmessage = ({ data }) => this.answer(data);
    worker.onerror = (event) => this.fail(new Error(`the engine stopped: ${event.message}`));
  }

  load(id) {
    if (!this.loaded.has(id)) {
      const record = this.networks.get(id);
      if (!record) return Promise.reject(new Error(`there is no network ${id}`));
      const { images, averages, card, ...needed } = record;
      this.loaded.set(id, this.send("load", id, { record: needed }));
    }
    return this.loaded.get(id);
  }

  /** With `keep: false`, later calls still refer to the forward pass before this one. */
  forward(id, pixels, { routing, keep, live } = {}) {
    return this.call("forward", id, { pixels, routing, keep }, live);
  }

  votes(id, { live, ...place }) {
    return this.call("votes", id, place, live);
  }

  weights(id, { layer, live }) {
    return this.call("weights", id, { layer }, live);
  }

  decode(id, features, { label, live } = {}) {
    return this.call("decode", id, { features, label }, live);
  }

  transform(id, { live, ...change }) {
    return this.call("transform", id, change, live);
  }

  async sensitivity(id, place, onProgress = () => {}) {
    await this.load(id);
    return this.send("sensitivity", id, place, ({ fraction, change }) => onProgress(fraction, change));
  }

  /** Stop a running sensitivity call, which rejects with Superseded. */
  cancel() {
    return this.send("cancel", null, {});
  }

  /** End the worker; unanswered calls reject. */
  stop() {
    this.worker.terminate();
    this.fail(new Error("the engine was stopped"));
  }

  async call(method, id, options, live) {
    await this.load(id);
    return live ? this.latest(method, id, options) : this.send(method, id, options);
  }

  /** At most one call runs and one waits; a newer one takes the place of the one that waits. */
  latest(method, id, options) {
    const key = `${method} ${id}`;
    if (!this.live.has(key)) this.live.set(key, { running: false, next: null });
    const lane = this.live.get(key);
    return new Promise((resolve, reject) => {
      lane.next?.reject(new Superseded());
      lane.next = { method, id, options, resolve, reject };
      if (!lane.running) this.advance(lane);
    });
  }

  advance(lane) {
    const { next } = lane;
    lane.next = null;
    lane.running = next !== null;
    if (!next) return;
    this.send(next.method, next.id, next.options)
      .then(next.resolve, next.reject)
      .finally(() => this.advance(lane));
  }

  send(method, network, options, onProgress = () => {}) {
    const id = ++this.count;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject, onProgress });
      this.worker.postMessage({ id, method, network, options });
    });
  }

  answer({ id, result, error, progress }) {
    const call = this.calls.get(id);
    if (!call) return;
    if (progress) {
      call.onProgress(progress);
      return;
    }
    this.calls.delete(id);
    if (!error) call.resolve(result);
    else call.reject(error.name === "Superseded" ? new Superseded() : new Error(error.message));
  }

  fail(error) {
    for (const call of this.calls.values()) call.reject(error);
    this.calls.clear();
  }
}
