// A form with data-action is sent as JSON, with a header that no page of another site can send.
function fieldsOf(form) {
  const fields = {};
  for (const element of form.elements) {
    if (!element.name) continue;
    if (element.type === 'checkbox') fields[element.name] = element.checked;
    else if (element.multiple) fields[element.name] = Array.from(element.selectedOptions, (it) => it.value);
    else fields[element.name] = element.value;
  }
  return fields;
}

function answerOf(form) {
  let output = form.querySelector('output');
  if (!output) {
    output = document.createElement('output');
    form.append(output);
  }
  return output;
}

const FOLLOWED_MILLISECONDS = 2000;
const STATES = {queued: 'waits for the scheduler', running: 'Running', success: 'Succeeded', failed: 'Failed'};

function linkTo(path, text) {
  const link = document.createElement('a');
  link.href = path;
  link.dataset.airflow = '';
  link.textContent = text;
  return link;
}

function showRun(output, run, airflow) {
  const path = `${airflow}/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
  const state = document.createElement('span');
  state.className = `state ${{success: 'well', failed: 'failed', running: 'running'}[run.state] || 'waiting'}`;
  state.textContent = STATES[run.state] || run.state;
  output.replaceChildren(linkTo(path, run.dag_id), ': ', state);
  if (run.paused && run.state === 'queued') output.append('. This DAG is paused: the run waits until somebody unpauses it.');
  if (run.log) output.append(', ', linkTo(`${airflow}/${run.log}`, 'task log'));
  if (run.note) {
    const lines = document.createElement('p');
    lines.className = 'comments';
    lines.textContent = run.note;
    output.append(lines);
  }
}

// Until the run has ended, or the page is left.
async function follow(output, run, form) {
  output.classList.add('running');
  for (;;) {
    showRun(output, run, form.dataset.airflowBase);
    if (run.state === 'success' || run.state === 'failed' || !output.isConnected) break;
    await new Promise((done) => setTimeout(done, FOLLOWED_MILLISECONDS));
    const path = `runs/${encodeURIComponent(run.dag_id)}/${encodeURIComponent(run.run_id)}`;
    const response = await fetch(new URL(path, new URL(form.dataset.action, location.href)));
    if (!response.ok) break;
    run = {paused: run.paused, ...await response.json()};
  }
  output.classList.remove('running');
}

document.addEventListener('submit', async (event) => {
  const form = event.target.closest('form[data-action]');
  if (!form) return;
  event.preventDefault();
  const output = answerOf(form);
  const button = form.querySelector('button');
  button.disabled = true;
  output.className = '';
  output.textContent = 'Asking Airflow…';
  try {
    const response = await fetch(form.dataset.action, {
      method: 'POST',
      headers: {'Content-Type': 'application/json', 'X-Replication-Monitor': '1'},
      body: JSON.stringify(fieldsOf(form)),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(typeof answer.detail === 'string' ? answer.detail : JSON.stringify(answer.detail));
    if (answer.run_id) {
      form.closest('.action')?.querySelector('.untried')?.remove();
      const list = document.querySelector('.lately + .untried');
      if (list) list.textContent = 'Load the page again to see this run here.';
      follow(output, answer, form).catch(() => output.classList.remove('running'));
    } else location.reload();
  } catch (error) {
    output.className = 'error-text';
    output.textContent = error.message;
  } finally {
    button.disabled = false;
  }
});

// A link to a section opens it.
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === 'DETAILS') {
    target.open = true;
    target.scrollIntoView();
  }
}

openTarget();
addEventListener('hashchange', openTarget);
