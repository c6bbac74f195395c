"""A small JSON client of the Kubernetes API, on the standard library alone.

Objects are plain dicts as the server sends them, so that a test sees exactly what is stored. A kind is named by
``"v1/Pod"``, ``"batch/v1/Job"`` and so on; its path is looked up by discovery. Safe to use from several threads
(one connection a thread).
"""

from __future__ import annotations

import functools
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import yaml

Object = dict[str, Any]
Objects = list[Object]
T = TypeVar("T")

POD = "v1/Pod"
NODE = "v1/Node"
NAMESPACE = "v1/Namespace"
CONFIG_MAP = "v1/ConfigMap"
SECRET = "v1/Secret"
SERVICE = "v1/Service"
SERVICE_ACCOUNT = "v1/ServiceAccount"
EVENT = "v1/Event"
JOB = "batch/v1/Job"
JOB_SET = "jobset.x-k8s.io/v1alpha2/JobSet"
TRAIN_JOB = "trainer.kubeflow.org/v1alpha1/TrainJob"
TRAINING_RUNTIME = "trainer.kubeflow.org/v1alpha1/TrainingRuntime"
CLUSTER_TRAINING_RUNTIME = "trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime"
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"
VALIDATING_WEBHOOK = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
MUTATING_WEBHOOK = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"
LEASE = "coordination.k8s.io/v1/Lease"
PRIORITY_CLASS = "scheduling.k8s.io/v1/PriorityClass"

PATCH_FORMS = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

POLL_SECONDS = 0.05
RAREST_POLL_SECONDS = 2.0


class ApiError(Exception):
    """The server refused a request.

    ``status`` is the HTTP code, ``reason`` the machine-readable word (``NotFound``, ``Conflict``, ``Invalid`` ...),
    ``message`` the server's sentence and ``body`` its whole answer.
    """

    def __init__(self, status: int, body: Object, request: str) -> None:
        self.status = status
        self.body = body
        self.reason = str(body.get("reason") or "")
        self.message = str(body.get("message") or body)
        super().__init__(f"{request}: {status} {self.reason}: {self.message}")


class WaitTimeout(AssertionError):
    """A condition didn't come true within its deadline; the message has what was seen last."""


@dataclass(frozen=True)
class Resource:
    """Where the objects of a kind live: ``prefix`` is ``/api/v1`` or ``/apis/<group>/<version>``."""

    prefix: str
    plural: str
    namespaced: bool


