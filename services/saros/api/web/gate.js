// The gate: users by their blocks, b and B to be moved for a what-if, and what they would drop.

const ASK_AGAIN_MS = 5000;
const SETTLE_MS = 120;
const TICKS = [1, 10, 20, 30, 40, 50, 60, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];
const MOST = 1_000_000; // what the API takes

class GateView {
  constructor(root, confirm) {
    this.root = root;
    this.confirm = confirm;
    this.gate = null;
    this.bounds = null; // [b, B] of the what-if; null: those in force
    this.ready = false;
    this.may = new Map(); // by key: whether it may change the gate
    this.at = (name) => root.querySelector(`[data-gate="${name}"]`);
    this.plot = this.at("plot");
    this.svg = draw(this.plot, "svg", { role: "group", "aria-label": "Users by their blocks in the window", hidden: "" });
    this.back = draw(this.svg, "g", { "aria-hidden": "true" });
    this.handles = ["b", "B"].map((name, side) => this.makeHandle(name, side));
    this.at("reset").addEventListener("click", () => this.move(null));
    this.at("apply").addEventListener("click", () => this.apply());
    this.plot.addEventListener("pointermove", (event) => this.readBar(event));
    this.plot.addEventListener("pointerleave", () => say(this.at("bar"), ""));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** Take a pulse. */
  show(pulse) {
    this.gate = pulse.gate;
    this.ready = pulse.ready;
    const { bands, decisions = {} } = this.gate;
    const users = bands.below + bands.in_band + bands.above;
    for (const name of ["below", "in_band", "above"]) {
      say(this.at(name), countText(bands[name]));
      this.at("bar_" + name).style.flexGrow = String(users ? bands[name] : name === "in_band" ? 1 : 0);
    }
    this.at("bands").classList.toggle("none", !users);
    say(this.at("users"), plural(users, "user", "users") + " in the window");
    say(this.at("taken_back"), countText(this.gate.taken_back));
    say(this.at("released"), countText(this.gate.released));
    say(this.at("learned"), countText(decisions.learn ?? null));
    say(this.at("mode"), `${this.gate.mode} mode · window ${plural(this.gate.window_days, "day", "days")} · revision ` +
      (this.gate.revision ?? NONE));
    this.draw();
    if (this.ready && !(Date.now() - this.asked < ASK_AGAIN_MS)) this.askSoon(0);
  }

  inForce() {
    return [this.gate.blocks_min, this.gate.blocks_max];
  }

  now() {
    return this.bounds || this.inForce();
  }

  /** Move the what-if; null lets it go. */
  move(bounds) {
    const same = bounds && this.inForce().every((bound, side) => bound === bounds[side]);
    this.bounds = same ? null : bounds;
    if (this.bounds) say(this.at("done"), "");
    this.draw();
    this.askSoon(SETTLE_MS);
  }

  moveOne(side, value) {
    const [low, high] = this.now(), whole = Math.round(value);
    this.move(side === 0 ? [Math.max(1, Math.min(whole, high)), high] : [low, Math.max(low, Math.min(whole, MOST))]);
  }

  makeHandle(name, side) {
    const handle = draw(this.svg, "g", {
      class: "handle", tabindex: 0, role: "slider", "aria-orientation": "horizontal",
      "aria-label": side ? "B, most blocks of a user that is learned from" : "b, least blocks of a user that is learned from",
    });
    draw(handle, "line", { class: "rule", y1: 22 });
    draw(handle, "rect", { class: "reach", x: -16, y: 0, width: 32 });
    draw(handle, "rect", { class: "grip", y: 1, height: 21, rx: 5 });
    draw(handle, "text", { class: "grip-text", y: 16 });
    const drag = (event) => {
      const box = this.plot.getBoundingClientRect();
      this.moveOne(side, countAt(this.edgeAt(event.clientX - box.left)) - side);
      event.preventDefault();
    };
    handle.addEventListener("pointerdown", (event) => {
      if (!this.edgeAt) return;
      handle.setPointerCapture(event.pointerId);
      this.held = this.edges; // the axis stays as it is while one drags
      handle.focus({ preventScroll: true });
      event.preventDefault();
    });
    handle.addEventListener("pointermove", (event) => { if (handle.hasPointerCapture(event.pointerId)) drag(event); });
    handle.addEventListener("lostpointercapture", () => { this.held = null; this.draw(); });
    handle.addEventListener("keydown", (event) => {
      if (!this.gate) return;
      const value = this.now()[side], far = Math.max(5, Math.round(value / 8));
      const next = { ArrowLeft: value - 1, ArrowDown: value - 1, ArrowRight: value + 1, ArrowUp: value + 1,
        PageDown: value - far, PageUp: value + far, Home: 1, End: Math.floor(countAt(this.edges[1])) - 1 }[event.key];
      if (event.key === "Escape") this.move(null);
      else if (next === undefined) return;
      else this.moveOne(side, next);
      event.preventDefault();
    });
    return handle;
  }

  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!this.gate || !width || !height) return;
    this.svg.removeAttribute("hidden");
    const { histogram } = this.gate, [low, high] = this.now(), force = this.inForce();
    const most = Math.max(10, ...histogram.map((bin) => bin.to), Math.min(Math.max(high, ...force), MOST));
    this.edges = this.held || [0.5, edgeOf(most) + Math.max(1.5, 0.06 * edgeOf(most))];
    const top = 30, bottom = height - 24, side = 14;
    const x = linear(this.edges[0], this.edges[1], side, width - side);
    this.edgeAt = linear(side, width - side, this.edges[0], this.edges[1]);
    const peak = Math.max(1, ...histogram.map((bin) => bin.users));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.back.replaceChildren();
    draw(this.back, "line", { x1: side, x2: width - side, y1: bottom, y2: bottom, class: "base" });
    this.bars = histogram.map((bin) => {
      const from = x(edgeOf(bin.blocks)), to = Math.min(x(edgeOf(bin.to + 1)), width - side);
      const tall = Math.max(2, (bottom - top) * bin.users / peak), gap = to - from > 4 ? 1 : 0;
      const out = bin.to < low || bin.blocks > high;
      draw(this.back, "rect", { x: from + gap / 2, y: bottom - tall, width: Math.max(1, to - from - gap), height: tall,
        class: out ? "bar out" : "bar" });
      return { from, to, bin };
    });
    if (!histogram.length) {
      draw(this.back, "text", { x: width / 2, y: (top + bottom) / 2, class: "nothing" }, "no user has closed a block yet");
    }
    let last = -40;
    for (const tick of TICKS) {
      const at = (x(edgeOf(tick)) + x(edgeOf(tick + 1))) / 2;
      if (at > width - side - 8 || at - last < 38) continue;
      draw(this.back, "text", { x: at, y: height - 6, class: "tick middle" }, fixed(tick, 0));
      last = at;
    }
    if (this.bounds) {
      force.forEach((bound, k) => {
        const at = x(edgeOf(bound + k));
        draw(this.back, "line", { x1: at, x2: at, y1: top - 6, y2: bottom, class: "force" });
      });
    }
    [low, high].forEach((bound, k) => this.place(k, bound, x(edgeOf(bound + k)), bottom, width));
    say(this.at("bounds"), `b = ${fixed(force[0], 0)}, B = ${fixed(force[1], 0)} in force`);
    this.at("reset").hidden = !this.bounds;
    this.at("apply").hidden = !this.bounds || !this.may.get(keyInUse());
    say(this.at("what"), this.bounds ? `With b = ${fixed(low, 0)} and B = ${fixed(high, 0)} would be dropped`
      : "With the bounds in force are dropped");
  }

  place(side, bound, at, bottom, width) {
    const handle = this.handles[side], [rule, reach, grip, text] = handle.children;
    const label = `${side ? "B" : "b"} ${fixed(bound, 0)}`, wide = 14 + 7.4 * label.length;
    // The grips lie outside the band, so that both can be taken where b = B, and inside the picture.
    const from = Math.max(0, Math.min(width - wide, side ? at - 5 : at - wide + 5));
    handle.setAttribute("transform", `translate(${at} 0)`);
    rule.setAttribute("y2", bottom);
    reach.setAttribute("height", bottom);
    reach.setAttribute("x", side ? -4 : -18);
    reach.setAttribute("width", 22);
    grip.setAttribute("x", from - at);
    grip.setAttribute("width", wide);
    text.setAttribute("x", from - at + wide / 2);
    say(text, label);
    const [low, high] = this.now();
    handle.setAttribute("aria-valuemin", side ? low : 1);
    handle.setAttribute("aria-valuemax", side ? MOST : high);
    handle.setAttribute("aria-valuenow", bound);
    handle.setAttribute("aria-valuetext", plural(bound, "block", "blocks"));
  }

  readBar(event) {
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    const bar = (this.bars || []).find(({ from, to }) => at >= from && at < to);
    say(this.at("bar"), !bar ? "" : `${fixed(bar.bin.blocks, 0)}${bar.bin.to > bar.bin.blocks ? "–" + fixed(bar.bin.to, 0) : ""} ` +
      `${bar.bin.to === 1 ? "block" : "blocks"}: ${plural(bar.bin.users, "user", "users")}`);
  }

  askSoon(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.simulate(), ms);
  }

  async simulate() {
    if (!this.gate || !this.ready) return;
    this.asked = Date.now();
    if (this.bounds) this.learnRights();
    if (this.asking) this.asking.abort();
    const asking = this.asking = new AbortController(), [low, high] = this.now();
    try {
      const found = await askJson(query("v1/gate/simulate", { blocks_min: low, blocks_max: high }), { signal: asking.signal });
      for (const name of ["users", "blocks", "clicks"]) {
        const { share, dropped, total, exact } = found[name];
        say(this.at("drop_" + name), (exact ? "" : "≈ ") + percentText(share));
        say(this.at("of_" + name), known(total) ? `${countText(dropped)} of ${countText(total)} ${name}` : name);
      }
      say(this.at("error"), "");
    } catch (error) {
      if (!asking.signal.aborted) say(this.at("error"), errorText(error));
    }
  }

  /** Find out, once for each key, whether it may change the gate: an empty change changes nothing.
   *  An API that is away or busy says neither yes nor no, and is asked again with the next what-if. */
  async learnRights() {
    const key = keyInUse();
    if (this.may.has(key)) return;
    this.may.set(key, !key);
    if (!key) return this.draw();
    try {
      await ask("v1/gate", { method: "PATCH", body: {} });
    } catch (error) {
      const may = { 422: true, 401: false, 403: false }[error.status];
      if (may === undefined) this.may.delete(key);
      else this.may.set(key, may);
    }
    return this.draw();
  }

  async apply() {
    const [low, high] = this.bounds;
    try {
      const { revision, settings } = await askJson("v1/gate");
      const from = `Now they are b = ${settings.blocks_min}, B = ${settings.blocks_max}` +
        (typeof settings.blocks_max === "string" ? ", estimated each day; a number holds until it is changed." : ".");
      const yes = await this.confirm(`Put b = ${fixed(low, 0)} and B = ${fixed(high, 0)} in force?`,
        from + " All that users outside the band send from now on teaches nothing, and of those who pass B what they " +
        "taught is taken back.");
      if (!yes) return;
      const change = { blocks_min: low, blocks_max: high, revision };
      const { token } = await askJson("v1/gate", { method: "PATCH", body: change });
      const told = await askJson(query("v1/gate", { min_token: token, wait_ms: WAIT_MS }));
      say(this.at("done"), told.token_reached ? `In force since revision ${told.revision}.` : "Sent; in force in a moment.");
      Object.assign(this.gate, { blocks_min: low, blocks_max: high, revision: told.revision });
      this.move(null);
      this.at("reset").hidden = true;
    } catch (error) {
      say(this.at("error"), errorText(error));
    }
  }
}
