// A capsule layer: votes from a grouped convolution, routing, layer norm (routing/cluster.py).
//
// Axes: I vote clusters of a parent, K votes of a cluster, J = channels * dim parents' entries,
// P positions of the feature map. Capsules are [J, P], routing weights [I, J, P].

import { BLOCK, Convolution } from "./convolution.js";

// Added to the variance of the votes.
const EPS = 1e-6;
// Added to the variance in the layer norm.
const NORM_EPS = 1e-5;

export class CapsuleLayer {
  /**
   * @param shape one of the `layers` of a network
   * @param weight, bias of the votes
   * @param norm { weight, bias } [dim, height, width], or null for no norm
   */
  constructor(shape, weight, bias, norm) {
    const { inChannels, inDim, channels, dim, votes, clusters } = shape;
    this.shape = shape;
    this.entries = channels * dim;
    this.norm = norm;
    this.vote = new Convolution(weight, bias, {
      inChannels: inChannels * inDim,
      outChannels: clusters * votes * this.entries,
      groups: inChannels,
      kernel: shape.kernel,
      stride: shape.stride,
      padding: shape.padding,
      inHeight: shape.inHeight,
      inWidth: shape.inWidth,
    });
    this.total = new Float64Array(BLOCK);
    this.sum = new Float64Array(BLOCK);
    this.confidence = new Float64Array(clusters * BLOCK);
  }

  /** Memory for the results: capsules before and after the norm, and routing weights. */
  newState() {
    const size = this.entries * this.vote.positions;
    return {
      raw: new Float32Array(size),
      capsules: new Float32Array(size),
      weights: new Float32Array(this.shape.clusters * size),
    };
  }

  /** Children [inChannels, inDim, inHeight, inWidth] to parents. */
  run(children, routing, state) {
    this.vote.read(children);
    this.route(0, this.vote.positions, routing, state);
    this.normalise(state);
    return state.capsules;
  }

  /** Route `count` positions from `first` on; `vote.read` has taken the children. */
  route(first, count, routing, state) {
    for (const end = first + count; first < end; first += BLOCK) {
      const some = Math.min(BLOCK, end - first);
      this.vote.compute(first, some);
      for (let entry = 0; entry < this.entries; entry++) this.routeEntry(entry, first, some, routing, state);
    }
  }

  routeEntry(entry, first, count, routing, state) {
    const { entries, total, sum, confidence, vote } = this;
    const { votes, clusters } = this.shape;
    const { out, positions } = vote;
    const step = entries * BLOCK;
    const share = 1 / votes;
    total.fill(0);
    sum.fill(0);
    for (let cluster = 0; cluster < clusters; cluster++) {
      const start = this.firstVote(cluster, entry) * BLOCK;
      for (let p = 0; p < count; p++) {
        let votesSum = 0;
        let squares = 0;
        for (let k = 0, at = start + p; k < votes; k++, at += step) {
          const vote = out[at];
          votesSum += vote;
          squares += vote * vote;
        }
        const centroid = votesSum * share;
        // One pass is exact enough in 64 bits; rounding must not make the variance negative.
        const variance = Math.max(0, squares * share - centroid * centroid);
        // exp(-log spread) = 1 / spread.
        const trust = routing === "uniform" ? 1 : 1 / Math.sqrt(variance + EPS);
        confidence[cluster * BLOCK + p] = trust;
        total[p] += trust;
        sum[p] += trust * centroid;
      }
    }
    const to = entry * positions + first;
    for (let p = 0; p < count; p++) {
      total[p] = 1 / total[p];
      state.raw[to + p] = sum[p] * total[p];
    }
    for (let cluster = 0; cluster < clusters; cluster++) {
      const place = cluster * entries * positions + to;
      for (let p = 0; p < count; p++) state.weights[place + p] = confidence[cluster * BLOCK + p] * total[p];
    }
  }

  /** Row in `vote.out` of the first vote of a cluster for an entry; the next are `entries` apart. */
  firstVote(cluster, entry) {
    const perChild = this.shape.clusters / this.shape.inChannels;
    const child = Math.floor(cluster / perChild);
    return child * this.vote.groupRows + (cluster - child * perChild) * this.shape.votes * this.entries + entry;
  }

  /** Layer norm over dimensions and positions of every channel; channels share scale and shift. */
  normalise(state) {
    const { raw, capsules } = state;
    if (!this.norm) {
      capsules.set(raw);
      return;
    }
    const { weight, bias } = this.norm;
    const size = this.shape.dim * this.vote.positions;
    for (let start = 0; start < raw.length; start += size) {
      let mean = 0;
      for (let n = 0; n < size; n++) mean += raw[start + n];
      mean /= size;
      let variance = 0;
      for (let n = 0; n < size; n++) variance += (raw[start + n] - mean) ** 2;
      const scale = 1 / Math.sqrt(variance / size + NORM_EPS);
      for (let n = 0; n < size; n++) capsules[start + n] = (raw[start + n] - mean) * scale * weight[n] + bias[n];
    }
  }

  /** All votes for one entry of one parent, with everything that follows from them. */
  inspect(children, routing, { y, x, channel, dim }) {
    const { votes: k, clusters, width } = this.shape;
    const entry = channel * this.shape.dim + dim;
    this.vote.read(children);
    this.vote.compute(y * width + x, 1);
    const votes = new Float32Array(clusters * k);
    const centroids = new Float32Array(clusters);
    const spreads = new Float32Array(clusters);
    const trusts = new Float64Array(clusters);
    let capsule = 0;
    let total = 0;
    for (let cluster = 0; cluster < clusters; cluster++) {
      const row = this.firstVote(cluster, entry);
      const own = Array.from({ length: k }, (_, n) => this.vote.out[(row + n * this.entries) * BLOCK]);
      votes.set(own, cluster * k);
      const centroid = own.reduce((a, b) => a + b) / k;
      const variance = own.reduce((a, b) => a + (b - centroid) ** 2, 0) / k;
      centroids[cluster] = centroid;
      spreads[cluster] = Math.sqrt(variance + EPS);
      trusts[cluster] = routing === "uniform" ? 1 : 1 / Math.sqrt(variance + EPS);
      total += trusts[cluster];
      capsule += trusts[cluster] * centroid;
    }
    const weights = Float32Array.from(trusts, (trust) => trust / total);
    return { votes, centroids, spreads, weights, capsule: capsule / total, k, clusters };
  }
}
