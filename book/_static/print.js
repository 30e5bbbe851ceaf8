// On paper nothing can be unfolded, and ink is dark: print the light theme with everything open.
{
  const page = document.documentElement;
  let theme;
  let folded = [];

  addEventListener("beforeprint", () => {
    theme = page.dataset.theme;
    page.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => (details.open = true));
  });

  addEventListener("afterprint", () => {
    page.dataset.theme = theme;
    folded.forEach((details) => (details.open = false));
  });
}
