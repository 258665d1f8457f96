// Returns what is wrong with a page for those who can't see it, can't point, or don't tell colours as others do.
() => {
  const wrong = [];
  const all = (what) => [...document.querySelectorAll(what)];
  const say = (what, each) => wrong.push(`${what}: ${each.outerHTML.slice(0, 120)}`);
  const name = (each) => (each.getAttribute("aria-label") || each.textContent || "").trim();
  const labelled = (each) => each.getAttribute("aria-label") || document.getElementById(each.getAttribute("aria-labelledby"));

  for (const each of all("button, a[href], summary, h1, h2, h3")) if (!name(each)) say("has no name", each);
  for (const each of all("input:not([type=hidden]), select, textarea")) if (!each.labels.length) say("has no label", each);
  for (const each of all("img")) if (each.getAttribute("alt") === null) say("has no alt", each);
  for (const each of all("main svg")) if (!each.querySelector(":scope > title + desc")) say("has no title", each);
  for (const each of all("progress, section, [role=region], [role=log]")) if (!labelled(each)) say("has no name", each);
  for (const each of all("th")) if (!each.scope) say("has no scope", each);
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`id ${id} is there twice`);

  let level = 0;
  for (const each of all("h1, h2, h3, h4")) {
    const next = Number(each.tagName[1]);
    if (next > level + 1) say("leaves out a level", each);
    level = next;
  }
  if (all("h1").length !== 1) wrong.push("there must be one h1");
  for (const mark of ["main", "nav", "header"]) if (!all(mark).length) wrong.push(`no ${mark}`);
  if (!document.documentElement.lang) wrong.push("no language");

  // Contrast as WCAG computes it: 4.5 to 1 or more, whatever the size.
  const parse = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return [...found.slice(0, 3), found[3] ?? 1];
  };
  const bend = (part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * bend(red) + 0.7152 * bend(green) + 0.0722 * bend(blue);
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return [255, 255, 255, 1];
  };
  const check = (each, colour, behind) => {
    const [front, back] = [light(parse(colour)), light(ground(behind))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) say(`contrast ${ratio.toFixed(2)} of ${colour}`, each);
  };
  for (const each of all("main *, header *")) {
    const own = [...each.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const box = each.getBoundingClientRect();
    if (!own || box.width <= 1 || box.height <= 1 || each.closest("svg, option, .hidden")) continue;
    check(each, getComputedStyle(each).color, each);
  }
  for (const each of all("svg text")) check(each, getComputedStyle(each).fill, each.closest("svg").parentElement);
  return wrong;
}
