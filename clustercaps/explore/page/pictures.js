/** Pictures from outside: dropped, pasted or chosen. Whatever is wrong becomes one clear line. */

const MOST_BYTES = 10 * 1024 * 1024;
const MOST_PIXELS = 4096;
const KINDS = "PNG, JPEG, GIF, WebP or BMP";

/** Pixels [C, H, W] in 0..1 of a file, and what was done to it. Throws an Error with one line. */
export async function readPicture(file, input) {
  const megabytes = (file.size / (1024 * 1024)).toFixed(0);
  if (file.size > MOST_BYTES) {
    throw new Error(`This file has ${megabytes} MB; use a picture of at most 10 MB.`);
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  refuseMarkup(file, bytes);
  const size = pictureSize(bytes);
  if (!size) throw new Error(`This file is not a picture; use ${KINDS}.`);
  const [width, height] = size;
  if (!(width >= 1 && height >= 1)) throw new Error(BROKEN);
  if (width > MOST_PIXELS || height > MOST_PIXELS) {
    throw new Error(`This picture has ${width} x ${height} pixels; use at most ${MOST_PIXELS} per side.`);
  }
  if (startsWith(bytes, PNG) && !pngIsWhole(bytes)) throw new Error(BROKEN);
  let bitmap;
  try {
    bitmap = await createImageBitmap(new Blob([bytes]));
  } catch {
    throw new Error(BROKEN);
  }
  const read = fitted(bitmap, input);
  bitmap.close();
  return read;
}

const BROKEN = "This picture is damaged or cut off; save it again and retry.";
const PNG = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

function startsWith(bytes, start, offset = 0) {
  return start.every((byte, n) => bytes[offset + n] === byte);
}

function refuseMarkup(file, bytes) {
  const head = new TextDecoder().decode(bytes.subarray(0, 1024)).trimStart().toLowerCase();
  if (file.type === "image/svg+xml" || /^(<\?xml|<!doctype svg|<!--|<svg)/.test(head)) {
    throw new Error(`SVG files are not read, because they can hold scripts; use ${KINDS}.`);
  }
}

/** Width and height from the header, before anything is decoded; null for other files. */
function pictureSize(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const ascii = (text) => [...text].map((letter) => letter.charCodeAt(0));
  const at = (offset, read) => (offset + 4 <= bytes.length ? read(offset) : 0);
  if (startsWith(bytes, PNG)) return [at(16, (n) => view.getUint32(n)), at(20, (n) => view.getUint32(n))];
  if (startsWith(bytes, [0xff, 0xd8, 0xff])) return jpegSize(bytes, view);
  if (startsWith(bytes, ascii("GIF8"))) {
    return [at(6, (n) => view.getUint16(n, true)), at(8, (n) => view.getUint16(n, true))];
  }
  if (startsWith(bytes, ascii("BM"))) {
    return [at(18, (n) => view.getInt32(n, true)), Math.abs(at(22, (n) => view.getInt32(n, true)))];
  }
  if (startsWith(bytes, ascii("RIFF")) && startsWith(bytes, ascii("WEBP"), 8)) return webpSize(bytes, view);
  return null;
}

/** Walk the segments up to the frame header. */
function jpegSize(bytes, view) {
  let place = 2;
  while (place + 9 < bytes.length && bytes[place] === 0xff) {
    const marker = bytes[place + 1];
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return [view.getUint16(place + 7), view.getUint16(place + 5)];
    place += 2 + view.getUint16(place + 2);
  }
  return [0, 0];
}

function webpSize(bytes, view) {
  if (bytes.length < 30) return [0, 0];
  const three = (offset) => 1 + bytes[offset] + (bytes[offset + 1] << 8) + (bytes[offset + 2] << 16);
  const kind = String.fromCharCode(...bytes.subarray(12, 16));
  if (kind === "VP8X") return [three(24), three(27)];
  if (kind === "VP8 ") return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
  const bits = view.getUint32(21, true);
  return [(bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1];
}

/** Whether the chunks reach the end mark: browsers show half a picture without a word. */
function pngIsWhole(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let place = 8;
  while (place + 12 <= bytes.length) {
    const length = view.getUint32(place);
    if (String.fromCharCode(...bytes.subarray(place + 4, place + 8)) === "IEND") return true;
    place += 12 + length;
  }
  return false;
}

/** The whole picture in the network's size, its longer side filling it. */
function fitted(bitmap, { height, width, channels }) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  const source = halved(bitmap, width, height);
  const scale = Math.min(width / source.width, height / source.height);
  const [w, h] = [source.width * scale, source.height * scale];
  const light = channels === 1 && edgeIsLight(source);
  if (light) context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(source, (width - w) / 2, (height - h) / 2, w, h);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Float32Array(channels * height * width);
  for (let n = 0; n < height * width; n++) {
    const [r, g, b] = [data[4 * n] / 255, data[4 * n + 1] / 255, data[4 * n + 2] / 255];
    if (channels === 1) {
      const grey = 0.299 * r + 0.587 * g + 0.114 * b;
      pixels[n] = light ? 1 - grey : grey;
    } else {
      [r, g, b].slice(0, channels).forEach((value, c) => (pixels[c * height * width + n] = value));
    }
  }
  const note = `${bitmap.width} x ${bitmap.height} pixels, now ${width} x ${height}`;
  return { pixels, note: light ? `${note}; inverted, because its edge is light.` : `${note}.` };
}

/** Halve until less than twice the goal: one large step would skip pixels. */
function halved(bitmap, width, height) {
  let current = bitmap;
  do {
    const smaller = document.createElement("canvas");
    const half = current.width >= 2 * width && current.height >= 2 * height && current !== bitmap ? 2 : 1;
    smaller.width = Math.max(1, current.width / half);
    smaller.height = Math.max(1, current.height / half);
    const context = smaller.getContext("2d");
    // Transparent parts count as white paper.
    context.fillStyle = "#fff";
    context.fillRect(0, 0, smaller.width, smaller.height);
    context.imageSmoothingQuality = "high";
    context.drawImage(current, 0, 0, smaller.width, smaller.height);
    current = smaller;
  } while (current.width >= 2 * width && current.height >= 2 * height);
  return current;
}

/** Whether the picture is dark on light: the networks learnt light on dark. */
function edgeIsLight(canvas) {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  let [sum, count] = [0, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (x > 0 && y > 0 && x < width - 1 && y < height - 1) continue;
      const n = 4 * (y * width + x);
      sum += 0.299 * data[n] + 0.587 * data[n + 1] + 0.114 * data[n + 2];
      count += 255;
    }
  }
  return sum / count > 0.5;
}
