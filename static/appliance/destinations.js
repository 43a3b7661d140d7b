// Destinations, live: numbers change in their places, rows stay where they are until the reader asks; lines of one destination.
"use strict";
(() => {
  const formats = () => window.waypost.formats;
  const KEPT_S = 900; // as the portal keeps them

  // -- numbers

  const fill = (place, row) => {
    for (const cell of place.querySelectorAll("[data-field]")) {
      const now = row[cell.dataset.field];
      if (now === undefined) continue;
      const words = formats()[cell.dataset.format || "number"](now);
      if (cell.textContent !== words) cell.textContent = words;
    }
    const meter = place.querySelector(".meter");
    if (!meter || row.window === undefined) return;
    const full = Math.max(row.limit || 0, row.window || 0, row.busy || 0, 1);
    meter.querySelector(".open").setAttribute("width", (100 * (row.window || 0)) / full);
    meter.querySelector(".used").setAttribute("width", (100 * (row.busy || 0)) / full);
  };

  // -- states: the same words as the server's, where they changed since

  const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
  const badges = (row) => {
    const found = [];
    if (row.dead_until) found.push(["dead until " + clock(row.dead_until), "bad"]);
    if (row.suspended)
      found.push([row.suspended_until ? "suspended until " + clock(row.suspended_until) : "suspended", "warn"]);
    if (row.busy) found.push([row.window !== null && row.busy >= row.window ? "window full" : "busy", "accent"]);
    return found;
  };
  const kind = (row) =>
    [Math.round(row.dead_until || 0), row.suspended, Math.round(row.suspended_until || 0), ...badges(row)].join();
  const restate = (place, row) => {
    const states = place.querySelector(".states");
    const now = kind(row);
    if (!states || states.dataset.kind === now) return;
    const first = states.dataset.kind === undefined;
    states.dataset.kind = now;
    const found = badges(row);
    if (first || !found.length) {
      // What the server wrote is newer, or says more (failing, rate delay); only what has ended is taken away.
      if (!first) for (const badge of states.querySelectorAll(".bad, .warn, .accent")) badge.remove();
      return;
    }
    states.replaceChildren(
      ...found.flatMap(([words, look]) => {
        const badge = document.createElement("span");
        badge.className = "badge " + look;
        badge.textContent = words;
        return [badge, " "];
      }),
    );
  };

  const list = document.getElementById("destinations");
  const suspended = new Set(
    [...document.querySelectorAll(".patterns tr[data-destination]")].map((row) => row.dataset.destination),
  );
  const rows = new Map(
    list ? [...list.querySelectorAll("tr[data-destination]")].map((row) => [row.dataset.destination, row]) : [],
  );
  const changes = document.getElementById("changes");
  const wanted = (document.getElementById("q")?.value || "").toLowerCase();
  const onlyTrouble = document.querySelector("input[name=trouble]")?.checked;
  const wholePage = !document.querySelector("nav.pager");
  const hint = (destinations) => {
    let count = 0;
    for (const [name, row] of Object.entries(destinations)) {
      if (rows.has(name) || suspended.has(name) || (wanted && !name.toLowerCase().includes(wanted))) continue;
      if (row.dead_until || row.suspended || (!onlyTrouble && wholePage)) count += 1;
    }
    const words = count === 1 ? "One destination more since: show changes" : count + " destinations more since: show changes";
    if (changes.hidden === count > 0) changes.hidden = count === 0;
    if (count && changes.textContent !== words) changes.textContent = words;
  };

  document.addEventListener("waypost:live", (event) => {
    const destinations = event.detail.destinations || {};
    for (const [name, place] of rows) {
      const row = destinations[name];
      if (!row) continue;
      fill(place, row);
      restate(place, row);
    }
    if (changes) hint(destinations);
  });

  // -- lines of one destination

  const one = document.getElementById("destination");
  if (!one) return;
  const name = one.dataset.destination;
  const FIELDS = ["window", "limit", "busy", "success", "failure"];
  let data = { t: [], ...Object.fromEntries(FIELDS.map((field) => [field, []])) };
  const charts = [];
  const token = (css) => getComputedStyle(document.documentElement).getPropertyValue(css).trim();

  const chart = (id, lines, low) => {
    const place = document.getElementById(id);
    const size = () => ({ width: Math.max(200, place.clientWidth), height: 200 });
    const build = () => {
      const axis = {
        stroke: token("--soft"),
        grid: { stroke: token("--line"), width: 1 },
        ticks: { stroke: token("--line") },
        font: "12px sans-serif",
      };
      return new uPlot(
        {
          ...size(),
          cursor: { y: false },
          legend: { live: false },
          scales: { y: { range: (_, least, most) => [0, Math.max(low, (most ?? 0) * 1.1)] } },
          axes: [
            { ...axis, space: 80, values: (_, times) => times.map(clock) },
            { ...axis, size: 44 },
          ],
          series: [
            { label: "time" },
            ...lines.map(([label, , colour, dash]) => ({
              label,
              stroke: token(colour),
              width: 2,
              dash,
              points: { show: false },
              spanGaps: false,
            })),
          ],
        },
        rowsOf(),
        place,
      );
    };
    const rowsOf = () => [data.t, ...lines.map(([, field]) => data[field])];
    let picture = null;
    const draw = () => {
      if (picture) picture.setData(rowsOf());
      else if (window.uPlot) picture = build();
    };
    const again = () => {
      if (picture) {
        picture.destroy();
        picture = null;
      }
      draw();
    };
    new ResizeObserver(() => picture?.setSize(size())).observe(place);
    document.addEventListener("waypost:theme", again);
    charts.push(draw);
  };
  chart(
    "lines-window",
    [
      ["window", "window", "--accent"],
      ["limit", "limit", "--faint", [6, 4]],
      ["busy", "busy", "--deferred"],
    ],
    2,
  );
  chart(
    "lines-feedback",
    [
      ["good deliveries", "success", "--delivered"],
      ["site failures", "failure", "--bounced"],
    ],
    1,
  );
  const draw = () => charts.forEach((each) => each());

  const add = (at, row) => {
    if (data.t.length && at <= data.t[data.t.length - 1]) return;
    data.t.push(at);
    for (const field of FIELDS) data[field].push(typeof row[field] === "number" ? row[field] : null);
    while (data.t.length && data.t[0] < at - KEPT_S) {
      data.t.shift();
      for (const field of FIELDS) data[field].shift();
    }
  };

  const history = async () => {
    try {
      const answer = await fetch(one.dataset.history + "?destination=" + encodeURIComponent(name), {
        headers: { Accept: "application/json" },
      });
      if (!answer.ok) return;
      const told = await answer.json();
      if (!Array.isArray(told.t)) return;
      const later = data;
      data = { t: [...told.t] };
      for (const field of FIELDS) data[field] = told[field]?.length ? [...told[field]] : told.t.map(() => null);
      later.t.forEach((at, place) => add(at, Object.fromEntries(FIELDS.map((field) => [field, later[field][place]]))));
    } catch {
      /* the portal is away: the stream says so */
    }
  };
  history().then(draw);

  document.addEventListener("waypost:live", (event) => {
    const row = (event.detail.destinations || {})[name];
    if (!row) return;
    fill(one, row);
    restate(one, row);
    add(event.detail.core.as_of || Date.now() / 1000, row);
    draw();
  });
})();
