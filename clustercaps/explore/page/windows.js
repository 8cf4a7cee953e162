/** Which positions a capsule reads, and which parents read it. */

/** Rows or columns of the layer below that position `at` reads, without padding: [first, last]. */
export function windowBelow(at, { kernel, stride, padding }, size) {
  const first = at * stride - padding;
  return [Math.max(0, first), Math.min(size - 1, first + kernel - 1)];
}

/** Rows or columns of the layer above whose window covers `at`: [first, last], empty if first > last. */
export function windowAbove(at, { kernel, stride, padding }, size) {
  const first = Math.ceil((at + padding - kernel + 1) / stride);
  return [Math.max(0, first), Math.min(size - 1, Math.floor((at + padding) / stride))];
}

/** The window in the layer below `layers[index]`, and the parents in the layer above. */
export function reachOf(layers, index, row, column) {
  const own = layers[index];
  const above = layers[index + 1];
  return {
    below: {
      rows: windowBelow(row, own, own.inHeight),
      columns: windowBelow(column, own, own.inWidth),
    },
    above: above && {
      rows: windowAbove(row, above, above.height),
      columns: windowAbove(column, above, above.width),
    },
  };
}

export function countPositions(box) {
  const side = ([first, last]) => Math.max(0, last - first + 1);
  return box ? side(box.rows) * side(box.columns) : 0;
}
