// Sets the chosen theme before the first paint; a classic script, since modules run later.
(() => {
  try {
    const theme = JSON.parse(localStorage.getItem("llmrt.theme"));
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the theme of the system.
  }
})();
