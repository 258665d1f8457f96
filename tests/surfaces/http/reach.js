// Returns the buttons and links of a page that can be neither seen nor scrolled to, and whether the page is wider than the window.
() => {
  const wrong = [];
  const wide = document.documentElement.clientWidth;
  const say = (what, each) => wrong.push(`${what}: ${each.outerHTML.slice(0, 100)}`);
  if (document.documentElement.scrollWidth > wide) wrong.push(`the page is wider than the window: ${document.documentElement.scrollWidth}`);
  for (const each of document.querySelectorAll("button, a[href], summary, h1")) {
    const box = each.getBoundingClientRect();
    if (!box.width || each.closest(".hidden, .skip")) continue;
    let [left, right] = [box.left, box.right];
    for (let at = each.parentElement; at && at !== document.body; at = at.parentElement) {
      const flow = getComputedStyle(at).overflowX;
      const frame = at.getBoundingClientRect();
      const inside = left >= frame.left - 1 && right <= frame.right + 1;
      if (flow === "visible" || inside) continue;
      if (flow === "hidden" || flow === "clip") say("cut off", each);
      [left, right] = [frame.left, frame.right]; // it can be scrolled to in this frame, which must be in reach itself
    }
    if (left < -1 || right > wide + 1) say("outside", each);
  }
  return wrong;
}
