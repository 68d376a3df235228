"use strict";
const guide = JSON.parse(document.getElementById("cells").textContent);
const detail = document.getElementById("detail");
const rents = { ...guide.rents };
let chosen = null;

const dollars = (usd) => usd >= 1e6 ? `$${(usd / 1e6).toFixed(2)}M` : `$${Math.round(usd / 1e3)}k`;
const cost = (fleet) => fleet.usd + (fleet.slope === null ? 0 : fleet.slope * (rents[fleet.accelerator] - guide.rents[fleet.accelerator]));

function ranked(cell) {
  return [...cell.fleets].sort((one, other) => cost(one) - cost(other));
}

function add(text, style) {
  const line = document.createElement("p");
  line.textContent = text;
  if (style) line.className = style;
  detail.append(line);
}

function describe(cell) {
  detail.replaceChildren();
  add(`${cell.title}`, "small");
  if (!cell.fleets.length) { add(`No fleet: ${cell.why}.`); return; }
  const [best, other] = ranked(cell);
  add(`${best.name}: ${dollars(cost(best))}, ${best.runs}.`);
  if (other) add(`${other.vendor_name} would cost ${dollars(cost(other))} (${(100 * (cost(other) / cost(best) - 1)).toFixed(0)}% more): ${other.name}, ${other.runs}.`);
  const moved = best.accelerator !== cell.fleets[0].accelerator;
  if (moved) add("The prices that you set turned this cell.", "small");
  else for (const line of cell.notes) add(line, "small");
}

function paint(button) {
  const cell = guide.cells[Number(button.dataset.cell)];
  button.replaceChildren();
  if (!cell || !cell.fleets.length) {
    button.className = "cell none"; button.textContent = "-";
    button.setAttribute("aria-label", cell ? `${cell.title}: no fleet` : "not asked");
    return;
  }
  const [best, other] = ranked(cell);
  const name = document.createElement("b");
  const margin = other ? `+${Math.min(999, Math.round(100 * (cost(other) / cost(best) - 1)))}%` : guide.only;
  const published = best.accelerator === cell.fleets[0].accelerator, why = document.createElement("small");
  name.textContent = best.short + (published && cell.tie ? "=" : "");
  why.textContent = published ? cell.decides : "";
  button.append(name, margin, why);
  button.style.backgroundColor = guide.colours[best.vendor] || "#17405f";
  button.className = cell.close ? "cell close" : "cell";
  button.setAttribute("aria-label", `${cell.title}: ${best.name}, ${margin}`);
}

const buttons = [...document.querySelectorAll("button.cell")];
function repaint() {
  buttons.forEach(paint);
  const turned = guide.cells.filter((cell) => cell.fleets.length && ranked(cell)[0].vendor !== cell.fleets[0].vendor).length;
  document.getElementById("count").textContent = turned ? `${turned} of ${guide.cells.length} cells have another winner.` : "Every cell has its published winner.";
  for (const output of document.querySelectorAll("output[data-for]")) output.textContent = `$${rents[output.dataset.for].toFixed(2)} a device-hour`;
  if (chosen) describe(guide.cells[Number(chosen.dataset.cell)]);
}
function choose(button) {
  if (chosen) chosen.setAttribute("aria-pressed", "false");
  chosen = button;
  button.setAttribute("aria-pressed", "true");
  describe(guide.cells[Number(button.dataset.cell)]);
}
for (const button of buttons) {
  for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => choose(button));
}
for (const input of document.querySelectorAll("input[data-rent]")) {
  input.addEventListener("input", () => { rents[input.dataset.rent] = Number(input.value); repaint(); });
}
document.getElementById("reset").addEventListener("click", () => {
  Object.assign(rents, guide.rents);
  for (const input of document.querySelectorAll("input[data-rent]")) input.value = String(rents[input.dataset.rent]);
  repaint();
});
repaint();
if (buttons.length) choose(buttons[0]);
