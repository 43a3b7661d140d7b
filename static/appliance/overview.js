// The overview, live: lines, lanes, trouble, processes, disks and the balance. Strangers' text comes made harmless, and goes in as text.
"use strict";
(() => {
  const LINES = ["accepted", "delivered", "deferred", "bounced"];
  const LIVE_S = 900,
    DAY_S = 86400;
  const GAP_S = 15; // longer without a picture, and the lines are asked for again
  const byId = (id) => document.getElementById(id);
  const say = (place, words) => {
    if (place && place.textContent !== words) place.textContent = words;
  };
  const element = (name, className, words) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (words !== undefined) made.textContent = words;
    return made;
  };

  // -- lines

  const place = byId("lines");
  const lines = window.waypostLines(
    place,
    LINES.map((name) => ({ label: name, colour: "--" + name })),
  );
  let span = "live";
  let asking = false;
  const fetchLines = async () => {
    if (asking) return;
    asking = true;
    const asked = span;
    try {
      const answer = await fetch(place.dataset.history + (asked === "day" ? "?span=day" : ""));
      if (answer.ok && asked === span) {
        const data = await answer.json();
        lines.set([data.t, ...LINES.map((name) => data[name] || [])], asked === "day" ? DAY_S : LIVE_S);
      }
    } catch {
      /* the frame says that the portal does not answer; the next picture asks again */
    } finally {
      asking = false;
    }
    if (asked !== span) fetchLines();
  };
  for (const button of document.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      for (const each of document.querySelectorAll("[data-span]")) each.setAttribute("aria-pressed", String(each === button));
      fetchLines();
    });
  }
  setInterval(() => {
    if (span === "day") fetchLines();
  }, 60000);
  const draw = (data) => {
    if (span !== "live" || asking || !data.core.running || data.core.as_of <= lines.last()) return;
    if (data.core.as_of - lines.last() > GAP_S) fetchLines();
    else lines.push([data.core.as_of, ...LINES.map((name) => data.pace[name])]);
  };

  // -- tables

  const lanes = byId("lanes");
  const showLanes = (rows, format) => {
    for (const [lane, row] of Object.entries(rows)) {
      let there = [...lanes.rows].find((each) => each.dataset.lane === lane);
      if (!there) {
        there = lanes.insertRow();
        there.dataset.lane = lane;
        const link = element("a", "", lane);
        link.href = lanes.dataset.queue + "?lane=" + encodeURIComponent(lane);
        there.insertCell().append(link);
        for (const name of ["", "messages", "recipients"]) {
          const cell = there.insertCell();
          cell.className = "num";
          if (name) cell.dataset[name] = "";
          else if (row.interval_s) cell.textContent = format.span(row.interval_s);
        }
      }
      say(there.querySelector("[data-messages]"), format.number(row.messages));
      say(there.querySelector("[data-recipients]"), format.number(row.recipients));
    }
    for (const each of Array.from(lanes.rows)) if (!(each.dataset.lane in rows)) each.remove();
  };

  // Rows are kept while there are as many: a reader's place and the keyboard's mark stay.
  const fill = (body, rows, cells) => {
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((row, at) => cells(body.rows[at] || body.insertRow(), row));
  };
  const cell = (row, at, className) => {
    while (row.cells.length <= at) row.insertCell();
    if (className && row.cells[at].className !== className) row.cells[at].className = className;
    return row.cells[at];
  };
  const bdi = (place, words) => {
    if (place.firstElementChild?.tagName !== "BDI" || place.childNodes.length > 1) place.replaceChildren(element("bdi"));
    say(place.firstElementChild, words);
  };
  const showTrouble = (rows, format) => {
    fill(byId("trouble"), rows, (row, each) => {
      const name = cell(row, 0, "name");
      if (!name.querySelector("a")) {
        const link = element("a");
        link.dataset.open = "";
        name.replaceChildren(link);
      }
      const link = name.querySelector("a");
      if (link.getAttribute("href") !== each.url) link.href = each.url;
      bdi(link, each.text);
      const state = cell(row, 1);
      if (!state.querySelector(".badge")) state.replaceChildren(element("span", "badge"));
      state.firstElementChild.className = "badge " + (each.kind === "suspended" ? "warn" : "bad");
      const until = each.until ? " until " + new Date(each.until * 1000).toLocaleTimeString("en-GB") : "";
      say(state.firstElementChild, each.kind + until);
      say(cell(row, 2, "num"), format.number(each.queued));
      say(cell(row, 3, "num"), format.share(each.success_share));
      bdi(cell(row, 4, "reason"), each.reason);
    });
    byId("no-trouble").hidden = rows.length > 0;
  };
  const showProcesses = (rows, now, format) =>
    fill(byId("processes"), rows, (row, each) => {
      say(cell(row, 0), each.name);
      say(cell(row, 1, "num"), each.pid === null ? "gone" : String(each.pid));
      say(cell(row, 2, "num"), String(each.restarts));
      say(cell(row, 3, "num"), each.pid === null ? "–" : format.age(now - each.since));
    });
  const showDisks = (disks, format) => {
    const place = byId("disks");
    if (!disks.length) return;
    if (place.querySelectorAll(".disk").length !== disks.length) {
      place.replaceChildren(
        ...disks.map((disk) => {
          const made = element("div", "disk");
          const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
          for (const [name, value] of [
            ["class", "meter"],
            ["viewBox", "0 0 100 6"],
            ["preserveAspectRatio", "none"],
            ["aria-hidden", "true"],
          ])
            svg.setAttribute(name, value);
          for (const name of ["all", "used"]) {
            const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
            for (const [key, value] of [
              ["class", name],
              ["width", 100],
              ["height", 6],
            ])
              bar.setAttribute(key, value);
            svg.append(bar);
          }
          made.append(element("strong", "", disk.what), " ", element("bdi", "mono", disk.path), svg, element("span", "faint"));
          return made;
        }),
      );
    }
    disks.forEach((disk, at) => {
      const there = place.querySelectorAll(".disk")[at];
      const used = 100 * (1 - disk.free_bytes / Math.max(1, disk.total_bytes));
      const bar = there.querySelector(".meter rect:last-child");
      bar.setAttribute("width", used.toFixed(1));
      bar.setAttribute("class", disk.free_bytes <= disk.reserve_bytes ? "over" : "used");
      say(
        there.querySelector("span"),
        format.size(disk.free_bytes) +
          " of " +
          format.size(disk.total_bytes) +
          " free, " +
          format.size(disk.reserve_bytes) +
          " kept in reserve",
      );
    });
  };
  const showOldest = (oldest, now, format) => {
    const place = byId("oldest");
    if (!oldest) {
      say(place, "–");
      return;
    }
    const words = format.age(now - oldest.arrived_at) + " old, from ";
    if (!place.querySelector("a")) place.replaceChildren(element("a"));
    const link = place.firstElementChild;
    if (link.getAttribute("href") !== oldest.url) link.href = oldest.url;
    if (link.childNodes.length !== 2) link.replaceChildren(document.createTextNode(""), element("bdi"));
    if (link.firstChild.data !== words) link.firstChild.data = words;
    say(link.lastChild, oldest.sender || "<>");
  };

  // -- the balance goes on from what had been counted when it began

  const balance = byId("balance");
  let began = JSON.parse(balance.dataset.began);
  const CAME = ["queued_at_start", "accepted", "undeleted"];
  const WENT = ["delivered", "bounced", "expired", "deleted"];
  const showBalance = (totals, format) => {
    if (began.started_at !== totals.started_at) {
      // another manager counts from its own start
      began = { at: totals.started_at, started_at: totals.started_at, queued: totals.queued_at_start };
      say(
        byId("balance-since"),
        "since " + new Date(began.at * 1000).toLocaleTimeString("en-GB") + ", when the manager was started",
      );
    }
    const amounts = { queued_at_start: began.queued, queued: totals.queued };
    for (const name of ["accepted", "undeleted", ...WENT]) amounts[name] = totals[name] - (began[name] || 0);
    for (const [name, amount] of Object.entries(amounts))
      say(balance.querySelector(`[data-balance="${name}"]`), format.number(amount));
    const sum = (names) => names.reduce((all, name) => all + amounts[name], 0);
    const difference = sum(CAME) - sum(WENT) - amounts.queued;
    const verdict = byId("balance-verdict");
    verdict.className = difference ? "bad" : "good";
    say(verdict, difference ? "It does not balance: a difference of " + difference + "." : "It balances.");
  };

  const fault = (core) =>
    core.stalled
      ? "Next to nothing is delivered: " + core.stalled
      : core.restored
        ? "Mail is held: " + core.restored + ". Release it in the queue, filtered by this reason."
        : core.tuned_damage
          ? "tuned.toml is damaged: " + core.tuned_damage
          : "";

  fetchLines();
  document.addEventListener("waypost:live", (event) => {
    const data = event.detail,
      format = window.waypost.formats;
    draw(data);
    if (data.queue) showLanes(data.queue.lanes, format);
    showTrouble(data.trouble, format);
    showProcesses(data.processes, data.at, format);
    showDisks(data.disks, format);
    showOldest(data.oldest, data.at, format);
    if (data.totals) showBalance(data.totals, format);
    const words = fault(data.core);
    byId("fault").hidden = !words;
    say(byId("fault"), words);
  });
})();
