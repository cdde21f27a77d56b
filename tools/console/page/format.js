// Numbers, times and amounts for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

export const count = (n) => whole.format(n);

/** With three digits that count. */
export function digits(n) {
  if (n === 0) return "0";
  return n >= 100 ? whole.format(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

export function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) { n /= 1024; unit += 1; }
  return `${unit && n < 10 ? n.toFixed(1) : whole.format(n)} ${UNITS[unit]}B`;
}

/** A resource's amount in the scheduler's units: cpu in thousandths, everything else in whole units. */
export function amount(resource, n) {
  if (resource === "cpu") return n % 1000 && n < 100000 ? (n / 1000).toFixed(2) : whole.format(n / 1000);
  if (resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-")) return bytes(n);
  return whole.format(n);
}

/** Seconds as a length of time: 0.4 ms, 12 ms, 3.2 s, 4 min, 3 h. */
export function length(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${(1000 * seconds).toFixed(1)} ms`;
  if (seconds < 1) return `${whole.format(1000 * seconds)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${whole.format(seconds)} s`;
  if (seconds < 7200) return `${whole.format(seconds / 60)} min`;
  return seconds < 172800 ? `${whole.format(seconds / 3600)} h` : `${whole.format(seconds / 86400)} d`;
}

export const percent = (share) => `${share >= 0.1 || share === 0 ? Math.round(100 * share) : (100 * share).toFixed(1)} %`;

/** `n` things: 1 pod, 3 pods. */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
