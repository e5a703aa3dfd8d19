"""The few calls of Kubernetes' API that Spark makes in client mode, on loopback. A pod is a process here: an executor,
whose environment is nothing but what its specification holds, as in a container.

Source: Apache Spark, `ExecutorPodsAllocator`, `ExecutorPodsWatchSnapshotSource`; the image's `entrypoint.sh`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.processes import dying_with_owner
from support.spark_cluster import short_lived

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
}
"""What the image's entry point makes of a container's environment."""
_PATIENCE_SECONDS = 300.0


class KubernetesApi:
    """Pods and what Spark asked for."""

    def __init__(self, folder: Path, image: Mapping[str, str]) -> None:
        """`image` are the variables that the executors' image sets; logs and volumes go into `folder`."""
        self._folder = folder
        self._image = image
        self.requests: list[str] = []
        """Method, path and body of each request."""
        self.pods: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._changed = threading.Condition()
        self._events: list[dict[str, Any]] = []

    def create_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Start an executor; return its pod, which runs."""
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        given = {it["name"]: it.get("value", "127.0.0.1") for it in container["env"]}
        # A volume of the pod: its place in a container is the root's here.
        given["SPARK_LOCAL_DIRS"] = str(self._folder / f"{name}.volume")
        options = [value for key, value in sorted(given.items()) if key.startswith("SPARK_JAVA_OPT_")]
        package = find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        home = Path(package.origin).parent
        java = Path(os.environ.get("JAVA_HOME", "/usr")) / "bin" / "java"
        arguments = [part for option, variable in _ARGUMENTS.items() for part in (option, given[variable])]
        arguments += ["--hostname", "127.0.0.1", "--podName", name]
        log = (self._folder / f"{name}.log").open("wb")
        with log, self._changed:
            self._processes[name] = subprocess.Popen(
                dying_with_owner(
                    [str(java), *shlex.split(short_lived()), *options, "-cp", f"{home}/jars/*", _BACKEND, *arguments],
                    signal.SIGTERM,
                ),
                env={"PATH": os.defpath, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
                | {**self._image, **given},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            pod["metadata"] |= {"uid": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
            pod["status"] = _status(container["name"], "Running", {"running": {}})
            self.pods[name] = pod
            self._events.append({"type": "MODIFIED", "object": pod})
            self._changed.notify_all()
        return pod

    def _note_ended(self) -> None:
        """Let pods whose process ended by itself fail, so that Spark gives up after its number of attempts."""
        for name, pod in self.pods.items():
            status = self._processes[name].poll()
            if status is not None and pod["status"]["phase"] == "Running":
                ended = {"terminated": {"exitCode": status, "reason": "Error"}}
                pod["status"] = _status(pod["spec"]["containers"][0]["name"], "Failed", ended)
                self._events.append({"type": "MODIFIED", "object": pod})

    def delete_pods(self, name: str = "") -> None:
        """End the executor of this name, or all."""
        with self._changed:
            for it in [it for it in self.pods if name in ("", it)]:
                self._events.append({"type": "DELETED", "object": self.pods.pop(it)})
                self._processes[it].terminate()
                self._processes.pop(it).wait(_PATIENCE_SECONDS)
            self._changed.notify_all()

    def events(self, over: threading.Event) -> Iterator[bytes]:
        """Yield what happens to pods, as lines, until it is over."""
        sent = 0
        while not over.is_set():
            with self._changed:
                self._changed.wait(0.2)
                self._note_ended()
                new, sent = self._events[sent:], len(self._events)
            yield from (json.dumps(it).encode() + b"\n" for it in new)


def _status(container: str, phase: str, state: Mapping[str, Any]) -> dict[str, Any]:
    running = phase == "Running"
    seen = {"name": container, "image": "", "state": state, "ready": running, "restartCount": 0}
    return {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [seen]}


class _Server(ThreadingHTTPServer):
    def __init__(self, api: KubernetesApi) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._body()
        if "watch=true" not in self.path or "upgrade" in self.headers.get("Connection", "").lower():
            # A WebSocket is refused so: then the client watches by an ordinary answer.
            pods = list(self.server.api.pods.values())
            self._answer({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.server.api.events(self.server.over):
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def do_POST(self) -> None:
        made = json.loads(self._body())
        pod = urlsplit(self.path).path.endswith("/pods")
        self._answer(self.server.api.create_pod(made) if pod else made, 201)

    def do_PATCH(self) -> None:
        self._body()
        self._answer(self.server.api.pods.get(urlsplit(self.path).path.rpartition("/")[2], {}))

    def do_DELETE(self) -> None:
        self._body()
        _, pods, name = urlsplit(self.path).path.partition("/pods")
        if pods:
            self.server.api.delete_pods(name.removeprefix("/"))
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.api.requests.append(f"{self.command} {self.path} {self.headers} {body.decode()}")
        return body

    def _answer(self, document: Mapping[str, Any], status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def kubernetes_api(folder: Path, image: Mapping[str, str]) -> Iterator[tuple[str, KubernetesApi]]:
    """Yield Spark's address of the master, and the API behind it."""
    folder.mkdir()
    api = KubernetesApi(folder, image)
    server = _Server(api)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"k8s://http://127.0.0.1:{server.server_port}", api
    finally:
        server.over.set()
        api.delete_pods()
        server.shutdown()
        serving.join()
        server.server_close()
