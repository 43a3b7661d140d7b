// The base of every plot of lines and bars: as wide as its place, in the page's colours, rebuilt when the theme changes.
"use strict";
(() => {
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // waypostPlot(place, {legendHeight(place), describe(token, axis), columns()}) → {redraw()}
  // ``describe`` returns uPlot's options except the size, again for each theme. ``columns`` returns the data to draw.
  window.waypostPlot = (place, { legendHeight, describe, columns }) => {
    let plot = null;
    const size = () => ({
      width: Math.max(200, place.clientWidth),
      height: Math.max(120, place.clientHeight - legendHeight(place)),
    });
    const build = () => {
      plot?.destroy();
      const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, font: "12px sans-serif" };
      plot = new uPlot({ ...size(), ...describe(token, axis) }, columns(), place);
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
      redraw() {
        plot.setData(columns());
      },
    };
  };
})();