class Client:
    """Requests to one API server as one user."""

    def __init__(
        self,
        server: str,
        *,
        ca_file: str | Path | None,
        token: str | None = None,
        certificate: tuple[str, str] | None = None,
        impersonate: tuple[str, Iterable[str]] | None = None,
    ) -> None:
        """``server`` is ``https://host:port``; ``certificate`` the files of a client certificate and its key."""
        parts = urlsplit(server)
        self.server = server
        self._host, self._port = str(parts.hostname), int(parts.port or 443)
        self._ca_file = str(ca_file) if ca_file else None
        self._context = ssl.create_default_context(cafile=self._ca_file)
        if certificate:
            self._context.load_cert_chain(*certificate)
        self._certificate = certificate
        self._token = token
        self._headers = [("Accept", "application/json"), ("User-Agent", "control-plane-test")]
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        if impersonate:
            user, groups = impersonate
            self._headers.append(("Impersonate-User", user))
            self._headers += [("Impersonate-Group", group) for group in groups]
        self._local = threading.local()
        self._resources: dict[str, Resource] = {}

    def as_user(self, user: str, groups: Iterable[str] = ()) -> Client:
        """The same server seen as another user, by impersonation (this user must be allowed to)."""
        return Client(
            self.server,
            ca_file=self._ca_file,
            token=self._token,
            certificate=self._certificate,
            impersonate=(user, groups),
        )

    # ---- requests

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, object] | None = None,
        timeout: float = 60,
    ) -> Object:
        """Sends one request and returns the decoded answer (``{"text": ...}`` where it isn't JSON).

        ``body`` is encoded as JSON unless it is ``bytes``; ``timeout`` is in seconds.
        Raises: ApiError for an answer of 400 and above; OSError when the server can't be reached.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        response = self._send(method, target, payload, content_type, timeout)
        raw = response.read()
        answer = _decode(raw, response.getheader("Content-Type", ""))
        if response.status >= 400:
            raise ApiError(response.status, answer, f"{method} {target}")
        return answer

    def _send(
        self, method: str, target: str, payload: bytes | None, content_type: str, timeout: float
    ) -> http.client.HTTPResponse:
        """Sends over this thread's connection; once more over a new one if the server had closed the idle one."""
        for attempt in (1, 2):
            connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
            fresh = connection is None
            if connection is None:
                connection = self._connect(timeout)
                self._local.connection = connection
            elif connection.sock is not None:
                connection.sock.settimeout(timeout)
            try:
                self._put(connection, method, target, payload, content_type)
                return connection.getresponse()
            except (http.client.HTTPException, OSError):
                connection.close()
                self._local.connection = None
                if fresh or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)

    def _put(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        target: str,
        payload: bytes | None,
        content_type: str,
    ) -> None:
        connection.putrequest(method, target)
        for key, value in self._headers:
            connection.putheader(key, value)
        if payload is not None:
            connection.putheader("Content-Type", content_type)
            connection.putheader("Content-Length", str(len(payload)))
        connection.endheaders(payload)

    def close(self) -> None:
        """Closes this thread's idle connection; the next request opens a new one."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    # ---- discovery

    def resource(self, kind: str) -> Resource:
        """Where a kind lives. Raises: LookupError when the server doesn't serve it."""
        if kind not in self._resources:
            self._discover(kind.rsplit("/", 1)[0])
        if kind not in self._resources:
            raise LookupError(f"the API server doesn't serve {kind}")
        return self._resources[kind]

    def serves(self, kind: str) -> bool:
        """Whether the server serves a kind now."""
        try:
            self.resource(kind)
        except LookupError:
            return False
        return True

    def _discover(self, version: str) -> None:
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            found = self.request("GET", prefix)
        except ApiError as error:
            if error.status == 404:
                return
            raise
        for item in found["resources"]:
            if "/" not in item["name"]:
                kind = f"{version}/{item['kind']}"
                self._resources[kind] = Resource(prefix, item["name"], item["namespaced"])

    def path(self, kind: str, name: str | None = None, namespace: str | None = None, subresource: str = "") -> str:
        """The path of a kind's collection or of one object of it."""
        resource = self.resource(kind)
        path = resource.prefix
        if resource.namespaced and namespace is not None:
            path += f"/namespaces/{quote(namespace)}"
        path += f"/{resource.plural}"
        if name is not None:
            path += f"/{quote(name)}"
        if subresource:
            path += f"/{subresource}"
        return path

    # ---- objects

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object. Raises: ApiError 404 when there is none."""
        return self.request("GET", self.path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, *, selector: str = "", fields: str = "") -> Objects:
        """The objects of a kind, in one namespace or in all; each with apiVersion and kind as a get would show."""
        query = {key: value for key, value in {"labelSelector": selector, "fieldSelector": fields}.items() if value}
        answer = self.request("GET", self.path(kind, None, namespace), query=query)
        version, _, short = kind.rpartition("/")
        return [{"apiVersion": version, "kind": short, **item} for item in answer["items"]]

    def create(self, obj: Object, namespace: str | None = None) -> Object:
        """Creates an object (its own namespace wins, else the given one) and returns it as stored."""
        kind, _, own = _identity(obj)
        return self.request("POST", self.path(kind, None, own or namespace), obj)

    def replace(self, obj: Object, *, subresource: str = "") -> Object:
        """Writes a whole object (PUT), under its resourceVersion if it has one."""
        kind, name, namespace = _identity(obj)
        return self.request("PUT", self.path(kind, name, namespace, subresource), obj)

    def patch(
        self,
        kind: str,
        name: str,
        patch: object,
        namespace: str | None = None,
        *,
        form: str = "merge",
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
    ) -> Object:
        """Patches an object and returns it as stored.

        ``form`` is ``merge``, ``json``, ``strategic``, ``apply`` or a content type; ``force`` takes over other
        managers' fields in an apply.
        """
        query: dict[str, object] = {"fieldManager": field_manager} if field_manager else {}
        if form == "apply":
            query = {"fieldManager": field_manager or "control-plane-test", "force": str(force).lower()}
        return self.request(
            "PATCH",
            self.path(kind, name, namespace, subresource),
            patch,
            content_type=PATCH_FORMS.get(form, form),
            query=query,
        )

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        missing_ok: bool = True,
    ) -> None:
        """Deletes an object; with ``missing_ok`` it is no error that there is none."""
        try:
            self.request("DELETE", self.path(kind, name, namespace), _delete_options(propagation, grace_seconds))
        except ApiError as error:
            if error.status != 404 or not missing_ok:
                raise

    def delete_all(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        selector: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes the objects of a kind in a namespace (of a cluster-scoped kind: all that match)."""
        query = {"labelSelector": selector} if selector else {}
        options = _delete_options(propagation, grace_seconds)
        self.request("DELETE", self.path(kind, None, namespace), options, query=query)

    def apply(self, what: str | Path | Object | Iterable[Object], *, field_manager: str = "kubectl") -> Objects:
        """Server-side applies a manifest file, a folder of them, YAML text, one object or several.

        A kind whose CRD is in the same call is waited for. Returns the objects as stored, in order.
        """
        applied: Objects = []
        pending: list[str] = []
        for obj in load_manifests(what):
            kind, name, namespace = _identity(obj)
            if kind == CRD:
                pending.append(name)
            else:
                self._wait_established(pending)
                self.wait(functools.partial(self.serves, kind), f"the API server serves {kind}", timeout=10)
                if namespace is None and self.resource(kind).namespaced:
                    namespace = "default"
            stored = self.patch(kind, name, obj, namespace, form="apply", field_manager=field_manager, force=True)
            applied.append(stored)
        self._wait_established(pending)
        return applied

    def _wait_established(self, names: MutableSequence[str]) -> None:
        """Waits until these CRDs are served, and empties the list."""
        while names:
            name = names.pop()

            def established(name: str = name) -> bool:
                conditions = self.get(CRD, name).get("status", {}).get("conditions") or []
                return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)

            self.wait(established, f"CustomResourceDefinition {name} is established", timeout=10)

    def watch(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        selector: str = "",
        timeout: float = 300,
    ) -> Iterator[Object]:
        """Watch events ``{"type", "object"}`` until the server ends the stream after ``timeout`` seconds.

        Raises: ApiError, also for an error event (410 when the version is too old).
        """
        query: dict[str, object] = {"watch": "true", "timeoutSeconds": int(timeout), "allowWatchBookmarks": "true"}
        if resource_version:
            query["resourceVersion"] = resource_version
        if selector:
            query["labelSelector"] = selector
        target = f"{self.path(kind, None, namespace)}?{urlencode(query)}"
        connection = self._connect(timeout + 30)
        try:
            self._put(connection, "GET", target, None, "")
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, _decode(response.read(), ""), f"GET {target}")
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), event["object"], f"GET {target}")
                yield event
        finally:
            connection.close()

    # ---- waiting

    def wait(
        self,
        condition: Callable[[], T],
        what: str,
        *,
        timeout: float = 60,
        show: Callable[[], object] | None = None,
    ) -> T:
        """Polls until ``condition`` returns something true, and returns that.

        ``what`` names the condition for the message, ``show`` gives what is printed with it; ``timeout`` in seconds.
        An ApiError 404, a failed assertion or a missing key counts as "not yet". Raises: WaitTimeout.
        """
        return wait(condition, what, timeout=timeout, show=show)

    def wait_object(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        condition: Callable[[Object], object] = lambda obj: True,
        *,
        what: str = "",
        timeout: float = 60,
    ) -> Object:
        """Waits until an object exists and ``condition`` is true of it; returns it. Raises: WaitTimeout."""

        def check() -> Object | None:
            obj = self.find(kind, name, namespace)
            return obj if obj is not None and condition(obj) else None

        found = self.wait(
            check,
            f"{kind} {namespace or ''}/{name} {what}",
            timeout=timeout,
            show=lambda: self.find(kind, name, namespace),
        )
        assert found is not None
        return found

    def wait_gone(self, kind: str, name: str, namespace: str | None = None, *, timeout: float = 60) -> None:
        """Waits until an object no longer exists. Raises: WaitTimeout."""
        self.wait(
            lambda: self.find(kind, name, namespace) is None,
            f"{kind} {namespace or ''}/{name} is gone",
            timeout=timeout,
            show=lambda: self.find(kind, name, namespace),
        )


