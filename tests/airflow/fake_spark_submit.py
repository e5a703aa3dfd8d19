"""Stands for spark-submit and its job: it records how it was called and writes the result that the test has set."""

import json
import os
import stat
import sys
import time
from pathlib import Path

folder = Path(os.environ["FAKE_SPARK_FOLDER"])
request_path = Path(sys.argv[sys.argv.index("--request") + 1])
result_path = Path(sys.argv[sys.argv.index("--result") + 1])
request = json.loads(request_path.read_text(encoding="utf-8"))
job = request.get("mode", request["job"])
call = {
    "job": job,
    "argv": sys.argv,
    "request": request,
    "request_mode": stat.S_IMODE(request_path.stat().st_mode),
    "folder_mode": stat.S_IMODE(request_path.parent.stat().st_mode),
    "java_options": os.environ.get("SPARK_SUBMIT_OPTS"),
    "environment": {name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")},
}
Path(folder, f"{time.time_ns()}.call").write_text(json.dumps(call), encoding="utf-8")
answer = json.loads(Path(folder, f"{job}.answer").read_text(encoding="utf-8"))
print(answer["output"])
if answer["result"] is not None:
    result_path.write_text(answer["result"], encoding="utf-8")
sys.exit(answer["exit_code"])
