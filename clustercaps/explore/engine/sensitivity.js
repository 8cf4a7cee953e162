// How a routing weight changes with every pixel of the image, by finite differences.
//
// A pixel changes few positions of the first layer, so only those are computed again. Later layers
// are computed in full: the layer norm passes a change on to all positions.

// Step in units of the pixels, whose values are 0 to 1.
const STEP = 1 / 64;

export class Sensitivity {
  /**
   * @param network after `forward`
   * @param place { layer, y, x, channel, dim, cluster }
   */
  constructor(network, place) {
    this.network = network;
    this.place = place;
    this.target = network.capsuleLayer(place);
    this.routing = network.used;
    this.image = network.image.slice();
    this.before = network.layers.slice(0, place.layer);
    this.states = this.before.map((layer) => layer.newState());
    let values = this.image;
    this.before.forEach((layer, n) => (values = layer.run(values, this.routing, this.states[n])));
    this.start = this.weight(values);
    this.firstRaw = this.states[0]?.raw.slice();
    const { height, width } = network.input;
    this.change = new Float32Array(height * width);
    this.done = 0;
  }

  /** The routing weight, from the children of its layer. */
  weight(children) {
    return this.target.inspect(children, this.routing, this.place).weights[this.place.cluster];
  }

  get fraction() {
    return this.done / this.change.length;
  }

  /** Compute the next pixel; false after the last one. */
  next() {
    if (this.done === this.change.length) return false;
    this.change[this.done] = (this.weight(this.childrenWith(this.done)) - this.start) / STEP;
    this.done++;
    return true;
  }

  /** The children of the layer if one pixel were brighter by a step, in all colours. */
  childrenWith(pixel) {
    const { height, width, channels, sd } = this.network.input;
    const brighter = this.image.slice();
    for (let n = 0; n < channels; n++) brighter[n * height * width + pixel] += STEP / sd[n];
    if (!this.before.length) return brighter;
    const y = Math.floor(pixel / width);
    this.updateFirst(brighter, y, pixel - y * width);
    let values = this.states[0].capsules;
    for (let n = 1; n < this.before.length; n++) {
      values = this.before[n].run(values, this.routing, this.states[n]);
    }
    return values;
  }

  /** Route the positions of the first layer whose windows contain a pixel. */
  updateFirst(image, y, x) {
    const [layer] = this.before;
    const [state] = this.states;
    const { kernel, stride, padding, height, width } = layer.shape;
    const range = (place, limit) => [
      Math.max(0, Math.ceil((place + padding - kernel + 1) / stride)),
      Math.min(limit - 1, Math.floor((place + padding) / stride)),
    ];
    const [top, bottom] = range(y, height);
    const [left, right] = range(x, width);
    state.raw.set(this.firstRaw);
    layer.vote.read(image);
    for (let row = top; row <= bottom; row++) {
      if (right >= left) layer.route(row * width + left, right - left + 1, this.routing, state);
    }
    layer.normalise(state);
  }
}
