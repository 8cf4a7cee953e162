// Grouped convolution, a block of positions at a time.
//
// Windows are copied into a panel [taps, positions] and multiplied by weights that are packed once.
// Everything is in 64 bits: JavaScript computes in 64 bits, and converting every load costs time.

// Positions of a block; a multiple of COLUMNS.
export const BLOCK = 32;
// The product keeps ROWS x COLUMNS sums in registers.
const ROWS = 4;
const COLUMNS = 2;

export class Convolution {
  /**
   * @param weight [outChannels, inChannels / groups, kernel, kernel]
   * @param bias [outChannels] or null
   * @param shape { inChannels, outChannels, groups, kernel, stride, padding, inHeight, inWidth }
   */
  constructor(weight, bias, shape) {
    Object.assign(this, shape);
    const { groups, kernel, stride, padding, inHeight, inWidth } = shape;
    this.taps = (this.inChannels / groups) * kernel * kernel;
    this.rows = this.outChannels / groups;
    this.tiles = Math.ceil(this.rows / ROWS);
    // Rows of a group in `out`, with those that fill the last tile.
    this.groupRows = this.tiles * ROWS;
    this.height = Math.floor((inHeight + 2 * padding - kernel) / stride) + 1;
    this.width = Math.floor((inWidth + 2 * padding - kernel) / stride) + 1;
    this.positions = this.height * this.width;
    this.paddedWidth = inWidth + 2 * padding;
    this.paddedSize = (inHeight + 2 * padding) * this.paddedWidth;
    this.padded = new Float64Array(this.inChannels * this.paddedSize);
    this.panel = new Float64Array(this.taps * BLOCK);
    /** Results of the last block [groups * groupRows, BLOCK]. */
    this.out = new Float64Array(groups * this.groupRows * BLOCK);
    this.weight = this.pack(weight);
    this.bias = new Float64Array(groups * this.groupRows);
    for (let row = 0; bias && row < this.outChannels; row++) this.bias[this.line(row)] = bias[row];
  }

  /** Where an output channel is in `out`. */
  line(row) {
    return Math.floor(row / this.rows) * this.groupRows + (row % this.rows);
  }

  /** [outChannels, taps] to [groups * tiles, taps, ROWS]. */
  pack(weight) {
    const packed = new Float64Array(this.groups * this.groupRows * this.taps);
    for (let row = 0; row < this.outChannels; row++) {
      const line = this.line(row);
      const start = (line - (line % ROWS)) * this.taps + (line % ROWS);
      for (let tap = 0; tap < this.taps; tap++) packed[start + tap * ROWS] = weight[row * this.taps + tap];
    }
    return packed;
  }

  /** Take an input [inChannels, inHeight, inWidth] for the following blocks. */
  read(input) {
    const { inHeight, inWidth, padding, padded, paddedWidth } = this;
    for (let channel = 0, from = 0; channel < this.inChannels; channel++) {
      let to = channel * this.paddedSize + padding * paddedWidth + padding;
      for (let y = 0; y < inHeight; y++, to += paddedWidth - inWidth) {
        for (let x = 0; x < inWidth; x++) padded[to++] = input[from++];
      }
    }
  }

  /** Compute `count` positions from `first` on, in rows of the output, into `out`. */
  compute(first, count) {
    const { panel, weight, bias, out, tiles, taps, groupRows } = this;
    for (let group = 0; group < this.groups; group++) {
      this.unroll(group, first, count);
      multiply(weight, group * groupRows * taps, tiles, taps, panel, count, bias, group * groupRows, out);
    }
  }

  unroll(group, first, count) {
    const { kernel, stride, width, paddedWidth, paddedSize, padded, panel } = this;
    const channels = this.inChannels / this.groups;
    let line = 0;
    for (let channel = group * channels; channel < (group + 1) * channels; channel++) {
      for (let ky = 0; ky < kernel; ky++) {
        for (let kx = 0; kx < kernel; kx++, line += BLOCK) {
          const corner = channel * paddedSize + ky * paddedWidth + kx;
          let y = Math.floor(first / width);
          let x = first - y * width;
          for (let p = 0; p < count; p++) {
            panel[line + p] = padded[corner + y * stride * paddedWidth + x * stride];
            if (++x === width) {
              x = 0;
              y++;
            }
          }
        }
      }
    }
  }

  /** The whole output [outChannels, height, width] as Float32Array, with ReLU if `relu`. */
  run(input, output, relu) {
    this.read(input);
    for (let first = 0; first < this.positions; first += BLOCK) {
      const count = Math.min(BLOCK, this.positions - first);
      this.compute(first, count);
      for (let row = 0; row < this.outChannels; row++) {
        const from = this.line(row) * BLOCK;
        const to = row * this.positions + first;
        for (let p = 0; p < count; p++) {
          const value = this.out[from + p];
          output[to + p] = relu && value < 0 ? 0 : value;
        }
      }
    }
    return output;
  }
}

/** out[row, p] = bias[row] + sum_t weight[row, t] * panel[t, p], for one group. */
function multiply(weight, weightAt, tiles, taps, panel, count, bias, row, out) {
  for (let tile = 0; tile < tiles; tile++, row += ROWS, weightAt += taps * ROWS) {
    const b0 = bias[row], b1 = bias[row + 1], b2 = bias[row + 2], b3 = bias[row + 3];
    const end = weightAt + taps * ROWS;
    for (let p = 0; p < count; p += COLUMNS) {
      let s00 = b0, s10 = b1, s20 = b2, s30 = b3;
      let s01 = b0, s11 = b1, s21 = b2, s31 = b3;
      for (let w = weightAt, x = p; w < end; w += ROWS, x += BLOCK) {
        const x0 = panel[x], x1 = panel[x + 1];
        const w0 = weight[w], w1 = weight[w + 1], w2 = weight[w + 2], w3 = weight[w + 3];
        s00 += w0 * x0;
        s01 += w0 * x1;
        s10 += w1 * x0;
        s11 += w1 * x1;
        s20 += w2 * x0;
        s21 += w2 * x1;
        s30 += w3 * x0;
        s31 += w3 * x1;
      }
      const at = row * BLOCK + p;
      out[at] = s00;
      out[at + 1] = s01;
      out[at + BLOCK] = s10;
      out[at + BLOCK + 1] = s11;
      out[at + 2 * BLOCK] = s20;
      out[at + 2 * BLOCK + 1] = s21;
      out[at + 3 * BLOCK] = s30;
      out[at + 3 * BLOCK + 1] = s31;
    }
  }
}
