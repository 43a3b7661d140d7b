// The lines of the overview: accepted, delivered, deferred and bounced recipients per minute.
"use strict";
(() => {
  const LEGEND_HEIGHT = 34;
  const { clock, ticks } = window.waypost.formats;
  const words = (value) => (value === null || value === undefined ? "–" : window.waypost.formats.number(value));

  // linesIn(place, [{label, colour: "--accepted"}]) → {set(columns, spanS), push(row), last()}; columns: [times, values, …].
  // The last ``spanS`` seconds are shown, whether there are values from their beginning or not.
  const linesIn = (place, series) => {
    let columns = [[], ...series.map(() => [])];
    let spanS = 900;
    const describe = (token, axis) => ({
      cursor: { y: false },
      scales: {
        x: { range: (_, first, last) => [(last ?? Date.now() / 1000) - spanS, last ?? Date.now() / 1000] },
        y: { range: (_, least, most) => [0, Math.max(1, (most ?? 0) * 1.05)] },
      },
      axes: [
        {
          ...axis,
          ticks: axis.grid,
          incrs: [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200],
          space: 80, // a date is that wide
          values: (_, times) => ticks(times, { hour: "2-digit", minute: "2-digit" }),
        },
        { ...axis, ticks: axis.grid, size: 58, values: (_, values) => values.map(words) },
      ],
      series: [
        { value: (_, at) => (at === null || at === undefined ? "–" : clock(at)) },
        ...series.map((each) => ({
          label: each.label,
          stroke: token(each.colour),
          width: 1.75,
          points: { show: false },
          value: (_, value) => words(value),
        })),
      ],
    });
    const plot = window.waypostPlot(place, { legendHeight: () => LEGEND_HEIGHT, describe, columns: () => columns });
    return {
      set(next, seconds) {
        columns = next;
        spanS = seconds;
        plot.redraw();
      },
      push(row) {
        let old = 0;
        while (old < columns[0].length && columns[0][old] < row[0] - spanS) old += 1;
        columns = columns.map((column, place) => [...column.slice(old), row[place]]);
        plot.redraw();
      },
      last() {
        return columns[0].at(-1) ?? 0;
      },
    };
  };

  // -- the lines of the overview: the last 15 minutes, updated live, or the last 24 hours

  const LINES = ["accepted", "delivered", "deferred", "bounced"];
  const LIVE_S = 900;
  const DAY_S = 86400;
  const GAP_S = 15; // after a longer interruption, the lines are fetched again
  const chart = document.getElementById("lines");
  const lines = linesIn(
    chart,
    LINES.map((name) => ({ label: name, colour: "--" + name })),
  );
  const buttons = document.querySelectorAll("[data-span]");
  let span = "live";
  let fetching = false;
  const fetchLines = async () => {
    if (fetching) return;
    fetching = true;
    const fetched = span;
    try {
      const answer = await fetch(chart.dataset.history + (fetched === "day" ? "?span=day" : ""));
      if (answer.ok && fetched === span) {
        const data = await answer.json();
        lines.set([data.t, ...LINES.map((name) => data[name] || [])], fetched === "day" ? DAY_S : LIVE_S);
      }
    } catch {
      /* live.js reports that the portal does not answer; the next event fetches again */
    } finally {
      fetching = false;
    }
    if (fetched !== span) fetchLines();
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      fetchLines();
    });
  }
  setInterval(() => {
    if (span === "day") fetchLines();
  }, 60000);
  document.addEventListener("waypost:live", (event) => {
    const { core, pace } = event.detail;
    if (span !== "live" || fetching || !core.running || !pace || core.as_of <= lines.last()) return;
    if (core.as_of - lines.last() > GAP_S) fetchLines();
    else lines.push([core.as_of, ...LINES.map((name) => pace[name])]);
  });
  fetchLines();
})();
