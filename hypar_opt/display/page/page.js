// Figures in Vega-Lite: their data are in the page, and their ink is that of its text, light or dark.
const config = JSON.parse(document.getElementById("config").textContent);
config.background = "transparent";
// Without a function made from text, which the page's policy forbids.
const options = { actions: false, ast: true, config, renderer: "svg", tooltip: { theme: "page" } };
for (const figure of document.querySelectorAll(".figure")) {
  const data = document.getElementById(figure.id.replace("figure-", "data-"));
  window.vegaEmbed(figure, JSON.parse(data.textContent), options)
    .then(() => figure.setAttribute("data-drawn", ""));
}
