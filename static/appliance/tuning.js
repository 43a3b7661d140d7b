// Tuning: finding a parameter, counting what was changed, the what-if while it runs, and its charts.
"use strict";
(() => {
  const stages = { measuring: "measuring the mail there is", before: "simulating as it is", after: "simulating the change" };
  const token = () => JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // -- the page of parameters

  const values = document.getElementById("values");
  const fields = () => [...values.querySelectorAll("[data-was]")];
  const count = () => {
    let changed = 0;
    for (const field of fields()) {
      const back = values.elements["configured-" + field.name.slice(6)];
      const is = field.value.trim() !== field.dataset.was || Boolean(back?.checked);
      field.toggleAttribute("data-changed", is);
      field.disabled = Boolean(back?.checked);
      field.closest("td").querySelector("[data-human]")?.toggleAttribute("hidden", is); // it belongs to the value in force
      changed += is ? 1 : 0;
    }
    const bar = document.getElementById("draft-count");
    if (bar)
      bar.textContent = changed
        ? changed + (changed === 1 ? " value changed" : " values changed") + ", not applied"
        : "Nothing changed yet";
  };
  if (values) {
    values.addEventListener("input", count);
    values.addEventListener("reset", () => setTimeout(count));
    addEventListener("pageshow", count);
    document.getElementById("find")?.addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = 0;
      for (const group of document.querySelectorAll("[data-group]")) {
        let here = 0;
        for (const row of group.querySelectorAll("tbody tr")) {
          const text = row.querySelector(".what").textContent.toLowerCase() + " " + row.dataset.parameter.replaceAll("_", " ");
          row.hidden = !words.every((word) => text.includes(word));
          here += row.hidden ? 0 : 1;
        }
        group.hidden = !here;
        found += here;
      }
      document.getElementById("none-found").hidden = found > 0;
    });
  }

  // -- the dialog: which end is meant, and the what-if, which ends with it

  document.addEventListener("input", (event) => {
    const picks = event.target.dataset?.picks;
    if (!picks) return;
    event.target.form.querySelector('input[name="ends"][value="' + picks + '"]').checked = true;
  });

  let running = null;
  const stop = () => {
    running?.abort();
    running = null;
  };
  document.getElementById("dialog")?.addEventListener("close", stop);
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-stop]")) stop();
  });

  const ask = async (form) => {
    stop();
    const mine = (running = new AbortController());
    const bar = form.querySelector("progress"),
      stage = form.querySelector(".stage"),
      place = form.querySelector(".running");
    const result = form.querySelector(".result"),
      button = form.querySelector("button[type=submit]");
    const data = new URLSearchParams(new FormData(form));
    bar.value = 0;
    stage.textContent = "asking";
    place.hidden = false;
    button.disabled = true;
    const fail = (words) => {
      const notice = document.createElement("p");
      notice.className = "notice error";
      notice.setAttribute("role", "alert");
      notice.textContent = words;
      result.replaceChildren(notice);
    };
    try {
      const answer = await fetch(form.dataset.url, {
        method: "POST",
        body: data,
        headers: { "X-CSRFToken": token(), "HX-Request": "true" },
        signal: mine.signal,
      });
      if (!answer.ok) {
        fail("The portal answered " + answer.status + ".");
        return;
      }
      const reader = answer.body.getReader(),
        decoder = new TextDecoder();
      let rest = "",
        ended = false;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += decoder.decode(value, { stream: true });
        const lines = rest.split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const part = JSON.parse(line);
          if (part.error) {
            fail(part.error);
            ended = true;
          } else if (part.prediction) {
            ended = true;
            await show(form, part.prediction);
          } else {
            bar.value = part.progress;
            stage.textContent = stages[part.stage] || part.stage;
          }
        }
      }
      if (!ended) fail("The what-if ended without a result.");
    } catch {
      if (mine.signal.aborted) {
        if (form.isConnected && running === null) result.replaceChildren();
      } else fail("The portal does not answer. Nothing was changed.");
    } finally {
      place.hidden = true;
      button.disabled = false;
      if (running === mine) running = null;
    }
  };
  const show = async (form, number) => {
    await htmx.ajax("GET", form.dataset.prediction.replace("/0/", "/" + number + "/"), {
      target: "#what-if-result",
      swap: "innerHTML",
    });
    const input = document.querySelector('form.apply input[name="prediction"]');
    if (input) input.value = number;
  };
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form.what-if")) return;
    event.preventDefault();
    ask(event.target);
  });

  // -- charts

  const line = (label, name, dash, width = 2) => ({
    label,
    stroke: () => colour(name),
    dash,
    width,
    points: { show: false },
    spanGaps: true,
  });
  const axis = (more) => ({
    stroke: () => colour("--faint"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { stroke: () => colour("--line"), width: 1, size: 4 },
    font: "12px sans-serif",
    ...more,
  });
  const long = (s) =>
    s >= 172800
      ? +(s / 86400).toFixed(1) + " d"
      : s >= 7200
        ? +(s / 3600).toFixed(1) + " h"
        : s >= 120
          ? +(s / 60).toFixed(1) + " min"
          : +s.toFixed(1) + " s";
  const spans = [
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800,
  ];
  const shorten = (v) =>
    v >= 1e6 ? +(v / 1e6).toFixed(1) + "M" : v >= 1e4 ? +(v / 1e3).toFixed(1) + "k" : String(+v.toFixed(2));
  const options = (place, series, x) => ({
    width: Math.max(200, place.clientWidth),
    height: Math.max(120, place.clientHeight),
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x, y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.08)] } },
    axes: [
      axis(
        x.time
          ? { space: 80, size: 44, values: (_, times) => window.waypost.formats.ticks(times) } // a date is below its time
          : { space: 70, size: 30, incrs: spans, values: (_, times) => times.map(long) },
      ),
      axis({ size: 46, values: (_, ticks) => ticks.map(shorten) }),
    ],
    series: [{}, ...series],
  });
  const drawn = new Set();
  const draw = (place, series, data, x) => {
    place.replaceChildren();
    const chart = new uPlot(options(place, series, x), data, place);
    new ResizeObserver(() => {
      if (place.clientWidth) chart.setSize({ width: place.clientWidth, height: Math.max(120, place.clientHeight) });
    }).observe(place);
    drawn.add(chart);
    return chart;
  };
  document.addEventListener("waypost:theme", () => {
    for (const chart of drawn) chart.redraw();
  });

  const compare = (place, before, after) => {
    const last = Math.max(before.t.at(-1) || 1, after.t.at(-1) || 1);
    const tables = [
      [before.t, before.y],
      [after.t, after.y],
    ].map(([t, y]) => [t.slice(0, y.length), y]);
    draw(place, [line("before", "--faint", [6, 5]), line("after", "--accent")], uPlot.join(tables), {
      time: false,
      range: () => [0, last],
    });
  };
  const drawPrediction = (section) => {
    const { before, after, charts } = JSON.parse(section.dataset.predictionChart);
    section.dataset.drawn = "yes";
    const backlog = section.querySelector('[data-chart="backlog"]'),
      windows = section.querySelector('[data-chart="window"]');
    const select = section.querySelector("[data-subject]");
    if (!backlog) return; // there is nothing to compare
    compare(backlog, { t: before.t, y: before.backlog }, { t: after.t, y: after.backlog });
    for (const [at, [label]] of charts.entries()) select.add(new Option(label, at));
    const choose = () => {
      const [, series, name] = charts[select.value];
      compare(windows, { t: before.t, y: before[series][name] || [] }, { t: after.t, y: after[series][name] || [] });
    };
    select.addEventListener("change", choose);
    if (charts.length) choose();
    else {
      select.hidden = true;
      windows.textContent = "No destination has mail.";
    }
  };
  const drawPredictions = () => {
    for (const section of document.querySelectorAll("[data-prediction-chart]:not([data-drawn])")) drawPrediction(section);
  };
  document.addEventListener("htmx:afterSettle", drawPredictions);

  // -- afterwards: what is, beside what was predicted

  const afterwards = (section) => {
    const { since, lines } = JSON.parse(section.dataset.afterwards);
    const shown = document.querySelector("[data-prediction-chart]");
    const { after: predicted = null, destinations = [] } = shown ? JSON.parse(shown.dataset.predictionChart) : {};
    const SECONDS = 900,
      EARLIER = 30;
    const places = {
      backlog: section.querySelector('[data-chart="backlog"]'),
      window: section.querySelector('[data-chart="window"]'),
    };
    const seen = { t: [], backlog: [], window: [], limit: [] };
    let name = "",
      charts = {};
    const range = () => {
      const now = Date.now() / 1000,
        wide = Math.max(120, Math.min(SECONDS, Math.ceil((now - since + 20) / 60) * 60));
      return now - since > SECONDS ? [now - SECONDS, now] : [since - EARLIER, since + wide];
    };
    const guess = (y) => {
      if (!predicted || !y) return null;
      const [low, high] = range();
      const t = predicted.t.slice(0, y.length).map((each) => since + each);
      const kept = t.map((each, i) => [each, y[i]]).filter(([each]) => each >= low && each <= high + 60);
      return kept.length ? [kept.map((each) => each[0]), kept.map((each) => each[1])] : null;
    };
    const table = (y, now) => {
      const known = guess(y) || [[since], [null]];
      return uPlot.join([known, [seen.t, ...now]]);
    };
    const redraw = () => {
      const time = { time: true, range };
      const of = {
        window: [
          predicted?.window[name],
          [seen.window, seen.limit],
          [
            line("predicted", "--faint", [6, 5]),
            { ...line("window", "--accent"), spanGaps: false },
            { ...line("limit", "--bad", [2, 4], 1), spanGaps: false },
          ],
        ],
      };
      if (places.backlog)
        of.backlog = [predicted?.backlog, [seen.backlog], [line("predicted", "--faint", [6, 5]), line("now", "--accent")]];
      for (const [chart, [y, now, series]] of Object.entries(of)) {
        const data = table(y, now);
        if (charts[chart]) charts[chart].setData(data);
        else charts[chart] = draw(places[chart], series, data, time);
      }
    };
    const pick = async () => {
      const touched = section.querySelector("tr[data-name]")?.dataset.name ?? destinations[0];
      if (name || !touched) return;
      name = touched;
      section.querySelector(".of").textContent = name;
      try {
        const earlier = await (await fetch(lines + "?destination=" + encodeURIComponent(name))).json();
        const from = seen.t[0] ?? Infinity;
        const kept = earlier.t.map((t, i) => i).filter((i) => earlier.t[i] >= since - EARLIER && earlier.t[i] < from);
        seen.t.unshift(...kept.map((i) => earlier.t[i]));
        seen.backlog.unshift(...kept.map(() => null));
        for (const key of ["window", "limit"]) seen[key].unshift(...kept.map((i) => earlier[key]?.[i] ?? null));
      } catch {
        /* then the lines begin now */
      }
      redraw();
    };
    document.addEventListener("waypost:live", (event) => {
      const data = event.detail;
      pick();
      for (const row of section.querySelectorAll("tr[data-name]")) {
        const now = data.destinations?.[row.dataset.name];
        for (const cell of row.querySelectorAll("[data-cell]")) {
          const words = window.waypost.formats.number(now ? now[cell.dataset.cell] : null);
          if (cell.textContent !== words) cell.textContent = words;
        }
      }
      const at = data.core?.as_of ?? data.at,
        now = data.destinations?.[name];
      if (!data.core?.running || !at || at <= (seen.t.at(-1) ?? 0)) return;
      seen.t.push(at);
      seen.backlog.push(data.queue?.recipients ?? null);
      seen.window.push(now?.window ?? null);
      seen.limit.push(now?.limit ?? null);
      if (seen.t.length > SECONDS) for (const each of Object.values(seen)) each.shift();
      redraw();
    });
    pick();
    redraw();
  };
  document.addEventListener("DOMContentLoaded", () => {
    drawPredictions();
    for (const each of document.querySelectorAll("[data-afterwards]")) afterwards(each);
  });
})();
