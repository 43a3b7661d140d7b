// Destinations: a hint at those that came since the list was loaded, and the lines of one destination.
"use strict";
(() => {
  const KEPT_S = 900; // as the portal keeps them
  const { ticks } = window.waypost.formats;

  // -- a hint at destinations that are not in the list

  const changes = document.getElementById("changes");
  const listed = new Set(Array.from(document.querySelectorAll("tr[data-destination]"), (row) => row.dataset.destination));
  const filter = (document.getElementById("q")?.value || "").toLowerCase();
  const onlyTrouble = document.querySelector("input[name=trouble]")?.checked;
  const wholePage = !document.querySelector("nav.pager");
  const hint = (names) => {
    let count = 0;
    for (const [name, inTrouble] of Object.entries(names)) {
      if (listed.has(name) || (filter && !name.toLowerCase().includes(filter))) continue;
      if (inTrouble || (!onlyTrouble && wholePage)) count += 1;
    }
    changes.hidden = count === 0;
    const label = count === 1 ? "1 new destination: reload the list" : count + " new destinations: reload the list";
    if (changes.textContent !== label) changes.textContent = label;
  };
  document.addEventListener("waypost:live", (event) => {
    if (changes && event.detail.names) hint(event.detail.names);
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
            { ...axis, space: 80, values: (_, times) => ticks(times) },
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
    const row = event.detail.destination;
    if (!row) return;
    add(event.detail.core.as_of || Date.now() / 1000, row);
    draw();
  });
})();
