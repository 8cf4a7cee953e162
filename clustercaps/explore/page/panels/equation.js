/** The equations of cluster routing, filled with the numbers of the chosen cluster. */

import { element } from "../dom.js";
import { significant } from "../format.js";

const MOST_TERMS = 5;

function symbol(letter, index) {
  return element("span", { class: "symbol" }, element("var", {}, letter), element("sub", {}, String(index)));
}

/** Terms joined by a sign; long sums are cut in the middle. */
function joined(terms, sign) {
  if (terms.length <= MOST_TERMS) return terms.join(` ${sign} `);
  return [...terms.slice(0, MOST_TERMS - 2), "\u2026", terms.at(-1)].join(` ${sign} `);
}

function bracketed(value) {
  return value < 0 ? `(${significant(value)})` : significant(value);
}

function line(name, formula, numbers) {
  return element("div", { class: "equation" },
    element("dt", {}, name),
    element("dd", {}, element("span", { class: "formula" }, ...formula), element("span", { class: "filled number" }, numbers)));
}

/** `data` as from the engine; `i` the chosen cluster. */
export function equations(data, i, routing) {
  const { k, centroids, spreads, weights } = data;
  const votes = [...data.votes.slice(i * k, (i + 1) * k)];
  const n = i + 1;
  const inverses = [...spreads].map((spread) => 1 / spread);
  const total = inverses.reduce((a, b) => a + b, 0);
  const products = [...weights].map((weight, j) => `${significant(weight)} \u00d7 ${bracketed(centroids[j])}`);
  const mean = joined(votes.map(bracketed), "+");
  const weightLine = routing === "uniform"
    ? line("weight", [symbol("c", "i"), " = 1 / I"], `1 / ${weights.length} = ${significant(weights[i])}`)
    : line("weight", [symbol("c", "i"), " = (1/", symbol("\u03c3", "i"), ") / \u03a3 (1/", symbol("\u03c3", "j"), ")"],
      `${significant(inverses[i])} / (${joined(inverses.map(significant), "+")}) = ${significant(inverses[i])} / ${significant(total)} = ${significant(weights[i])}`);
  return element("dl", { class: "equations", "aria-label": `Equations for cluster ${n}` },
    line("centroid", [symbol("m", "i"), " = mean of the votes"], `(${mean}) / ${k} = ${significant(centroids[i])}`),
    line("spread", [symbol("\u03c3", "i"), " = standard deviation of the votes"], significant(spreads[i])),
    weightLine,
    line("parent", [element("var", {}, "s"), " = \u03a3 ", symbol("c", "i"), " ", symbol("m", "i")],
      `${joined(products, "+")} = ${significant(data.capsule)}`));
}
