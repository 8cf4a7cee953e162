/** Numbers as text, with a real minus sign. */

const MINUS = "\u2212";

export function fixed(value, digits = 2) {
  if (!Number.isFinite(value)) return "\u2013";
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? MINUS + text : text;
}

/** About three significant digits, for values of any size. */
export function significant(value) {
  if (!Number.isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 10000 || size < 0.0005) return value.toExponential(1).replaceAll("-", MINUS);
  return fixed(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
}

export function signed(value, digits = 2) {
  const text = fixed(value, digits);
  return text.startsWith(MINUS) || Number(text) === 0 ? text : `+${text}`;
}

export function percent(value, digits = 1) {
  return `${fixed(100 * value, digits)} %`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** Rows of values as CSV. Numbers keep their full precision. */
export function csvText(header, rows) {
  const cell = (value) => {
    const text = String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
