"""Finds text with too little contrast, headings out of order and pictures without text in an open page."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

MIN_CONTRAST: Final = 4.5
"""Contrast that WCAG 2.2 asks for (1.4.3, level AA). Large text needs 3."""
_COMPLAINTS: Final = """
minimum => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = '#000'; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const text = [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join(' ').trim();
    if (!text || element.closest('svg, script, style, noscript, template') || element.disabled) continue;
    if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (box.width < 2 || box.height < 2) continue;
    const below = ground(element), above = over(rgba(style.color), below);
    const [high, low] = [light(below), light(above)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < (large ? 3 : minimum)) found.push(`contrast ${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
  }
  let before = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    if (!heading.checkVisibility()) continue;
    const level = Number(heading.tagName[1]);
    if (level > before + 1) found.push(`heading ${level} after ${before}: ${heading.innerText.slice(0, 60)}`);
    before = level;
  }
  const unnamed = one => !(one.getAttribute('alt') || one.getAttribute('aria-label') || one.getAttribute('aria-hidden')
    || one.querySelector('title') || one.closest('[aria-hidden], a, button, label'));
  for (const one of document.querySelectorAll('img, svg'))
    if (unnamed(one)) found.push(`no text: ${one.outerHTML.slice(0, 80)}`);
  for (const one of document.querySelectorAll('input, select, textarea')) {
    if (one.type !== 'hidden' && !one.labels?.length && !one.getAttribute('aria-label') && one.checkVisibility())
      found.push(`no label: ${one.outerHTML.slice(0, 80)}`);
  }
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth + 1) found.push(`wider than the screen: ${wide}`);
  return found;
}
"""


def unreadable_parts(page: "Page") -> list[str]:
    """Return one line for each part of the page that is hard to read or has no text for a screen reader."""
    found: list[str] = page.evaluate(_COMPLAINTS, MIN_CONTRAST)
    return found