def wait(condition: Callable[[], T], what: str, *, timeout: float = 60, show: Callable[[], object] | None = None) -> T:
    """Polls until ``condition`` returns something true, and returns that; see :meth:`Client.wait`."""
    deadline = time.monotonic() + timeout
    last: object = None
    while True:
        began = time.monotonic()
        try:
            result = condition()
            if result:
                return result
            last = result
        except (AssertionError, LookupError) as error:
            last = repr(error)
        except ApiError as error:
            if error.status != 404:
                raise
            last = error
        now = time.monotonic()
        if now > deadline:
            seen = show() if show else last
            text = seen if isinstance(seen, str) else yaml.safe_dump(seen) if isinstance(seen, (dict, list)) else seen
            raise WaitTimeout(f"not true after {timeout} s: {what}; last seen:\n{text}")
        # A dear question (all pods of a large cluster) is asked less often: it would slow down what it waits for.
        time.sleep(min(max(POLL_SECONDS, 3 * (now - began)), RAREST_POLL_SECONDS, max(deadline - now, POLL_SECONDS)))


def load_manifests(what: str | Path | Object | Iterable[Object]) -> Objects:
    """The objects of a YAML file, of a folder's YAML files, of YAML text, or as given."""
    if isinstance(what, Path):
        files = sorted(what.rglob("*.yaml")) if what.is_dir() else [what]
        documents = [doc for file in files for doc in read_yaml(file.read_text())]
    elif isinstance(what, str):
        documents = read_yaml(what)
    elif isinstance(what, dict):
        documents = [what]
    else:
        documents = list(what)
    objects: Objects = []
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") == "Kustomization":
            continue
        objects += document["items"] if document.get("kind") == "List" else [document]
    return objects


def read_yaml(text: str) -> list[Any]:
    """The documents of YAML text; by the C parser where there is one, which is ten times as fast on CRDs."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _identity(obj: Object) -> tuple[str, str, str | None]:
    """Kind, name (empty if generated) and namespace of an object."""
    metadata = obj["metadata"]
    return f"{obj['apiVersion']}/{obj['kind']}", metadata.get("name", ""), metadata.get("namespace")


def _delete_options(propagation: str, grace_seconds: int | None) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def _decode(raw: bytes, content_type: str) -> Object:
    try:
        answer = json.loads(raw)
    except ValueError:
        return {"text": raw.decode(errors="replace"), "message": raw.decode(errors="replace"), "reason": content_type}
    return answer if isinstance(answer, dict) else {"value": answer}
