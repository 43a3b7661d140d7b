// The bars of a report: delivered, deferred and bounced on each other, accepted as a line; in the page's colours, redrawn when light turns dark.
"use strict";
(() => {
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const STACKED = ["bounced", "deferred", "delivered"]; // from the top: the whole is drawn first, what is below it over it
  const legendHeight = (place) => place.clientWidth < 420 ? 90 : 58;
  const words = (value) => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-GB").replaceAll(",", "\u202f");

  const draw = (place) => {
    const { labels, values } = JSON.parse(document.getElementById("lines-" + place.dataset.lines).textContent);
    const sum = (names) => labels.map((_, at) => names.reduce((total, name) => total + (values[name]?.[at] ?? 0), 0));
    const columns = [labels.map((_, at) => at), ...STACKED.map((_, from) => sum(STACKED.slice(from))), values.accepted ?? []];
    const own = (name) => (_, __, ___, at) => words(at === null || at === undefined ? null : values[name]?.[at]);
    const size = () => ({ width: Math.max(200, place.clientWidth), height: Math.max(150, place.clientHeight - legendHeight(place)) });
    let plot = null;
    const build = () => {
      plot?.destroy();
      const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
      plot = new uPlot({
        ...size(),
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { x: { time: false, range: [-0.6, labels.length - 0.4] }, y: { range: (_, least, most) => [0, Math.max(1, (most ?? 0) * 1.05)] } },
        axes: [
          { ...axis, grid: { show: false }, incrs: [1, 2, 3, 4, 6, 7, 12, 14], space: 84, values: (_, places) => places.map((at) => labels[at] ?? "") },
          { ...axis, size: 58, values: (_, numbers) => numbers.map(words) },
        ],
        series: [
          { label: place.dataset.lines === "inside" && labels[0]?.includes(":") ? "from" : "day", value: (_, at) => labels[at] ?? "–" },
          ...STACKED.map((name) => ({ label: name, fill: token("--" + name), stroke: token("--" + name), width: 0, paths: uPlot.paths.bars({ size: [0.75, 40] }), points: { show: false }, value: own(name) })),
          { label: "accepted", stroke: token("--accepted"), width: 1.75, points: { show: true, size: 4 }, value: own("accepted") },
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
  };
  for (const place of document.querySelectorAll("[data-lines]")) draw(place);
})();
