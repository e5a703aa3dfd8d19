const REFRESH_MILLISECONDS = 10000;

// The frame is sandboxed: a link to Airflow's own pages leaves it through the parent's router.
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-airflow]');
  if (!link || parent === window || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  parent.history.pushState(null, '', link.href);
  parent.dispatchEvent(new parent.PopStateEvent('popstate', {state: null}));
});

// Where a window is narrow, each row is a block whose cells say what they are.
function labelCells() {
  for (const table of document.querySelectorAll('table.stacked')) {
    const heads = [...table.tHead.rows[0].cells].map((it) => it.firstChild?.textContent || '');
    for (const row of [...table.tBodies].flatMap((it) => [...it.rows])) {
      let at = 0;
      for (const cell of row.cells) {
        if (cell.colSpan === 1) cell.dataset.label = heads[at] || '';
        at += cell.colSpan;
      }
    }
  }
}

function isInUse() {
  const selection = getSelection();
  const selected = selection && !selection.isCollapsed;
  return document.hidden || selected || document.activeElement?.closest('form') || document.querySelector('[data-still], output.running');
}

// What a person has opened, and how far tables were scrolled, stays as it is.
function keepInto(main) {
  for (const details of document.querySelectorAll('details[id]')) {
    const same = main.querySelector(`#${CSS.escape(details.id)}`);
    if (same) same.open = details.open;
  }
  for (const output of document.querySelectorAll('form[data-action] output')) {
    const action = CSS.escape(output.closest('form').dataset.action);
    main.querySelector(`form[data-action="${action}"]`)?.append(output);
  }
  const scrolled = [...document.querySelectorAll('[role=region]')].map((it) => [it.getAttribute('aria-label'), it.scrollLeft]);
  return () => {
    for (const [label, left] of scrolled) {
      const same = document.querySelector(`[role=region][aria-label="${CSS.escape(label)}"]`);
      if (same) same.scrollLeft = left;
    }
  };
}

async function refresh() {
  if (isInUse()) return;
  const response = await fetch(location.href);
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  if (isInUse()) return;
  const main = page.getElementById('main');
  const focused = document.activeElement && document.activeElement.getAttribute('href');
  const scroll = keepInto(main);
  document.getElementById('main').replaceWith(main);
  labelCells();
  scroll();
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

labelCells();
setInterval(() => refresh().catch(() => {}), REFRESH_MILLISECONDS);
