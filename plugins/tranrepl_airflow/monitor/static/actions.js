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

function showRun(output, run, airflow) {
  const link = document.createElement('a');
  link.href = `${airflow}/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
  link.dataset.airflow = '';
  link.textContent = `${run.dag_id}, ${run.run_id}`;
  output.replaceChildren('Triggered: ', link);
  if (run.paused) output.append('. This DAG is paused: the run waits until somebody unpauses it.');
}

document.addEventListener('submit', async (event) => {
  const form = event.target.closest('form[data-action]');
  if (!form) return;
  event.preventDefault();
  const output = answerOf(form);
  const button = form.querySelector('button');
  button.disabled = true;
  output.className = '';
  output.textContent = 'Triggering…';
  try {
    const response = await fetch(form.dataset.action, {
      method: 'POST',
      headers: {'Content-Type': 'application/json', 'X-Replication-Monitor': '1'},
      body: JSON.stringify(fieldsOf(form)),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(typeof answer.detail === 'string' ? answer.detail : JSON.stringify(answer.detail));
    showRun(output, answer, form.dataset.airflowBase);
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
