// Airflow keeps the theme in localStorage, and a change of it raises a storage event.
const media = matchMedia('(prefers-color-scheme: dark)');
function showTheme() {
  const theme = localStorage.getItem('theme');
  const dark = theme === 'dark' || (theme !== 'light' && media.matches);
  document.documentElement.className = dark ? 'dark' : 'light';
}
showTheme();
addEventListener('storage', showTheme);
media.addEventListener('change', showTheme);
