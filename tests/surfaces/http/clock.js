// Returns the times that a page shows outside of data, and those of them that do not carry its zone.
// `suffix` matches the zone behind a time, such as CES?T; `zone` is its name.
([suffix, zone]) => {
  const data = "pre, code, textarea, script, style, datalist, footer";
  const day = "\\d{4}-\\d\\d-\\d\\d";
  const found = [];
  const wrong = [];
  const say = (why, text) => wrong.push(`${why}: ${text.trim().slice(0, 160)}`);
  const named = (each) => {
    const frame = each.closest("svg, .card");
    return frame !== null && frame.textContent.includes(zone) || each.closest("svg")?.querySelector(".hours-of")?.textContent.match(suffix);
  };
  const check = (text, each) => {
    if (/\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) say("not for people", text);
    for (const at of text.matchAll(new RegExp(`(${day} )?(?<![\\w:+])\\d\\d:\\d\\d(:\\d\\d)?(?![\\w:])`, "g"))) {
      found.push(at[0]);
      const after = text.slice(at.index + at[0].length);
      if (new RegExp(`^ (?:${suffix})\\b`).test(after)) continue;
      // The rule of a schedule names its own zone, and a tick of an axis or a line of a calendar the one beside it.
      const rule = /\b(?:at|and|,) $/.test(text.slice(0, at.index)) && /^(?:(?:,| and) \d\d:\d\d)* (?:[A-Z]\w+\/\w+|UTC)/.test(after);
      if (at[1] === undefined && (rule || (each.matches("text, time") && named(each)))) continue;
      say("without its zone", text);
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!each.closest(data)) check(walker.currentNode.data, each);
  }
  for (const each of document.querySelectorAll("[title]")) if (!each.closest(data)) check(each.title, each);
  for (const each of document.querySelectorAll("time")) if (!each.dateTime.endsWith("Z")) say("a datetime without Z", each.outerHTML);
  for (const each of document.querySelectorAll("input[type=datetime-local]")) {
    const words = each.closest(".field").textContent;
    if (!words.includes(zone)) say("a field without its zone", words);
  }
  return { found, wrong };
}
