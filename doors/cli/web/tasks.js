// The table of tasks: the reader types text to see the rows that contain it, and clicks on a heading to sort by it. The
// rows are those of the page; no text becomes markup.
(() => {
  "use strict";

  const place = document.getElementById("tasks");
  if (!place) return;
  const body = place.querySelector("tbody");
  const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase() }));
  const filter = document.getElementById("filter");
  const found = document.getElementById("found");

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { row, text } of rows) {
      const matches = words.every((word) => text.includes(word));
      row.hidden = !matches;
      if (matches) count += 1;
    }
    found.textContent = words.length > 0 ? `${count} of ${rows.length} rows` : "";
  };

  // The first click sorts numbers from the largest on, and text from A on.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.n === undefined ? cell.textContent : Number(cell.dataset.n);
  };
  const compare = (a, b) => (typeof a === "number" ? b - a : a.localeCompare(b));
  const heads = [...place.querySelectorAll("thead th")];
  const sort = (column) => {
    // A second click turns the order round.
    const turned = heads[column].dataset.order === "first" ? -1 : 1;
    const keys = new Map(rows.map(({ row }) => [row, key(row, column)]));
    rows.sort((a, b) => turned * compare(keys.get(a.row), keys.get(b.row)));
    for (const head of heads) {
      head.removeAttribute("aria-sort");
      delete head.dataset.order;
    }
    const isNumber = typeof keys.get(rows[0].row) === "number";
    heads[column].setAttribute("aria-sort", (turned === 1) === isNumber ? "descending" : "ascending");
    if (turned === 1) heads[column].dataset.order = "first";
    body.append(...rows.map(({ row }) => row));
  };

  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(column));
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(column);
    });
  });
  filter.addEventListener("input", show);
  place.querySelector(".tools").hidden = false;
})();
