/** Light, dark, or as the system has it. */

import { labelledSelect } from "./dom.js";

export function applyTheme(theme) {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** A select for the theme; `onchange` runs after the colours have changed. */
export function themeSwitch(store, onchange) {
  const options = [["auto", "as the system"], ["light", "light"], ["dark", "dark"]];
  const { root, select } = labelledSelect("Theme", options, (theme) => store.set({ theme }));
  const apply = () => {
    select.value = store.state.theme;
    applyTheme(store.state.theme);
    onchange();
  };
  store.listen((names) => names.has("theme") && apply());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  select.value = store.state.theme;
  applyTheme(store.state.theme);
  return root;
}
