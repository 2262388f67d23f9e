// The playground: be a user or a guest, click, and watch the list change.

const SESSION_MOST = Math.min(180, LIMITS.session_max); // events of a guest
const SCENARIO = "playground"; // counted neither as the model's slates nor as random ones
const STATES = { cold: "not known yet", below: "below the band", in_band: "in the band", above: "above the band" };
const SOURCES = { model: "the user’s row", session: "the session", popular: "what is popular" };
const SLIDE_MS = 450;

class Playground {
  constructor(root, titles) {
    this.titles = titles;
    this.at = (name) => root.querySelector(`[data-play="${name}"]`);
    this.user = "";
    this.session = [];
    this.clicked = [];
    this.rows = new Map();
    this.ids = [];
    this.turn = 0;
    this.began = false;
    this.at("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.at("user").value) this.be(this.at("user").value);
    });
    this.at("guest").addEventListener("click", () => this.be(""));
    this.at("again").addEventListener("click", () => this.refresh());
    for (const chip of root.querySelectorAll("[data-user]")) {
      chip.addEventListener("click", () => this.be(chip.dataset.user));
    }
  }

  /** Show a first list when there are items to show. */
  begin() {
    if (this.began) return;
    this.began = true;
    this.be("");
  }

  be(user) {
    [this.user, this.session, this.clicked, this.ids] = [user, [], [], []];
    this.at("user").value = user;
    this.at("guest").setAttribute("aria-pressed", String(!user));
    for (const chip of document.querySelectorAll("[data-user]")) {
      chip.setAttribute("aria-pressed", String(chip.dataset.user === user));
    }
    say(this.at("who"), user ? `List of user ${user}` : "List of a guest");
    this.tellTrail();
    return this.refresh();
  }

  /** Ask for the list; with a token, for one that knows what was sent. */
  async refresh(token = "", since = performance.now(), focus = -1) {
    const turn = ++this.turn;
    this.at("list").setAttribute("aria-busy", "true");
    try {
      const answer = this.user
        ? await askJson(query("v1/recommendations", { user_id: this.user, scenario: SCENARIO,
          ...(token ? { min_token: token, wait_ms: WAIT_MS } : {}) }))
        : await askJson("v1/recommendations", { body: { session: this.session, scenario: SCENARIO } });
      if (turn !== this.turn) return;
      this.show(answer, performance.now() - since, focus);
    } catch (error) {
      if (turn === this.turn) this.fail(error);
    } finally {
      if (turn === this.turn) this.at("list").removeAttribute("aria-busy");
    }
  }

  fail(error) {
    say(this.at("error"), errorText(error));
    this.at("error").hidden = false;
  }

  /** Click an item: a user's goes to the log, a guest's stays on this page. */
  async click(id) {
    if (this.at("list").hasAttribute("aria-busy")) return;
    const since = performance.now(), place = this.ids.indexOf(id), shown = [...this.ids];
    this.at("list").setAttribute("aria-busy", "true");
    const trail = this.clicked;
    trail.push(id);
    this.tellTrail();
    if (!this.user) {
      this.session.push(...shown.filter((one) => one !== id).map((item) => ({ item, kind: "impression" })), { item: id, kind: "click" });
      this.session = this.session.slice(-SESSION_MOST);
      return this.refresh("", since, place);
    }
    try {
      const own = { user: this.user, scenario: SCENARIO, recommendation_id: this.answer.recommendation_id };
      const mark = Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join("");
      const { token } = await askJson("v1/events", { body: [
        { kind: "impression", items: shown, event_id: mark + "-i", ...own },
        { kind: "click", item: id, position: place + 1, event_id: mark + "-c", ...own },
      ] });
      if (trail === this.clicked) await this.refresh(token, since, place);
    } catch (error) {
      if (trail !== this.clicked) return; // somebody else is here by now
      trail.pop();
      this.tellTrail();
      this.at("list").removeAttribute("aria-busy");
      this.fail(error);
    }
  }

  tellTrail() {
    say(this.at("trail"), this.clicked.length ? "Clicked: " + this.clicked.slice(-4).map((id) => this.titles.of(id)).join(", ") +
      (this.clicked.length > 4 ? ` and ${this.clicked.length - 4} before` : "") : "Click an item and watch the list change.");
  }

  show(answer, tookMs, focus) {
    const before = this.ids, ids = answer.items.map((item) => item.item_id);
    const moves = movesOf(before, ids);
    this.answer = answer;
    this.ids = ids;
    this.at("error").hidden = true;
    this.slide(() => this.fill(answer.items, before.length ? moves : new Map()));
    say(this.at("source"), SOURCES[answer.source] || answer.source);
    say(this.at("state"), STATES[answer.user_state] || answer.user_state);
    say(this.at("took"), msText(answer.took_ms));
    say(this.at("trip"), msText(tookMs));
    say(this.at("token"), !("token_reached" in answer) ? NONE : answer.token_reached ? "yes" : "not yet");
    this.at("empty").hidden = ids.length > 0;
    const moved = [...moves.values()].filter((move) => move).length, fresh = [...moves.values()].filter((move) => move === null);
    if (before.length) {
      say(this.at("told"), `${plural(fresh.length, "item is", "items are")} new, ${plural(moved, "has", "have")} moved.`);
    } else say(this.at("told"), "");
    if (focus >= 0 && ids.length) this.rows.get(ids[Math.min(focus, ids.length - 1)]).button.focus({ preventScroll: true });
  }

  fill(items, moves) {
    const scores = items.map((item) => item.score);
    const wide = linear(Math.min(...scores), Math.max(...scores), 12, 100);
    const rows = new Map();
    items.forEach((item, place) => {
      const row = this.rows.get(item.item_id) || this.makeRow(item.item_id);
      rows.set(item.item_id, row);
      say(row.rank, String(place + 1));
      say(row.score, item.score.toFixed(3).replace("-", "−"));
      row.bar.style.width = (items.length > 1 ? wide(item.score) : 100) + "%";
      const move = moves.has(item.item_id) ? moves.get(item.item_id) : 0;
      say(row.move, move === null ? "new" : move > 0 ? "▲ " + move : move < 0 ? "▼ " + -move : "");
      row.move.className = "move " + (move === null ? "new" : move > 0 ? "up" : "down");
      row.button.setAttribute("aria-label", `Click ${this.titles.of(item.item_id)}, place ${place + 1}` +
        (move === null ? ", new" : move ? `, ${Math.abs(move)} ${move > 0 ? "up" : "down"}` : ""));
    });
    this.rows = rows;
    this.at("list").replaceChildren(...[...rows.values()].map((row) => row.line));
    this.name();
  }

  makeRow(id) {
    const line = add(null, "li");
    const button = add(line, "button", "item");
    button.type = "button";
    button.dataset.item = id;
    button.addEventListener("click", () => this.click(id));
    const rank = add(button, "span", "rank"), name = add(button, "span", "name"), move = add(button, "span", "move");
    const score = add(button, "span", "score"), bar = add(add(button, "span", "track"), "span", "fill");
    return { line, button, rank, name, move, score, bar };
  }

  /** Put in titles, which may come later than the list. */
  name() {
    for (const [id, row] of this.rows) {
      const title = this.titles.of(id);
      say(row.name, title);
      row.button.title = title === id ? id : `${title} (${id})`;
    }
  }

  /** Change the list, and let what stays slide from where it was to where it is. */
  slide(change) {
    const before = new Map([...this.rows].map(([id, row]) => [id, row.line.getBoundingClientRect().top]));
    change();
    if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const [id, { line }] of this.rows) {
      const by = before.has(id) ? before.get(id) - line.getBoundingClientRect().top : null;
      if (by === 0) continue;
      line.animate(by === null ? [{ opacity: 0, transform: "translateX(12px)" }, { opacity: 1, transform: "none" }]
        : [{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: SLIDE_MS, easing: "cubic-bezier(.2,.8,.2,1)" });
    }
  }
}
