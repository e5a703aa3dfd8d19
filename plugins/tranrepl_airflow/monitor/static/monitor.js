const REFRESH_MILLISECONDS = 10000;

// The frame is sandboxed: a link to Airflow's own pages leaves it through the parent's router.
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-airflow]');
  if (!link || parent === window || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  parent.history.pushState(null, '', link.href);
  parent.dispatchEvent(new parent.PopStateEvent('popstate', {state: null}));
});

function showLocalTimes() {
  for (const element of document.querySelectorAll('time.exact')) {
    element.textContent = new Date(element.dateTime).toLocaleTimeString();
  }
  for (const element of document.querySelectorAll('time.moment')) {
    element.textContent = new Date(element.dateTime).toLocaleString();
  }
}

function isInUse() {
  return document.hidden || document.activeElement?.closest('form') || document.querySelector('[data-still], output');
}

async function refresh() {
  if (isInUse()) return;
  const response = await fetch(location.href);
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const focused = document.activeElement && document.activeElement.getAttribute('href');
  document.getElementById('main').replaceWith(page.getElementById('main'));
  showLocalTimes();
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

showLocalTimes();
setInterval(() => refresh().catch(() => {}), REFRESH_MILLISECONDS);
