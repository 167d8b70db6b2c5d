"use strict";
(() => {
  const find = (what, where = document) => where.querySelector(what);
  const form = find("form"), count = find("#count"), refreshed = find("#refreshed"), box = find("#refresh");
  const search = find("[name=q]"), cluster = find("[name=cluster]"), state = find("[name=state]");
  const order = find("[name=sort]"), body = find(".groups tbody"), none = find("#none");
  const heads = [...document.querySelectorAll(".groups thead th")];
  const given = new URLSearchParams(location.search);
  let sort = order.value, isReversed = given.get("order") === "reversed", tag = null, isBusy = false;

  const upwards = () => (sort === "group") !== isReversed;
  const rows = () => [...body.rows];

  // The search and the filters of the page's own query: the address can be sent to somebody else.
  const remember = () => {
    const query = new URLSearchParams();
    for (const [name, value] of [["q", search.value], ["cluster", cluster ? cluster.value : ""],
      ["state", state.value], ["sort", sort === "lag" ? "" : sort], ["order", isReversed ? "reversed" : ""]]) {
      if (value) query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, "", text ? "?" + text : location.pathname);
  };

  const filter = () => {
    const part = search.value.toLowerCase(), one = cluster ? cluster.value : "", wanted = state.value;
    let shown = 0;
    for (const row of rows()) {
      const fits = (!one || row.dataset.c === one) && (!wanted || row.dataset.s.split(" ").includes(wanted)) &&
        row.cells[0].firstChild.textContent.toLowerCase().includes(part);
      if (row.hidden === fits) row.hidden = !fits;
      shown += fits;
    }
    const words = shown.toLocaleString("en") + " of " + body.rows.length.toLocaleString("en") + " groups";
    // A screen reader says what changes, so nothing is written that stays the same.
    if (count.textContent !== words) count.textContent = words;
    none.hidden = shown > 0;
  };

  const arrange = () => {
    const place = heads.findIndex(head => find("a", head).dataset.sort === sort), sign = upwards() ? 1 : -1;
    const keyed = rows().map(row => {
      const name = row.cells[0].firstChild.textContent, value = row.cells[place].dataset.v;
      return {row, name, value: place === 0 ? name.toLowerCase() : value === undefined ? null : Number(value)};
    });
    const compare = (one, other) => one < other ? -1 : one > other ? 1 : 0;
    keyed.sort((one, other) => {
      if (one.value === null || other.value === null) {
        return (one.value === null) - (other.value === null) || compare(one.name, other.name);
      }
      return sign * compare(one.value, other.value) || compare(one.name, other.name);
    });
    body.append(...keyed.map(each => each.row));
    heads.forEach((head, number) => {
      if (number === place) head.setAttribute("aria-sort", upwards() ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    order.value = sort;
  };

  const choose = (key, reverse) => {
    sort = key;
    isReversed = reverse;
    arrange();
    remember();
  };

  const clock = () => new Date().toISOString().slice(11, 19) + " UTC";
  const replace = text => {
    const fresh = new DOMParser().parseFromString(text, "text/html"), table = find(".groups tbody", fresh);
    if (!table) throw new Error("the answer is not the overview");
    const at = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    for (const name of ["#clusters", "#totals"]) find(name).replaceWith(find(name, fresh));
    body.replaceChildren(...table.rows);
    arrange();
    filter();
    if (at !== null) [...body.querySelectorAll("a")].find(each => each.getAttribute("href") === at)?.focus();
  };
  const refresh = async () => {
    if (isBusy || !box.checked || document.hidden) return;
    isBusy = true;
    try {
      const answer = await fetch(location.href, {cache: "no-store", headers: tag ? {"If-None-Match": tag} : {}});
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error("status " + answer.status);
        const text = await answer.text();
        replace(text);
        tag = answer.headers.get("ETag");
      }
      refreshed.textContent = "Refreshed at " + clock();
      refreshed.className = "soft";
    } catch (error) {
      refreshed.textContent = "Not refreshed at " + clock() + ": " + error.message + ". The rows are older.";
      refreshed.className = "warn-text";
    } finally {
      isBusy = false;
    }
  };

  form.addEventListener("submit", event => event.preventDefault());
  for (const each of [search, cluster, state]) {
    each?.addEventListener("input", () => { filter(); remember(); });
  }
  order.addEventListener("input", () => choose(order.value, false));
  for (const head of heads) {
    find("a", head).addEventListener("click", event => {
      event.preventDefault();
      const key = event.currentTarget.dataset.sort;
      choose(key, key === sort && !isReversed);
    });
  }
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      search.focus();
    }
  });
  box.addEventListener("change", refresh);
  // A page that comes back from the history, or from behind another one, shows what is now.
  document.addEventListener("visibilitychange", refresh);
  if (location.protocol !== "file:") {
    find("#auto").hidden = false;
    const wait = () => setTimeout(() => refresh().then(wait), 1000 * find("#clusters").dataset.refresh);
    wait();
  }
  filter();
})();
