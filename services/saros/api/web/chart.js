// Lines over time. All charts share the time that is looked at, by pointer or by keys.

const SVG = "http://www.w3.org/2000/svg";
const LINE_GAP_S = 5;
const LEAST_SPAN_S = 60;

/** Add an element with text; everything that comes from elsewhere goes through here, and is never markup. */
const add = (parent, tag, cls, text) => {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const draw = (parent, tag, attributes, text) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };

class Chart {
  /** `spec`: title, about, series, text (of a value), tick (of one on the axis), axis (as `axisOf` takes it), and `extra`,
   * the label of a figure that is no line. `look(time)` is told what is looked at. */
  constructor(root, spec, look) {
    this.spec = spec;
    this.look = look;
    this.points = [];
    this.time = null;
    const head = add(root, "header");
    const words = add(head, "div");
    add(words, "h2", "", spec.title);
    add(words, "p", "about", spec.about);
    this.when = add(head, "p", "when", "now");
    this.figures = add(root, "div", "figures");
    this.note = add(root, "p", "note");
    this.note.hidden = true;
    this.plot = add(root, "div", "plot");
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "slider");
    this.plot.setAttribute("aria-label", spec.title + " over time: arrow keys read values");
    this.plot.setAttribute("aria-valuemin", "0");
    this.svg = draw(this.plot, "svg", { "aria-hidden": "true" });
    this.setSeries(spec.series);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** Name the lines: key, label, cls, get. */
  setSeries(series) {
    this.series = series;
    this.figures.replaceChildren();
    for (const one of series) {
      const figure = add(this.figures, "div", "figure " + one.cls);
      add(figure, "span", "label", one.label);
      one.figure = add(figure, "output", "value", NONE);
      one.figure.dataset.series = one.key;
    }
    if (!this.spec.extra) return;
    const figure = add(this.figures, "div", "figure extra");
    this.extraLabel = add(figure, "span", "label", this.spec.extra);
    this.extra = add(figure, "output", "value", NONE);
  }

  listen() {
    const at = (event) => {
      const box = this.plot.getBoundingClientRect();
      const place = this.points.length && this.timeAt ? nearest(this.points, this.timeAt(event.clientX - box.left)) : -1;
      this.look(place < 0 ? null : this.points[place].time);
    };
    this.plot.addEventListener("pointermove", at);
    this.plot.addEventListener("pointerdown", at);
    this.plot.addEventListener("pointerleave", () => this.look(null));
    this.plot.addEventListener("blur", () => this.look(null));
    this.plot.addEventListener("keydown", (event) => {
      const last = this.points.length - 1, by = event.shiftKey ? 10 : 1;
      const place = this.time === null ? last : nearest(this.points, this.time);
      const next = { ArrowLeft: place - by, ArrowDown: place - by, ArrowRight: place + by, ArrowUp: place + by,
        Home: 0, End: last }[event.key];
      if (event.key === "Escape") this.look(null);
      else if (next === undefined || last < 0) return;
      else this.look(this.points[Math.max(0, Math.min(last, next))].time);
      event.preventDefault();
      this.readOut();
    });
  }

  /** Tell those who hear instead of see what is looked at. */
  readOut() {
    const place = this.time === null ? this.points.length - 1 : nearest(this.points, this.time);
    const point = this.points[place];
    this.plot.setAttribute("aria-valuemax", String(Math.max(0, this.points.length - 1)));
    this.plot.setAttribute("aria-valuenow", String(Math.max(0, place)));
    this.plot.setAttribute("aria-valuetext", !point ? "no data yet" : clockText(point.time) + ": " +
      this.series.map((one) => one.label + " " + this.spec.text(one.get(point))).join(", "));
  }

  show(points, time) {
    this.points = points;
    this.time = time;
    this.draw();
  }

  draw() {
    const { points, svg, series } = this;
    const place = this.time === null ? points.length - 1 : nearest(points, this.time);
    const point = points[place];
    say(this.when, this.time === null || !point ? "now" : clockText(point.time));
    this.when.classList.toggle("past", this.time !== null);
    for (const one of series) say(one.figure, point ? this.spec.text(one.get(point)) : NONE);
    if (document.activeElement !== this.plot) this.readOut();

    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!width || !height) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const lines = series.map((one) => points.map(one.get));
    if (!lines.flat().some(known)) {
      draw(svg, "text", { x: width / 2, y: height / 2, class: "nothing" }, "no data yet");
      this.timeAt = null;
      return;
    }
    const end = points[points.length - 1].time;
    const begin = Math.min(points[0].time, end - LEAST_SPAN_S);
    const axis = axisOf(lines.flat(), this.spec.axis);
    const texts = axis.ticks.map((tick) => this.spec.tick(tick, axis.step));
    const left = 12 + 6.2 * Math.max(...texts.map((text) => text.length)), right = width - 8;
    const bottom = height - 22;
    const x = linear(begin, end, left, right), y = linear(axis.low, axis.high, bottom, 8);
    this.timeAt = linear(left, right, begin, end);
    axis.ticks.forEach((tick, k) => {
      draw(svg, "line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: tick === axis.low ? "base" : "level" });
      draw(svg, "text", { x: left - 8, y: y(tick) + 4, class: "tick end" }, texts[k]);
    });
    const times = timeTicks(begin, end, Math.max(2, Math.floor((right - left) / 64)));
    for (const at of times.ticks) {
      const half = times.seconds ? 26 : 17;
      if (x(at) < left + half || x(at) > right - half) continue;
      draw(svg, "text", { x: x(at), y: height - 5, class: "tick middle" }, clockText(at, times.seconds));
    }
    series.forEach((one, k) => this.drawLine(one, lines[k], x, y, k === 0 && !this.spec.axis.free));
    this.drawCursor(point, place, x, y, bottom);
  }

  drawLine(one, values, x, y, filled) {
    let path = "", run = [];
    const close = () => {
      if (run.length === 1) path += `M${run[0]}h.01`;
      else if (run.length) path += "M" + run.join("L");
      if (filled && run.length > 1) {
        const from = run[0].split(" ")[0], to = run[run.length - 1].split(" ")[0], base = y(0).toFixed(1);
        draw(this.svg, "path", { d: `M${from} ${base}L${run.join("L")}L${to} ${base}Z`, class: "area " + one.cls });
      }
      run = [];
    };
    this.points.forEach((point, k) => {
      if (!known(values[k])) return close();
      if (k && point.time - this.points[k - 1].time > LINE_GAP_S) close();
      return run.push(x(point.time).toFixed(1) + " " + y(values[k]).toFixed(1));
    });
    close();
    draw(this.svg, "path", { d: path, class: "line " + one.cls });
  }

  drawCursor(point, place, x, y, bottom) {
    if (this.time !== null) {
      draw(this.svg, "line", { x1: x(point.time), x2: x(point.time), y1: 8, y2: bottom, class: "cursor" });
    }
    for (const one of this.series) {
      const value = one.get(point);
      if (known(value)) draw(this.svg, "circle", { cx: x(point.time), cy: y(value), r: 3.5, class: "dot " + one.cls });
    }
  }
}
