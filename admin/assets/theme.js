// Sets the remembered theme before the page is painted. It runs in the head and is no module, because modules run too late for that.
// The values are "light" and "dark"; anything else follows the system.
try {
  const theme = localStorage.getItem("quotient-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is forbidden here: the system decides.
}
