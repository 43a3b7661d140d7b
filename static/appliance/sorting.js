// Sorts the rows of one page of the queue. The queue has one order, that of its lanes, so only the page is sorted, and the page says so.
"use strict";
(() => {
  const table = document.querySelector("table.queue:has(button.sort)");
  if (!table) return;
  const body = table.tBodies[0];
  const place = document.getElementById("order");
  const own = place.querySelector("[data-own]");
  const sorted = place.querySelector("[data-sorted]");
  const unsort = place.querySelector("[data-unsort]");
  const text = (value) => value.toLowerCase();
  // How a kind of column is compared, the direction of the first click (1: ascending), and both directions in words.
  const kinds = {
    text: { value: text, first: 1, up: "A to Z", down: "Z to A" },
    age: { value: (arrived) => -Number(arrived), first: -1, up: "newest first", down: "oldest first" },
    time: { value: Number, first: 1, up: "soonest first", down: "latest first" },
    count: { value: Number, first: -1, up: "fewest first", down: "most first" },
    size: { value: Number, first: -1, up: "smallest first", down: "largest first" },
  };
  let by = null; // {button, direction}; null: as the queue is
  let places = 0;

  const number = () => {
    for (const row of body.rows) row.dataset.place ??= String(places++);
  };
  const compare = (a, b) => {
    if (by) {
      const { value } = kinds[by.button.dataset.kind];
      const column = by.button.closest("th").cellIndex;
      const [x, y] = [a, b].map((row) => row.cells[column].dataset.sort);
      if (!x !== !y) return x ? -1 : 1; // without a value: at the end in both directions
      const [u, v] = [value(x), value(y)];
      if (u !== v) return (u < v ? -1 : 1) * by.direction;
    }
    return Number(a.dataset.place) - Number(b.dataset.place);
  };
  const said = () => {
    const kind = kinds[by.button.dataset.kind];
    const reading = document.getElementById("reading");
    const rows = body.rows.length;
    const which = reading.hasAttribute("data-whole")
      ? "These are all messages of this list."
      : reading.hasAttribute("data-going")
        ? "Only the " + rows + " read so far are sorted."
        : "Only the " + rows + " messages on this page are sorted, not the queue.";
    const none = [...body.rows].some((row) => !row.cells[by.button.closest("th").cellIndex].dataset.sort);
    const direction = by.direction > 0 ? kind.up : kind.down;
    return "Sorted by " + by.button.dataset.what + ", " + direction + (none ? ", those without one last" : "") + ". " + which;
  };
  const show = () => {
    number();
    const wanted = [...body.rows].sort(compare);
    if (wanted.some((row, at) => row !== body.rows[at])) body.append(...wanted);
    for (const button of table.querySelectorAll("button.sort")) {
      const direction = by?.button === button ? (by.direction > 0 ? "ascending" : "descending") : "none";
      button.closest("th").setAttribute("aria-sort", direction);
    }
    own.hidden = Boolean(by);
    sorted.hidden = unsort.hidden = !by;
    const words = by ? said() : "";
    if (sorted.textContent !== words) sorted.textContent = words;
  };

  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (!button) return;
    by = { button, direction: by?.button === button ? -by.direction : kinds[button.dataset.kind].first };
    show();
  });
  unsort.addEventListener("click", () => {
    const { button } = by;
    by = null;
    show();
    button.focus(); // the one that was selected is hidden now
  });
  document.body.addEventListener("htmx:afterSettle", show); // more rows of the page were read
  show();
})();
