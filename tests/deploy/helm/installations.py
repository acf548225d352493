"""Values with which the chart is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The least that the chart wants.
LEAST: Mapping[str, Any] = {
    "app": "shop.jobs",
    "image": {"repository": "registry.example.com/shop", "tag": "v1"},
    "redis": {"url": "redis://:hunter2-hunter2@redis:6379/0"},
}
WEB: Mapping[str, Any] = {"web": {"enabled": True}}
AUTOSCALED: Mapping[str, Any] = {
    "web": {"enabled": True},
    "nodes": 4,
    "resources": {"limits": {"memory": "2Gi"}},
    "autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 5},
}


def limit(memory: str | int | None, nodes: int = 1, **values: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}, "nodes": nodes, **values}


GROUPS: Mapping[str, Any] = {
    **WEB,
    "replicas": 3,
    "workers": {
        "mail": {"queues": ["Mail"], "threads": 20},
        "video": {
            "queues": ["Video", "Thumbs"],
            "replicas": 2,
            "nodes": 1,
            "drainTimeout": 600,
            "maxRss": "900M",
            "image": {"tag": "v2-gpu"},
            "resources": {"limits": {"memory": "2Gi"}},
            "env": [{"name": "CODEC", "value": "av1"}],
            "extraArgs": ["--max-jobs=100"],
            "nodeSelector": {"gpu": "true"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "runtimeClassName": "nvidia",
            "podDisruptionBudget": {"enabled": False},
            "podLabels": {"team": "video"},
        },
        "slow": {"queues": ["Reports"], "autoscaling": {"enabled": True, "maxReplicas": 4}},
    },
}

#: What is tried of each kind of installation; each on top of LEAST.
MATRIX: Mapping[str, Mapping[str, Any]] = {
    "least": {},
    "paused": {"replicas": 0},
    "many nodes": {"replicas": 50, "nodes": 64, "resources": {"limits": {"memory": "64Gi"}}, "drainTimeout": 3600},
    "no limits": {"resources": {"requests": None, "limits": None}, "podDisruptionBudget": {"enabled": False}},
    "web": WEB,
    "web, open and looked at only": {"web": {"enabled": True, "noAuth": True, "readOnly": True, "noPayloads": True}},
    "web, with a token given": {"web": {"enabled": True, "token": "correct-horse", "listen": "[::]", "port": 9000}},
    "web, for the world": {
        "web": {
            "enabled": True,
            "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a.example.com/b": "c"}},
            "ingress": {
                "enabled": True, "className": "nginx", "annotations": {"a.example.com/b": "c"}, "tlsSecret": "jobs-tls",
                "hosts": ["jobs.example.com", "*.example.org"],
            },
        },
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    },
    "secrets that are there": {
        "redis": {"url": "", "existingSecret": "shop-redis", "secretKey": "url"},
        "web": {"enabled": True, "existingSecret": "shop-web"},
        "serviceMonitor": {"enabled": True},
    },
    "autoscaled": AUTOSCALED,
    "elastic": {"ownership": "elastic"},
    "elastic, a Deployment of as many pods as others say": {
        "ownership": "elastic", "workload": "Deployment", "replicas": None,
        "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    },
    "elastic, autoscaled": {
        **AUTOSCALED, "ownership": "elastic", "workload": "Deployment", "prometheusRule": {"enabled": True},
        "serviceMonitor": {"enabled": True},
    },
    "groups, one of them elastic": {
        "workers": {"a": {"queues": ["A"], "ownership": "elastic", "workload": "Deployment"}, "b": {"queues": ["B"]}},
    },
    "autoscaled, web open": {
        **AUTOSCALED, "web": {"enabled": True, "noAuth": True}, "serviceMonitor": {"enabled": True}
    },
    "network policy": {**WEB, "networkPolicy": {
        "enabled": True,
        "webFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 6379, "protocol": "TCP"}]}],
    }},
    "network policy, nodes alone": {"networkPolicy": {"enabled": True}},
    "groups": GROUPS,
    "groups, a policy, and one of no web": {
        "workers": {"a": {"queues": ["A"]}, "b-2": {"queues": ["B", "C"], "podAnnotations": {"a.example.com/b": "c"}}},
        "networkPolicy": {"enabled": True},
    },
    "alerts": {**WEB, "serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "everything": {
        **AUTOSCALED,
        "prometheusRule": {
            "enabled": True, "labels": {"release": "prometheus"}, "selector": 'job="shop"', "lag": 60,
            "extraRules": [{"alert": "Mine", "expr": "vector(1)", "labels": {"severity": "none"}}],
        },
        "queues": ["OrderSync", "Mail"],
        "threads": 20,
        "terminationGracePeriodSeconds": 40,
        "updateStrategy": {"rollingUpdate": {"partition": 3}},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        "extraContainers": [{"name": "proxy", "image": "registry.example.com/proxy:1", "resources": {}}],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.53"], "options": [{"name": "ndots", "value": "1"}]},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["redis"]}],
        "runtimeClassName": "gvisor",
        "annotations": {"reloader.stakater.com/auto": "true"},
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": '{{ include "lowkiq.fullname" . }}-more'}},
            'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "{{ .Release.Name }}-text"}',
        ],
        "image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always", "pullSecrets": ["registry", "other"]},
        "redis": {"url": "", "elsewhere": True, "namespace": "shop"},
        "extraArgs": ["--preload", "--max-age=6h"],
        "env": [
            {"name": "REDIS_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
            {"name": "REDIS_URL", "value": "redis://:$(REDIS_PASSWORD)@redis:6379/0"},
        ],
        "envFrom": [{"configMapRef": {"name": "shop"}}],
        "serviceAccount": {
            "create": True, "name": "jobs", "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1"}
        },
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "volumes": [{"name": "config", "configMap": {"name": "shop"}}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/shop", "readOnly": True}],
        "topologySpreadConstraints": [{
            "maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
        }}},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "jobs", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "jobs",
        "fullnameOverride": "orders",
        "labels": {"team": "orders"},
        "podLabels": {"sidecar.istio.io/inject": "false"},
        "podAnnotations": {"a.example.com/b": "true"},
    },
}  # fmt: skip
