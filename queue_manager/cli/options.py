"""Options of the commands that run a role, as `up.py` and `serve.py` take them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClusterKind(StrEnum):
    """What `up` works on."""

    SIMULATED = "simulated"
    KUBECONFIG = "kubeconfig"


class ScenarioView(StrEnum):
    """How `simulate` prints."""

    JSON = "json"
    TABLE = "table"


class Semantics(StrEnum):
    """Whose rules decide in `simulate`; the values of `queue_manager.simulate.semantics.Semantics`."""

    OWN = "own"
    KUEUE = "kueue"


class Switch(StrEnum):
    """Of what can be turned on and off."""

    ON = "on"
    OFF = "off"


class AuthMode(StrEnum):
    """Whether requests to the API need a proof of who asks."""

    AUTO = "auto"
    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """How the API is authenticated. `auto` needs a proof where it does not listen on loopback, or for other hosts.
    Metrics are protected where a proof is needed, unless that is said."""

    mode: AuthMode = AuthMode.AUTO
    hosts: tuple[str, ...] = ()
    oidc_issuer: str = ""
    oidc_audience: str = ""
    kubernetes: bool = False
    kubernetes_audience: str = ""
    protect_metrics: bool | None = None


@dataclass(frozen=True, slots=True)
class UpOptions:
    """`up`: all roles in one process tree. An empty `database` means the embedded one in `data`.
    `jobs` is a file whose jobs are submitted to the simulated cluster."""

    cluster: ClusterKind = ClusterKind.SIMULATED
    host: str = "127.0.0.1"
    port: int = 8080
    data: str = ""
    demo: bool = False
    webhook_url: str = ""
    database: str = ""
    kubeconfig: str = ""
    auth: AuthOptions = AuthOptions()
    jobs: str = ""


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """`controller`: watches, decides, writes; one of several leads. On `host:port` are /metrics and health.

    With a `namespace` it also holds the Kubernetes Lease there. `events`: whether it writes events on jobs, None for as
    the Settings say.
    """

    database: str = ""
    kubeconfig: str = ""
    host: str = "127.0.0.1"
    port: int = 8081
    namespace: str = ""
    events: bool | None = None


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """`api`: REST and the web page. `kubeconfig` is for asking whose Kubernetes' tokens are. `workers` 0 means as many
    processes as there are cores, four at most."""

    database: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    auth: AuthOptions = AuthOptions()
    kubeconfig: str = ""
    workers: int = 0


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """`webhook`: admission webhooks over HTTPS; its Service and Secret are in `namespace`.

    A `url` is registered in place of the Service.
    """

    database: str = ""
    kubeconfig: str = ""
    host: str = "127.0.0.1"
    port: int = 8443
    namespace: str = ""
    url: str = ""
