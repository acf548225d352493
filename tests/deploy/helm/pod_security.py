"""
The restricted Pod Security Standard, as https://kubernetes.io/docs/concepts/security/pod-security-standards/ has it:
with what the baseline already forbids. Of Linux only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Spec = Mapping[str, Any]

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
}
SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(pod: Spec) -> list[str]:
    """What a namespace that enforces the restricted standard would refuse the pod for."""
    found = [f"pod: {what}" for what in _of_pod(pod)]
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get(kind, ()):
            found += [f"{container['name']}: {what}" for what in _of_container(container, pod)]
    return found


def _of_pod(pod: Spec) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    context = pod.get("securityContext", {})
    yield from _of_any_context(context)
    for sysctl in context.get("sysctls", ()):
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    for volume in pod.get("volumes", ()):
        for kind in set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']} of type {kind}"


def _of_container(container: Spec, pod: Spec) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from _of_any_context(context)
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("procMount") not in {None, "Default"}:
        yield "procMount"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield "capabilities are not dropped"
    if not set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    # What a container doesn't say, the pod says for it.
    whole = {**pod.get("securityContext", {}), **context}
    if whole.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if whole.get("seccompProfile", {}).get("type") not in PROFILES:
        yield "no seccomp profile"
    yield from (f"host port {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))


def _of_any_context(context: Spec) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if context.get("seccompProfile", {}).get("type", "RuntimeDefault") not in PROFILES:
        yield "unconfined by seccomp"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in PROFILES:
        yield "unconfined by AppArmor"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "host process"
    selinux = context.get("seLinuxOptions", {})
    if selinux.get("type") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield "SELinux options"
