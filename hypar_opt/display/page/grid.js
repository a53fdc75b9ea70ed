(() => {
  "use strict";
  const grid = document.getElementById("grid");
  const at = (row, column) => document.getElementById(`cell-${row}-${column}`);
  let current = null;

  function show(cell) {
    if (!cell || cell === current) return;
    if (current) {
      current.classList.remove("current");
      current.tabIndex = -1;
      detail(current).hidden = true;
    }
    current = cell;
    cell.classList.add("current");
    cell.tabIndex = 0;
    detail(cell).hidden = false;
  }
  function detail(cell) {
    return document.getElementById(`detail-${cell.dataset.row}-${cell.dataset.column}`);
  }
  const cellOf = (event) => event.target.closest("[role=gridcell]");
  grid.addEventListener("pointerover", (event) => show(cellOf(event)));
  grid.addEventListener("focusin", (event) => show(cellOf(event)));
  grid.addEventListener("click", (event) => cellOf(event)?.focus());
  grid.addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    if (!cell || event.ctrlKey || event.altKey || event.metaKey) return;
    const row = Number(cell.dataset.row), column = Number(cell.dataset.column);
    const last = cell.parentElement.querySelectorAll("[role=gridcell]").length;
    const target = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 1],
      End: [row, last],
    }[event.key];
    if (!target) return;
    event.preventDefault();
    at(...target)?.focus();
  });
  show(at(1, 1));
})();
