// The page: what each pulse changes, and what is said when there is none.

const here = (id) => document.getElementById(id);
const LINES = ["c-blue", "c-orange", "c-green", "c-violet"];
const SCENARIO_LINES = { model: "c-blue", random: "c-orange" };

let points = [];
let pulse = null;
let looked = null; // the time that the pointer is at
let link = { state: "connecting" };

const series = (key, label, cls) => ({ key, label, cls, get: (point) => point[key] });
const CHARTS = {
  clicks: {
    title: "Click rate", about: "of the items shown, last minute: the gap is what the model has learned", series: [], text: percentText,
    tick: percentTick, axis: { least: 0.04, most: 1 }, extra: "lift over the control",
  },
  accuracy: {
    title: "Progressive accuracy", about: "pairs in the right order, judged before they are learned, last minute",
    series: [series("accuracy", "model", "c-green"), series("baseline", "items’ rates alone", "c-grey"),
      { key: "chance", label: "chance", cls: "c-grey dashed", get: (point) => (known(point.accuracy) ? 0.5 : null) }],
    text: percentText, tick: percentTick, axis: { free: true, least: 0.04, most: 1 },
  },
  events: {
    title: "Events a second", about: "from the log into the model, last 5 s",
    series: [series("events_per_s", "events/s", "c-teal")], text: rateText, tick: countTick, axis: { least: 10 },
  },
  lag: {
    title: "Lag", about: "how far the model is behind the log",
    series: [series("lag_s", "behind", "c-amber")], text: secondsText, tick: secondsTick, axis: { least: 0.1 },
  },
  servable: {
    title: "Event to answer", about: "from the log to what is served, last 30 s",
    series: [series("p50", "half within", "c-violet"), series("p99", "99 % within", "c-pink")],
    text: msText, tick: msTick, axis: { least: 10 },
  },
};

const look = (time) => {
  looked = time;
  drawCharts();
};
const charts = Object.fromEntries([...document.querySelectorAll("[data-chart]")].map((root) =>
  [root.dataset.chart, new Chart(root, CHARTS[root.dataset.chart], look)]));

const drawCharts = () => {
  if (document.hidden) return;
  if (looked !== null && (!points.length || looked < points[0].time)) looked = null;
  const lively = sinceFirst(points);
  for (const chart of Object.values(charts)) chart.show(lively, looked);
};

const askToConfirm = (title, text) => new Promise((done) => {
  const dialog = here("confirm");
  say(here("confirm-title"), title);
  say(here("confirm-text"), text);
  dialog.returnValue = "";
  dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  dialog.showModal();
});

const titles = new Titles(() => { play.name(); showTop(); });
const play = new Playground(here("play"), titles);
const gate = new GateView(here("gate"), askToConfirm);

/** Give each scenario that was seen its line. */
const nameScenarios = (scenarios) => {
  const names = scenarios.map((one) => one.scenario).slice(0, LINES.length);
  if (names.join("\n") === charts.clicks.series.map((one) => one.key).join("\n")) return;
  const rest = LINES.filter((cls) => !names.some((name) => SCENARIO_LINES[name] === cls));
  charts.clicks.setSeries(names.map((name) => ({
    key: name, label: name === "random" ? "random control" : name, cls: SCENARIO_LINES[name] || rest.shift(),
    get: (point) => (point.scenarios || {})[name],
  })));
};

const noteOn = (chart, text) => {
  charts[chart].note.hidden = !text;
  say(charts[chart].note, text);
};

const showNotes = () => {
  const named = Object.fromEntries(pulse.scenarios.map((one) => [one.scenario, one]));
  const lift = liftOf(named.model, named.random);
  const { extra, extraLabel } = charts.clicks;
  say(extra, lift ? pointsText(lift.lift) + " pts" : NONE);
  extra.classList.toggle("good", Boolean(lift && lift.low > 0));
  say(extraLabel, lift ? `lift, 95 %: ${pointsText(lift.low)} to ${pointsText(lift.high)}` : "lift over the control");
  noteOn("clicks", lift ? (lift.times ? `${fixed(lift.times, 2)} × the rate of the control, of ` : "Of ") +
    `${plural(named.model.shown + named.random.shown, "item", "items")} shown since the API began`
    : "Lift is known when both the model’s slates and random ones were shown.");
  const { learning, events, lag } = pulse;
  noteOn("accuracy", known(learning.loss) ? `Loss ${fixed(learning.loss, 3)}, by the items’ rates alone ` +
    `${fixed(learning.baseline_loss, 3)} · ${plural(learning.blocks, "block", "blocks")}` : "No block in the last minute.");
  const kinds = Object.entries(events.kinds).filter(([, count]) => count).sort((a, b) => b[1] - a[1]).slice(0, 2)
    .map(([kind, count]) => plural(count, kind.replaceAll("_", " "), kind.replaceAll("_", " ") + "s"));
  noteOn("events", `${countText(events.total)} in all` + (kinds.length ? ": " + kinds.join(", ") : ""));
  noteOn("lag", plural(lag.messages, "message waits", "messages wait"));
  noteOn("servable", `${plural(pulse.items, "item", "items")} served, ${plural(pulse.users_in_memory, "user", "users")} in memory`);
};

