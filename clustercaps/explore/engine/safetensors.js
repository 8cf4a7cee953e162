// Read a safetensors file: 8 bytes with the length of a JSON header, the header, the numbers.

const LARGEST_HEADER = 1 << 20;
const BYTES = { F32: 4, F16: 2 };

/** Bytes of a safetensors file to a Map from names to { shape, values: Float32Array }. */
export function readSafetensors(bytes) {
  const header = readHeader(bytes);
  const start = 8 + header.length;
  const tensors = new Map();
  for (const [name, entry] of Object.entries(header.entries)) {
    if (name !== "__metadata__") tensors.set(name, readTensor(bytes, start, name, entry));
  }
  return tensors;
}

function readHeader(bytes) {
  if (bytes.length < 8) throw corrupt(`${bytes.length} bytes are too few`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  if (length > LARGEST_HEADER || 8 + length > bytes.length) {
    throw corrupt(`its header is said to have ${length} bytes`);
  }
  let entries;
  try {
    entries = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  } catch {
    throw corrupt("its header is not JSON");
  }
  if (entries === null || typeof entries !== "object" || Array.isArray(entries)) {
    throw corrupt("its header is not a JSON object");
  }
  return { length, entries };
}

function readTensor(bytes, start, name, entry) {
  const { dtype, shape, data_offsets: offsets } = entry ?? {};
  const width = Object.hasOwn(BYTES, dtype) ? BYTES[dtype] : 0;
  if (!width) throw corrupt(`${name} has the type ${dtype}, expected F32 or F16`);
  const sizes = [shape, offsets];
  if (!sizes.every((list) => Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0))) {
    throw corrupt(`${name} has no valid shape and offsets`);
  }
  const [first, last] = offsets;
  const count = shape.reduce((product, side) => product * side, 1);
  if (offsets.length !== 2 || last - first !== count * width || start + last > bytes.length) {
    throw corrupt(`${name} has the shape [${shape}] but the bytes ${first} to ${last}`);
  }
  // A copy, because the bytes of a tensor may not be aligned.
  const own = bytes.slice(start + first, start + last).buffer;
  const values = width === 4 ? new Float32Array(own) : fromHalf(new Uint16Array(own));
  for (const value of values) {
    if (!Number.isFinite(value)) throw corrupt(`${name} contains ${value}`);
  }
  return { shape, values };
}

/** 16-bit floats to 32 bits. */
export function fromHalf(half) {
  const values = new Float32Array(half.length);
  for (let n = 0; n < half.length; n++) {
    const bits = half[n];
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const sign = bits & 0x8000 ? -1 : 1;
    if (exponent === 0) values[n] = sign * fraction * 2 ** -24;
    else if (exponent === 31) values[n] = fraction ? NaN : sign * Infinity;
    else values[n] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return values;
}

/** Text in base64 to bytes. */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let n = 0; n < bytes.length; n++) bytes[n] = binary.charCodeAt(n);
  return bytes;
}

/** The values of a tensor that must have this shape. */
export function take(tensors, name, shape) {
  const found = tensors.get(name);
  if (!found) throw new Error(`the weights have no tensor ${name}; write the page again from a complete run`);
  if (found.shape.length !== shape.length || found.shape.some((side, axis) => side !== shape[axis])) {
    throw new Error(`the tensor ${name} has the shape [${found.shape}], the network expects [${shape}]`);
  }
  return found.values;
}

function corrupt(reason) {
  return new Error(`the weights are not a valid safetensors file: ${reason}; write the page again`);
}
