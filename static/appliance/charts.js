// Lines over time: the last minutes or the day, as they come.
"use strict";
(() => {
  const LEGEND_HEIGHT = 34;
  const clock = (at, parts) => new Date(at * 1000).toLocaleTimeString("en-GB", parts);
  const words = (value) => (value === null || value === undefined ? "–" : window.waypost.formats.number(value));

  // waypostLines(place, [{label, colour: "--accepted"}]) → {set(columns, spanS), push(row), last()}; columns: [times, values, …].
  // The last ``spanS`` seconds are shown, whether there are values from their beginning or not.
  window.waypostLines = (place, series) => {
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
          incrs: [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600],
          values: (_, times) => times.map((at) => clock(at, { hour: "2-digit", minute: "2-digit" })),
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
})();
