// The bars of a report: delivered, deferred and bounced on each other, accepted as a line. How its tables are sorted stays in the
// address, so that a reload or a shared link keeps them.
"use strict";
(() => {
  const STACKED = ["bounced", "deferred", "delivered"]; // from the top: the whole is drawn first, what is below it over it
  const thousands = document.getElementById("plots")?.dataset.thousands ?? "\u202f";
  const words = (value) =>
    value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-GB").replaceAll(",", thousands);

  const draw = (place) => {
    const { labels, values } = JSON.parse(document.getElementById("lines-" + place.dataset.lines).textContent);
    const sum = (names) => labels.map((_, at) => names.reduce((total, name) => total + (values[name]?.[at] ?? 0), 0));
    const columns = [labels.map((_, at) => at), ...STACKED.map((_, from) => sum(STACKED.slice(from))), values.accepted ?? []];
    const own = (name) => (_, __, ___, at) => words(at === null || at === undefined ? null : values[name]?.[at]);
    const describe = (token, axis) => ({
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: [-0.6, labels.length - 0.4] },
        y: { range: (_, least, most) => [0, Math.max(1, (most ?? 0) * 1.05)] },
      },
      axes: [
        {
          ...axis,
          ticks: { show: false },
          grid: { show: false },
          incrs: [1, 2, 3, 4, 6, 7, 12, 14],
          space: 84,
          values: (_, places) => places.map((at) => labels[at] ?? ""),
        },
        { ...axis, ticks: { show: false }, size: 58, values: (_, numbers) => numbers.map(words) },
      ],
      series: [
        {
          label: place.dataset.lines === "inside" && labels[0]?.includes(":") ? "from" : "day",
          value: (_, at) => labels[at] ?? "–",
        },
        ...STACKED.map((name) => ({
          label: name,
          fill: token("--" + name),
          stroke: token("--" + name),
          width: 0,
          paths: uPlot.paths.bars({ size: [0.75, 40] }),
          points: { show: false },
          value: own(name),
        })),
        {
          label: "accepted",
          stroke: token("--accepted"),
          width: 1.75,
          points: { show: true, size: 4 },
          value: own("accepted"),
        },
      ],
    });
    window.waypostPlot(place, {
      legendHeight: () => (place.clientWidth < 420 ? 90 : place.clientWidth < 600 ? 58 : 36),
      describe,
      columns: () => columns,
    });
  };
  for (const place of document.querySelectorAll("[data-lines]")) draw(place);

  // A heading knows the sorting of its own table; that of the others is in the address.
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (!event.target.matches("a.sort")) return;
    const sorts = new URLSearchParams(location.search);
    for (const [table, column] of new URLSearchParams(event.detail.path)) sorts.set(table, column);
    event.detail.path = "?" + sorts;
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, xhr } = event.detail;
    if (xhr.status === 200 && requestConfig.elt.matches("a.sort"))
      history.replaceState(history.state, "", requestConfig.path + location.hash);
  });
})();
