// How the page speaks with the API: requests with the key, and the stream, which is taken up again when it ends.

const LIMITS = JSON.parse(document.body.dataset.limits); // of the API's requests
const WAIT_MS = Math.min(5000, LIMITS.wait_ms_max);
const KEY_NAME = "saros.key";
const SILENT_MS = 10_000; // a pulse comes each second
const PAUSES_MS = [500, 1000, 2000, 4000, 8000];

/** The API answered, and it was no. */
class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || "the answer was " + status);
    this.status = status;
    this.problem = problem;
  }
}

const keyInUse = () => sessionStorage.getItem(KEY_NAME) || "";

/** Ask the API; raises Refused where it says no, and TypeError where nobody answers. */
const ask = async (path, { body, method = body === undefined ? "GET" : "POST", signal } = {}) => {
  const key = keyInUse();
  const headers = { ...(key ? { "x-api-key": key } : {}), ...(body === undefined ? {} : { "content-type": "application/json" }) };
  const answer = await fetch(path, {
    method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return answer;
  throw new Refused(answer.status, await answer.json().catch(() => ({})));
};
const askJson = async (path, options) => (await ask(path, options)).json();
const query = (path, given) => path + "?" + new URLSearchParams(given);

/** What to tell of an error: what the API said, or that it said nothing. */
const errorText = (error) => !(error instanceof Refused) ? "The API does not answer."
  : error.status === 403 ? "This key may not do that: " + error.message + "."
    : error.status === 401 ? "A key is needed." : "The API said no: " + error.message + ".";

class Stream {
  /** `told(event, data)` gets what comes; `state(name, more)` is "open", "lost", "key" or "refused". */
  constructor(told, state) {
    this.told = told;
    this.state = state;
    this.failures = 0;
    this.wake = null;
  }

  /** Follow the stream for good: each end is followed by a pause, and the pauses grow. */
  async run() {
    for (;;) {
      let why = null;
      try {
        await this.follow();
      } catch (error) {
        why = error;
      }
      if (why instanceof Refused && (why.status === 401 || why.status === 403)) {
        this.state("key", { why, had: Boolean(keyInUse()) });
        await this.pause(0);
        this.failures = 0;
        continue;
      }
      const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)] * (0.8 + 0.4 * Math.random());
      this.failures += 1;
      this.state(why instanceof Refused ? "refused" : "lost", { why, until: Date.now() + pause });
      await this.pause(pause);
    }
  }

  /** Try at once. */
  now() {
    if (this.wake) this.wake();
  }

  /** Wait so long, or until `now`; 0 waits for that alone. */
  pause(ms) {
    return new Promise((done) => {
      const timer = ms ? setTimeout(() => this.now(), ms) : 0;
      this.wake = () => { clearTimeout(timer); this.wake = null; done(); };
    });
  }

  async follow() {
    const stop = new AbortController();
    // A connection that says nothing is none, whatever the network believes.
    let silent = setTimeout(() => stop.abort(), SILENT_MS);
    try {
      const answer = await ask("v1/live", { signal: stop.signal });
      this.state("open", {});
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(), read = sseReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silent);
        silent = setTimeout(() => stop.abort(), SILENT_MS);
        for (const { event, data } of read(value)) {
          this.failures = 0;
          this.told(event, JSON.parse(data));
        }
      }
    } finally {
      clearTimeout(silent);
      stop.abort();
    }
  }
}

/** Titles of items, asked for once each, few at a time; the id where there is none. */
class Titles {
  constructor(changed) {
    this.changed = changed;
    this.found = new Map();
    this.waiting = [];
    this.busy = 0;
  }

  of(id) {
    if (!this.found.has(id)) {
      if (this.found.size >= 1000) this.found.clear();
      this.found.set(id, "");
      if (this.waiting.length < 50) this.waiting.push(id);
      else this.found.delete(id);
      this.next();
    }
    return this.found.get(id) || id;
  }

  async next() {
    if (this.busy >= 3 || !this.waiting.length) return;
    this.busy += 1;
    const id = this.waiting.shift();
    try {
      const item = await askJson(query("v1/items", { item_id: id }));
      const title = item.properties && item.properties.title;
      if (title) {
        this.found.set(id, title);
        this.changed(id);
      }
    } catch { /* its id is its name */ }
    this.busy -= 1;
    this.next();
  }
}