const showTop = () => {
  if (!pulse) return;
  const most = Math.max(...pulse.top.map((item) => item.rate), 1e-9);
  here("top").replaceChildren(...pulse.top.map((item) => {
    const line = add(null, "li");
    const name = add(line, "span", "name", titles.of(item.item_id));
    name.title = item.item_id;
    add(line, "span", "score", percentText(item.rate));
    add(add(line, "span", "track"), "span", "fill").style.width = 100 * item.rate / most + "%";
    return line;
  }));
  here("top-empty").hidden = pulse.top.length > 0;
};

const showDead = () => {
  const reasons = Object.entries(pulse.dead).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  here("dead").replaceChildren(...reasons.flatMap(([reason, count]) =>
    [add(null, "dt", "", reason.replaceAll("_", " ")), add(null, "dd", "", countText(count))]));
  here("dead-empty").hidden = reasons.length > 0;
};

const showEmpty = () => {
  const empty = pulse.ready && !pulse.events.total && !pulse.items;
  here("empty").hidden = !empty;
  if (!empty) return;
  const lines = [
    `curl ${new URL("v1/events", location.href).href} -H 'content-type: application/json' ` +
      (keyInUse() ? "-H \"x-api-key: $KEY\" " : "") + "-d '[",
    "  {\"kind\": \"impression\", \"user\": \"ann\", \"items\": [\"alien\", \"brazil\", \"clue\"], \"scenario\": \"model\"},",
    "  {\"kind\": \"click\", \"user\": \"ann\", \"item\": \"brazil\", \"scenario\": \"model\"}]'",
  ];
  say(here("curl"), lines.join("\n"));
};

/** Say how things stand: in a word beside the name, and, where something is to be said, in a line below. */
const showState = () => {
  const seconds = link.until ? Math.max(0, Math.ceil((link.until - Date.now()) / 1000)) : 0;
  const next = seconds ? `Next try in ${seconds} s.` : "Trying again …";
  const old = pulse ? ` Shown is what was known at ${clockText(pulse.time)}.` : "";
  let state = "ready", word = "ready", banner = "";
  if (link.state === "connecting") [state, word] = ["wait", "connecting"];
  else if (link.state === "key") [state, word] = ["wait", "key needed"];
  else if (link.state === "lost") [state, word, banner] = ["bad", "connection lost", `The API does not answer.${old} ${next}`];
  else if (link.state === "refused") {
    [state, word, banner] = ["bad", "no stream", `The API gives no stream: ${link.why.message}.${old} ${next}`];
  } else if (!pulse) [state, word] = ["wait", "connecting"];
  else if (!pulse.ready) [state, word, banner] = ["wait", "starting", "Not ready yet: " + pulse.why_not_ready.join("; ") + "."];
  else if (pulse.stale) {
    [state, word, banner] = ["wait", "stale", "A part of the system is away: answers come from memory until it is back."];
  }
  here("state").dataset.state = state;
  say(here("state-word"), word);
  say(here("banner-text"), banner);
  here("banner").hidden = !banner;
  here("banner").dataset.state = state;
  here("retry").hidden = state !== "bad";
  here("ask-key").hidden = link.state !== "key";
  here("known").hidden = link.state === "key" && !pulse; // nothing is
  here("forget-key").hidden = !keyInUse() || link.state === "key";
  document.body.dataset.link = link.state;
};

const showPulse = () => {
  say(here("model"), "model " + pulse.model);
  document.title = `${pulse.model} · Saros`;
  say(here("rate"), rateText(pulse.events.per_s));
  say(here("uptime"), `version ${pulse.version} · up ${durationText(pulse.uptime_s)}` + (pulse.embedded ? " · embedded broker" : ""));
  nameScenarios(pulse.scenarios);
  showState();
  showEmpty();
  showNotes();
  drawCharts();
  gate.show(pulse);
  showTop();
  showDead();
  if (pulse.ready && pulse.items) play.begin();
};

const stream = new Stream((event, data) => {
  if (event === "history") {
    points = data.points.slice(-KEPT_S);
    drawCharts();
  } else if (event === "pulse") {
    pulse = data;
    points = withPoint(points, pointOf(pulse));
    showPulse();
  }
}, (state, more) => {
  const asked = link.state === "key";
  link = { state, ...more };
  if (state === "key") {
    say(here("key-why"), link.why.status === 403 ? errorText(link.why) : link.had ? "That key is not known here." : "");
    if (!asked || link.had) here("key").select();
  }
  showState();
  if (state === "key") here("key").focus();
});

here("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = here("key").value.trim();
  if (!key) return;
  sessionStorage.setItem(KEY_NAME, key);
  here("key").value = "";
  link = { state: "connecting" };
  showState();
  stream.now();
});
here("forget-key").addEventListener("click", () => {
  sessionStorage.removeItem(KEY_NAME);
  location.reload();
});
here("retry").addEventListener("click", () => stream.now());
here("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(here("curl").textContent);
    say(here("copy"), "Copied");
  } catch {
    getSelection().selectAllChildren(here("curl"));
  }
});
// A link sends no header: with a key its page is fetched here, and shown from memory.
here("metrics").addEventListener("click", async (event) => {
  if (!keyInUse()) return;
  event.preventDefault();
  try {
    const text = await (await ask("metrics")).text();
    open(URL.createObjectURL(new Blob([text], { type: "text/plain" })), "_blank");
  } catch (error) {
    say(here("banner-text"), errorText(error));
    here("banner").hidden = false;
  }
});
document.addEventListener("visibilitychange", drawCharts);
setInterval(() => { if (link.until) showState(); }, 500);
showState();
stream.run();
