(() => {
  "use strict";
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const figures = [...document.querySelectorAll(".figure")];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      "font.color": of("--ink"),
      "hoverlabel.bgcolor": of("--raised"),
      "hoverlabel.bordercolor": of("--line"),
      "hoverlabel.font.color": of("--ink"),
    };
  }
  // Dragging is how a finger scrolls, and only the timeline is worth a closer look.
  const drag = (figure) => (!coarse && figure.id === "figure-timeline" ? "zoom" : false);
  for (const figure of figures) {
    const id = figure.id.replace("figure-", "data-");
    const { data, layout } = JSON.parse(document.getElementById(id).textContent);
    layout.dragmode = drag(figure);
    Plotly.newPlot(figure, data, layout, { displayModeBar: false, responsive: true })
      .then(() => Plotly.relayout(figure, colours()))
      .then(() => figure.setAttribute("data-drawn", ""));
  }
  const recolour = () => figures.forEach((figure) => Plotly.relayout(figure, colours()));
  scheme.addEventListener("change", recolour);
  window.matchMedia("print").addEventListener("change", () => {
    recolour();
    figures.forEach((figure) => Plotly.Plots.resize(figure));
  });
})();
