// Colours of the map: one scale from the ground to the accent for use, and a few that differ well for reasons.

const STEPS = 24;
const RAMPS = {
  light: [[233, 239, 240], [126, 187, 197], [10, 88, 102]],
  dark: [[38, 50, 54], [38, 113, 126], [142, 225, 236]],
};
const REASONS = {
  light: ["#dba88c", "#9aaad6", "#d6c379", "#c99fbd", "#abbb8e", "#bda396", "#bcc2c4"],
  dark: ["#8a5a42", "#51639b", "#7f6d38", "#7f5476", "#617246", "#6f5b53", "#566064"],
};

const scheme = matchMedia("(prefers-color-scheme: dark)");

export const onScheme = (listener) => {
  scheme.addEventListener("change", listener);
  return () => scheme.removeEventListener("change", listener);
};

const name = () => (scheme.matches ? "dark" : "light");

/** Fill and ink for shares from 0 to 1, in steps. */
export function ramp() {
  const stops = RAMPS[name()], dark = name() === "dark";
  const found = Array.from({ length: STEPS + 1 }, (_, i) => {
    const at = 2 * i / STEPS, from = stops[Math.min(1, Math.floor(at))], to = stops[Math.min(2, Math.floor(at) + 1)];
    const rgb = from.map((value, k) => Math.round(value + (to[k] - value) * (at - Math.min(1, Math.floor(at)))));
    const bright = 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2];
    return [`rgb(${rgb.join(",")})`, bright > 128 ? "#16201f" : "#ffffff"];
  });
  return { of: (share) => found[Math.max(0, Math.min(STEPS, Math.round(share * STEPS)))], steps: found, dark };
}

/** The colour of the n-th reason; the last one stands for all others. */
export const reason = (n) => REASONS[name()][Math.min(n, REASONS[name()].length - 1)];
export const MOST_REASONS = REASONS.light.length;

/** What the canvas needs of the style sheet. */
export function style() {
  const found = getComputedStyle(document.documentElement);
  const value = (property) => found.getPropertyValue(property).trim();
  return { sheet: value("--sheet"), text: value("--text"), quiet: value("--quiet"), accent: value("--accent"), problem: value("--problem"), line: value("--line"),
    font: getComputedStyle(document.body).fontFamily };
}
