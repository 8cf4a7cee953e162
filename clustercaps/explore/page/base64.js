/** Bytes and arrays from base64 and back. */

export function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  return bytes;
}

/** Little-endian float32, as Python packs it. */
export function floatsOf(text) {
  const bytes = bytesOf(text);
  return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
}

/** Pixels in 0..1 with 16 levels each, as letters that an address may hold. */
export function packPixels(pixels) {
  let raw = "";
  for (let n = 0; n < pixels.length; n += 2) {
    const high = Math.round(15 * pixels[n]);
    const low = n + 1 < pixels.length ? Math.round(15 * pixels[n + 1]) : 0;
    raw += String.fromCharCode((high << 4) | low);
  }
  return btoa(raw).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** What `packPixels` wrote, or null if it is not `count` pixels. */
export function unpackPixels(text, count) {
  let bytes;
  try {
    bytes = bytesOf(text.replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    return null;
  }
  if (bytes.length !== (count + 1) >> 1) return null;
  return Float32Array.from({ length: count }, (_, n) => ((bytes[n >> 1] >> (n % 2 ? 0 : 4)) & 15) / 15);
}
