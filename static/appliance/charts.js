// Lines over time with uPlot, in the page's colours, as wide as their place, redrawn when light turns dark.
"use strict";
(() => {
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const LEGEND_HEIGHT = 34;

  // waypostLines(place, [{label, colour: "--accepted"}]) → {set(columns, spanS), push(row), last()}; columns: [times, values, …].
  // The last ``spanS`` seconds are shown, whether there are values from their beginning or not.
  window.waypostLines = (place, series) => {
    let columns = [[], ...series.map(() => [])];
    let spanS = 900;
    let plot = null;
    const size = () => ({ width: Math.max(200, place.clientWidth), height: Math.max(120, place.clientHeight - LEGEND_HEIGHT) });
    const build = () => {
      plot?.destroy();
      const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { stroke: token("--line"), width: 1 }, font: "12px sans-serif" };
      const words = (value) => value === null || value === undefined ? "–" : window.waypost.formats.number(value);
      plot = new uPlot({
        ...size(),
        cursor: { y: false },
        scales: { x: { range: (_, first, last) => [(last ?? Date.now() / 1000) - spanS, last ?? Date.now() / 1000] }, y: { range: (_, least, most) => [0, Math.max(1, (most ?? 0) * 1.05)] } },
        axes: [
          { ...axis, incrs: [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600], values: (_, times) => times.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
          { ...axis, size: 58, values: (_, values) => values.map(words) },
        ],
        series: [
          { value: (_, at) => at === null || at === undefined ? "–" : new Date(at * 1000).toLocaleTimeString("en-GB") },
          ...series.map((each) => ({ label: each.label, stroke: token(each.colour), width: 1.75, points: { show: false }, value: (_, value) => words(value) })),
        ],
      }, columns, place);
    };
    build();
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth === width) return;
      width = place.clientWidth;
      plot.setSize(size());
    }).observe(place);
    document.addEventListener("waypost:theme", build);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
    return {
      set(next, seconds) { columns = next; spanS = seconds; plot.setData(columns); },
      push(row) {
        let old = 0;
        while (old < columns[0].length && columns[0][old] < row[0] - spanS) old += 1;
        columns = columns.map((column, place) => [...column.slice(old), row[place]]);
        plot.setData(columns);
      },
      last() { return columns[0].at(-1) ?? 0; },
    };
  };
})();
