"use strict";
// Bills every fleet of the report again. A bill is formulas of the form a*b*(c - d*e) and their inputs, as in the tables.
(() => {
  const data = JSON.parse(document.getElementById("bills").textContent);
  const knobs = new Map(data.knobs.map((knob) => [knob.id, knob]));
  const POINTS = 60;

  const factors = data.formulas.map((formula) =>
    formula.replaceAll(" ", "").split("*(").map((factor) =>
      factor.replaceAll(")", "").split("-").map((term) => term.split("*"))));

  // A knob scales what follows it; from a plan's zero nothing scales, so there it is the value itself.
  function input(line, name, at) {
    const value = line[1][name] === undefined ? Number(name) : line[1][name];
    const followed = line[2][name];
    if (followed === undefined) return value;
    const planned = knobs.get(followed).value;
    return planned ? value * at[followed] / planned : at[followed];
  }

  function billed(line, at) {
    return factors[line[0]].reduce((total, terms) => total * terms.reduce((sum, names, place) =>
      sum + (place ? -1 : 1) * names.reduce((product, name) => product * input(line, name, at), 1), 0), 1);
  }

  const stop = (id, at) => knobs.has(id) ? knobs.get(id).stops.indexOf(at[id]) : 0;

  function totals(at) {
    const term = stop("term", at), load = stop("load", at);
    const units = data.units.map((byTerm) => byTerm[term].reduce((sum, line) => sum + billed(line, at), 0));
    return data.fleets.map((fleet) => fleet.counts[load] === null ? Infinity :
      fleet.counts[load].reduce((sum, [unit, count]) => sum + units[unit] * count, 0));
  }

  const cheapest = (all) => all.indexOf(Math.min(...all));

  function usd(amount) {
    if (!Number.isFinite(amount)) return "not possible";
    const size = Math.abs(amount), sign = amount < 0 ? "-" : "";
    if (size >= 1e8) return `${sign}$${Math.round(size / 1e6).toLocaleString("en-US")}M`;
    if (size >= 1e6) return `${sign}$${(size / 1e6).toFixed(2)}M`;
    return size >= 1e4 ? `${sign}$${Math.round(size / 1e3)}k` : `${sign}$${Math.round(size)}`;
  }

  function said(knob, value) {
    const shown = Number(value.toPrecision(3));
    const unit = shown === 1 && knob.one ? knob.one : knob.unit;
    return `${knob.before}${knob.before ? shown.toLocaleString("en-US") : shown} ${unit}`.trim();
  }

  const planned = Object.fromEntries(data.knobs.map((knob) => [knob.id, knob.value]));
  let at = { ...planned };
  const find = (kind, id) => document.querySelector(`[data-${kind}="${CSS.escape(id)}"]`);

  function row(place, total, best) {
    const fleet = data.fleets[place];
    const cells = [fleet.name, usd(fleet.planned), usd(total), total === best ? "cheapest" : `+${usd(total - best)}`];
    const line = document.createElement("tr");
    line.className = total === best ? "total" : "";
    line.dataset.fleet = place;
    line.dataset.usd = Number.isFinite(total) ? total : "";
    cells.forEach((text, column) => {
      const cell = document.createElement("td");
      cell.className = column ? "n" : "";
      cell.textContent = text;
      if (!column) {
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.style.background = fleet.colour;
        cell.prepend(mark);
      }
      line.append(cell);
    });
    return line;
  }

  // The winner along one knob, all others as they stand.
  function along(knob) {
    const slider = find("knob", knob.id);
    const least = Number(slider.min), most = Number(slider.max);
    const places = knob.stops.length ? knob.stops :
      Array.from({ length: POINTS + 1 }, (_, place) => least + (most - least) * place / POINTS);
    return places.map((value) => ({ value, winner: cheapest(totals({ ...at, [knob.id]: value })) }));
  }

  function strip(knob) {
    const seen = along(knob), bar = find("strip", knob.id);
    bar.replaceChildren(...seen.map(({ winner }) => {
      const piece = document.createElement("i");
      piece.style.background = data.fleets[winner].colour;
      return piece;
    }));
    const turns = seen.slice(1).map((entry, place) => [seen[place], entry]).filter(([a, b]) => a.winner !== b.winner);
    find("turn", knob.id).textContent = turns.map(([before, after]) =>
      `about ${said(knob, (before.value + after.value) / (knob.stops.length ? 1 : 2) - (knob.stops.length ? before.value : 0))}: ` +
      `${data.fleets[before.winner].name} | ${data.fleets[after.winner].name}`).join("; ");
  }

  function show() {
    const all = totals(at), best = cheapest(all), least = all[best];
    const order = all.map((_, place) => place).sort((a, b) => all[a] - all[b]);
    document.querySelector("#rebilled tbody").replaceChildren(
      ...order.map((place) => row(place, all[place], least)));
    const now = document.getElementById("now");
    const moved = data.knobs.some((knob) => at[knob.id] !== knob.value);
    now.className = best ? "now other" : "now";
    now.textContent = !moved ? `As planned: ${data.fleets[best].name} at ${usd(least)}.` :
      best ? `The winner changes: ${data.fleets[best].name} at ${usd(least)}; the plan's fleet costs ${usd(all[0])}.` :
      `The same winner: ${data.fleets[best].name} at ${usd(least)}, planned at ${usd(data.fleets[0].planned)}.`;
    for (const knob of data.knobs) {
      const slider = find("knob", knob.id), typed = find("for", knob.id);
      slider.value = knob.stops.length ? knob.stops.indexOf(at[knob.id]) : at[knob.id];
      if (knob.stops.length) typed.textContent = said(knob, at[knob.id]);
      else if (document.activeElement !== typed) typed.value = Number(at[knob.id].toPrecision(6));
      strip(knob);
    }
  }

  function turn(id, value) {
    const knob = knobs.get(id);
    if (!knob || !Number.isFinite(value) || value < 0 || (knob.stops.length && !knob.stops.includes(value))) return;
    at[id] = value;
  }

  // #kwh.site=0.12&load=1.5 opens the page with these numbers, so that a reader can send what was found.
  function fromAddress() {
    at = { ...planned };
    for (const [id, value] of new URLSearchParams(location.hash.slice(1))) turn(id, Number(value));
    show();
    document.getElementById("knobs").dataset.shown = location.hash;
  }

  document.getElementById("knobs").addEventListener("input", (event) => {
    const target = event.target, id = target.dataset.knob || target.dataset.for;
    const stops = knobs.get(id).stops;
    turn(id, target.dataset.knob && stops.length ? stops[Number(target.value)] : Number(target.value));
    show();
  });
  document.getElementById("reset").addEventListener("click", () => { at = { ...planned }; show(); });
  window.addEventListener("hashchange", fromAddress);
  document.getElementById("knobs").hidden = false;
  fromAddress();
})();
