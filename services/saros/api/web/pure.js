"use strict";
// Numbers to text, scales, bounds, and a stream's bytes to events: functions that know nothing of the page.

const NONE = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
/** A count, whole up to 99,999 and then in thousands or millions. */
const countText = (value) => !known(value) ? NONE
  : value < 1e5 ? fixed(value, 0) : value < 1e6 ? fixed(value / 1e3, 0) + " k" : fixed(value / 1e6, 1) + " M";
const rateText = (value) => !known(value) ? NONE : value < 10 && value > 0 ? fixed(value, 1) : countText(value);
const percentText = (value) => !known(value) ? NONE : fixed(100 * value, 1) + " %";
const pointsText = (value) => !known(value) ? NONE
  : (value < 0 ? "−" : "+") + fixed(Math.abs(100 * value), Math.abs(value) < 0.1 ? 2 : 1);
const msText = (value) => !known(value) ? NONE
  : value >= 1000 ? fixed(value / 1000, 1) + " s" : fixed(value, value && value < 10 ? 1 : 0) + " ms";
const secondsText = (value) => !known(value) ? NONE : msText(1000 * value);
const plural = (value, one, many) => countText(value) + " " + (value === 1 ? one : many);

/** Texts of ticks that are a step apart: no more digits than they need. */
const digitsOf = (step) =>
  [0, 1, 2, 3].find((digits) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6) ?? 4;
const percentTick = (value, step) => fixed(100 * value, digitsOf(100 * step)) + " %";
const msTick = (value, step) => step >= 1000 ? fixed(value / 1000, digitsOf(step / 1000)) + " s" : fixed(value, digitsOf(step)) + " ms";
const secondsTick = (value, step) => msTick(1000 * value, 1000 * step);
const countTick = (value, step) => value >= 1e5 ? countText(value) : fixed(value, digitsOf(step));

/** The time of day of seconds since 1970, where the reader is. */
const clockText = (time, seconds = true) => {
  const at = new Date(1000 * time);
  const parts = [at.getHours(), at.getMinutes(), ...(seconds ? [at.getSeconds()] : [])];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
};
const durationText = (seconds) => !known(seconds) ? NONE : seconds < 60 ? Math.floor(seconds) + " s"
  : seconds < 3600 ? Math.floor(seconds / 60) + " min"
    : Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";

/** A line through two pairs: from what is measured to where it is drawn. */
const linear = (from, to, start, end) => (value) =>
  to === from ? (start + end) / 2 : start + (end - start) * (value - from) / (to - from);

/** The least step of 1, 2, 2.5 or 5 times a power of ten that crosses a span in so many steps at most. */
const niceStep = (span, steps) => {
  const rough = span / steps, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((part) => part * power).find((step) => step >= rough * (1 - 1e-9));
};

/** Where an axis begins and ends, and its ticks. It has zero in it, unless `free`; it is at least `least` high. */
const axisOf = (values, { free = false, least = 1, most = Infinity, steps = 3 } = {}) => {
  const all = values.filter(known);
  let low = free && all.length ? Math.min(...all) : 0, high = all.length ? Math.max(...all) : least;
  if (high - low < least) {
    const middle = free ? (low + high) / 2 : 0;
    [low, high] = free ? [Math.max(0, middle - least / 2), Math.max(0, middle - least / 2) + least] : [0, least];
  }
  const step = niceStep(high - low, steps);
  low = Math.floor(low / step + 1e-9) * step;
  high = Math.min(Math.ceil(high / step - 1e-9) * step, most);
  const ticks = [];
  for (let k = Math.round(low / step); k * step <= high + step * 1e-6; k++) ticks.push(k * step);
  return { low, high, ticks, step };
};

/** Times of an axis: at most so many, at round seconds or minutes of the clock. */
const timeTicks = (from, to, most) => {
  const step = [5, 10, 15, 30, 60, 120, 300, 600, 1800].find((one) => (to - from) / one <= most) || 3600;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return { ticks, seconds: step < 60 };
};

/** The place of the sorted points that is nearest to a time; -1 where there is none. */
const nearest = (points, time) => {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].time < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - points[low - 1].time < points[low].time - time ? low - 1 : points.length ? low : -1;
};

const Z95 = 1.959964;
/** The bounds of a rate (Wilson), with 95 %. */
const wilson = (hits, of) => {
  const rate = hits / of, square = Z95 * Z95 / of;
  const half = Z95 * Math.sqrt(rate * (1 - rate) / of + square / (4 * of));
  return [(rate + square / 2 - half) / (1 + square), (rate + square / 2 + half) / (1 + square)];
};
/** What a rate is above another, with its 95 % bounds (Newcombe's, which hold with few clicks, too); null: not known. */
const liftOf = (one, other) => {
  if (!one || !other || !one.shown || !other.shown) return null;
  const clicks = (from) => Math.min(from.clicked, from.shown);
  const a = clicks(one) / one.shown, b = clicks(other) / other.shown;
  const [aLow, aHigh] = wilson(clicks(one), one.shown), [bLow, bHigh] = wilson(clicks(other), other.shown);
  return {
    lift: a - b,
    low: a - b - Math.hypot(a - aLow, bHigh - b),
    high: a - b + Math.hypot(aHigh - a, b - bLow),
    times: b > 0 ? a / b : null,
  };
};

// Counts of blocks have a bin each up to 63, and then eight for each doubling: so has the picture of them.
const EXACT = 64;
const edgeOf = (count) => count <= EXACT ? count : EXACT + 8 * Math.log2(count / EXACT);
const countAt = (edge) => edge <= EXACT ? edge : EXACT * 2 ** ((edge - EXACT) / 8);

/** Reads a stream of server-sent events: takes text as it comes, returns the events that are whole. */
const sseReader = () => {
  let rest = "", name = "", data = [];
  return (text) => {
    const found = [];
    rest += text;
    // A carriage return at the very end may be half of an end of line.
    const ready = rest.endsWith("\r") ? rest.length - 1 : rest.length;
    const lines = rest.slice(0, ready).split(/\r\n|\n|\r/);
    rest = lines.pop() + rest.slice(ready);
    for (const line of lines) {
      if (line === "") {
        if (data.length) found.push({ event: name || "message", data: data.join("\n") });
        [name, data] = ["", []];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") data.push(value);
      else if (field === "event") name = value;
    }
    return found;
  };
};

const KEPT_S = 900;
/** The point of a pulse, as the history has them. */
const pointOf = (pulse) => ({
  time: pulse.time, events_per_s: pulse.events.per_s, lag_s: pulse.lag.seconds,
  p50: pulse.servable_ms.p50, p99: pulse.servable_ms.p99,
  accuracy: pulse.learning.accuracy, baseline: pulse.learning.baseline,
  scenarios: Object.fromEntries(pulse.scenarios.map((one) => [one.scenario, one.recent_rate])),
});
/** Points with one more, without what is too old; one that is not newer than the last takes its place. */
const withPoint = (points, point) => {
  const kept = points.filter((one) => one.time < point.time && one.time > point.time - KEPT_S);
  return [...kept.slice(-KEPT_S + 1), point];
};

/** Points from the first event on: what was before it is empty, and would only make the rest narrow. */
const sinceFirst = (points) => {
  const first = points.findIndex((point) => point.events_per_s > 0);
  return first > 0 ? points.slice(first - 1) : points;
};

/** How the places of items changed between two lists: how many places up (down: negative), or null: it is new. */
const movesOf = (before, after) => new Map(after.map((id, place) => {
  const was = before.indexOf(id);
  return [id, was < 0 ? null : was - place];
}));
